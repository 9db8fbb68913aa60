package cluster

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// Decision is what a policy says of one request.
type Decision struct {
	Admit  bool
	Reason string // why not, or which exception let it in; "" admitted by the rule
	// The estimate of its TTFT from now on, NaN without one; what it is judged by, and
	// the same at 90 %; and the estimate before calibration.
	PredictedUs, BoundUs, P90Us, RawUs float64
	Queued                             bool    // the estimate saw work ahead of it
	MeetShare                          float64 // estimated probability of meeting the target, NaN without one
}

// Reasons.
const (
	reasonFloor     = "floor"
	reasonColdStart = "cold_start"
	reasonTokens    = "insufficient_tokens"
	reasonSignal    = "over_threshold"
	reasonSaturated = "saturated"
	reasonPredicted = "predicted_miss"
	reasonRandom    = "random"
)

// Policy decides on requests. target is the instance the router will choose.
type Policy interface {
	Decide(r *Request, v *View, target int) (Decision, error)
	// Seen is told of the first token of a request that was admitted, before the ledger
	// is: its decision, its instance, and how long it took from the decision, us.
	Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64)
}

// blind is a policy that learns nothing and predicts nothing.
type blind struct{}

func (blind) Seen(*Request, *View, *Decision, int, int64, int64) {}

func admit() Decision {
	return Decision{Admit: true, PredictedUs: math.NaN(), BoundUs: math.NaN(), P90Us: math.NaN(), RawUs: math.NaN(),
		MeetShare: math.NaN()}
}

func reject(reason string) Decision {
	d := admit()
	d.Admit, d.Reason = false, reason
	return d
}

// Always admits everything.
type Always struct{ blind }

// Decide admits.
func (Always) Decide(*Request, *View, int) (Decision, error) { return admit(), nil }

// tokenBucket admits while prompt tokens are in the bucket.
type tokenBucket struct {
	blind
	Capacity, RefillPerS float64 // tokens, tokens per second
	level                float64
	atUs                 int64
	filled               bool
}

// Decide takes the prompt's tokens from the bucket.
func (b *tokenBucket) Decide(r *Request, v *View, _ int) (Decision, error) {
	if !b.filled {
		b.level, b.filled = b.Capacity, true
	}
	b.level = math.Min(b.Capacity, b.level+float64(v.NowUs-b.atUs)*b.RefillPerS/1e6)
	b.atUs = v.NowUs
	if cost := float64(r.PromptTokens); b.level >= cost {
		b.level -= cost
		return admit(), nil
	}
	return reject(reasonTokens), nil
}

// Signals of SLOGated.
const (
	maxQueueDepth     = "max-queue-depth"
	meanQueueDepth    = "mean-queue-depth"
	meanEffectiveLoad = "mean-effective-load"
)

// signals are all of them.
var signals = []string{maxQueueDepth, meanQueueDepth, meanEffectiveLoad}

// sloGated rejects a class while a signal of the cluster is above its threshold;
// a class without one, and critical, is never rejected.
type sloGated struct {
	blind
	Signal     string             // three public definitions exist
	Thresholds map[string]float64 // by class
}

// Decide compares the signal with the class's threshold.
func (g *sloGated) Decide(r *Request, v *View, _ int) (Decision, error) {
	limit, ok := g.Thresholds[r.ClassName]
	if !ok || r.Priority >= criticalPriority {
		return admit(), nil
	}
	if g.signal(v) > limit {
		return reject(reasonSignal), nil
	}
	return admit(), nil
}

func (g *sloGated) signal(v *View) float64 {
	most, sum := 0.0, 0.0
	for i := range v.Snapshots {
		x := float64(v.Snapshots[i].QueueDepth)
		if g.Signal == meanEffectiveLoad {
			x = float64(v.Load(i))
		}
		most, sum = math.Max(most, x), sum+x
	}
	if g.Signal == maxQueueDepth {
		return most
	}
	return sum / float64(max(1, len(v.Snapshots)))
}

// saturation is the mean over instances of the larger of queue depth / queue and
// KV usage / kv; without instances 1. Source: utilization detector of the Gateway
// API inference extension.
func saturation(v *View, queue, kv float64) float64 {
	if len(v.Snapshots) == 0 {
		return 1
	}
	sum := 0.0
	for i := range v.Snapshots {
		s := &v.Snapshots[i]
		sum += math.Max(float64(s.QueueDepth)/queue, s.KVUsage()/kv)
	}
	return sum / float64(len(v.Snapshots))
}

// gaieLegacy rejects what may be shed while the cluster is saturated.
type gaieLegacy struct {
	blind
	Queue, KV float64 // where each signal counts as full
}

// Decide looks at the saturation for classes below 0.
func (g *gaieLegacy) Decide(r *Request, v *View, _ int) (Decision, error) {
	if r.Priority < 0 && saturation(v, g.Queue, g.KV) >= 1 {
		return reject(reasonSaturated), nil
	}
	return admit(), nil
}

// probabilistic rejects what may be shed with probability min(K*saturation^Power, 1).
// Source: llm-d's probabilistic admitter.
type probabilistic struct {
	blind
	Queue, KV, K, Power float64
	Seed                int64
}

// Streams of draws.
const (
	streamProbabilistic = 2
	streamMatched       = 3
)

// Decide draws for classes below 0.
func (p *probabilistic) Decide(r *Request, v *View, _ int) (Decision, error) {
	if r.Priority >= 0 {
		return admit(), nil
	}
	chance := math.Min(1, p.K*stat.Pow(saturation(v, p.Queue, p.KV), p.Power))
	if stat.Draw(uint64(p.Seed), streamProbabilistic, uint64(r.Index), uint64(r.Try)) < chance {
		return reject(reasonSaturated), nil
	}
	return admit(), nil
}

// randomMatched rejects by chance, at another run's rates: a control.
type randomMatched struct {
	blind
	Rates map[string][]float64 // by class, by second: share rejected
	Seed  int64
}

// Decide draws with the class's rate in this second.
func (m *randomMatched) Decide(r *Request, v *View, _ int) (Decision, error) {
	rates, second := m.Rates[r.ClassName], int(v.NowUs/1e6)
	if second < len(rates) && stat.Draw(uint64(m.Seed), streamMatched, uint64(r.Index), uint64(r.Try)) < rates[second] {
		return reject(reasonRandom), nil
	}
	return admit(), nil
}

// criticalPriority is that from which on nothing is ever rejected by prediction.
const criticalPriority = 4
