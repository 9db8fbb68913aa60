package cluster

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Decision is the decision of a policy on one request.
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
	// Seen is called with the first token of an admitted request, before the ledger records it: the
	// decision, the instance, and the time from the decision in us.
	Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64)
}

// blind is a policy that learns nothing and predicts nothing.
type blind struct{}

func (blind) Seen(*Request, *View, *Decision, int, int64, int64) {}

func admit() Decision {
	return Decision{
		Admit:       true,
		PredictedUs: math.NaN(),
		BoundUs:     math.NaN(),
		P90Us:       math.NaN(),
		RawUs:       math.NaN(),
		MeetShare:   math.NaN(),
	}
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
		most = math.Max(most, x)
		sum += x
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
	chance := math.Min(1, p.K*math.Pow(saturation(v, p.Queue, p.KV), p.Power))
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
	rates := m.Rates[r.ClassName]
	second := int(v.NowUs / 1e6)
	if second < len(rates) && stat.Draw(uint64(m.Seed), streamMatched, uint64(r.Index), uint64(r.Try)) < rates[second] {
		return reject(reasonRandom), nil
	}
	return admit(), nil
}

// criticalPriority is that from which on nothing is ever rejected by prediction.
const criticalPriority = 4

// Request holds what a gateway knows about a request.
type Request struct {
	Index        int // of the workload: the key of its random draws
	Class        int // of the ledger
	ClassName    string
	Priority     int // of its class, higher is more important; below 0 it may be shed
	PromptTokens int64
	SLOTTFTUs    int64    // its target, 0: none
	Hashes       []uint64 // chained hashes of the leading prompt blocks that others may share
	Blocks       int64    // full blocks of the prompt
	Prefix       uint64   // its prefix group, 0: no other request is known to begin so
	WaitedUs     int64    // since it first came: a client that tries again has waited
	Try          int      // 0: its first
}

// snapshot is an instance's metrics as of its last scrape.
type snapshot struct {
	AtUs                    int64
	QueueDepth              int64 // requests that wait
	BatchSize               int64 // requests that run
	FreeBlocks, TotalBlocks int64
	StepStartUs             int64 // of the step that executes; -1: none, or not exported
}

// KVUsage is the share of KV blocks in use, in [0, 1].
func (s *snapshot) KVUsage() float64 {
	if s.TotalBlocks <= 0 {
		return 0
	}
	return float64(s.TotalBlocks-s.FreeBlocks) / float64(s.TotalBlocks)
}

// View is all that a decision may read. Match and Exact are of the request that is
// decided.
type View struct {
	NowUs, BlockSize int64
	Snapshots        []snapshot
	Ledger           *ledger
	Match            []int64 // leading prompt blocks that the index expects, by instance
	Exact            []int64 // the same by the engines' own events; nil without them
}

// Load is queue, batch and what was sent and has not left: the measure of least-loaded.
func (v *View) Load(i int) int64 {
	s := &v.Snapshots[i]
	return s.QueueDepth + s.BatchSize + v.Ledger.Of[i].InFlight
}

// CachedTokens is the expected cached part of the prompt; one token is always left.
func (v *View) CachedTokens(r *Request, i int) int64 {
	return max(0, min(v.Match[i]*v.BlockSize, r.PromptTokens-1))
}

// latencySLO rejects what may be shed if and only if it has a target, predictions
// exist, none meets it, every instance runs something and none has hardly any KV in
// use. Source: llm-d's latency-slo admitter.
type latencySLO struct {
	blind
	Estimate estimator
}

// idleKV is the KV usage below which an instance counts as free.
const idleKV = 0.02

// Decide looks for an instance that meets the target.
func (l *latencySLO) Decide(r *Request, v *View, _ int) (Decision, error) {
	d := admit()
	if r.Priority >= 0 || r.SLOTTFTUs == 0 {
		return d, nil
	}
	best := math.Inf(1)
	idle := false
	for i := range v.Snapshots {
		s := &v.Snapshots[i]
		idle = idle || s.BatchSize == 0 || s.KVUsage() < idleKV
		x, err := l.Estimate.TTFT(r, v, i)
		if err != nil {
			return d, err
		}
		if x.Us < best {
			best, d.Queued = x.Us, x.Queued
		}
	}
	d.PredictedUs = best
	d.BoundUs = best
	d.P90Us = best
	if math.IsInf(best, 0) || math.IsNaN(best) || idle || best+float64(r.WaitedUs) <= float64(r.SLOTTFTUs) {
		return d, nil
	}
	d.Admit, d.Reason = false, reasonPredicted
	return d, nil
}

// Seed is the published estimate of a predictive budget, kept as it was: waiting
// requests times a constant, and one prefill.
type Seed struct {
	blind
	Variant      string             // a or b
	Headroom     float64            // multiplies every budget
	StepUs       float64            // "average step time": really the time per queued request
	Beta0, Beta1 float64            // us, us per uncached prompt token
	BudgetUs     map[string]float64 // by class
	// AdmitUnmatched lets in any request whose prefix no instance has: the public
	// implementation does.
	AdmitUnmatched bool
}

// EstimateUs is the smallest estimate over instances.
func (s *Seed) EstimateUs(r *Request, v *View) float64 {
	best := math.Inf(1)
	for i := range v.Snapshots {
		uncached := max(0, r.PromptTokens-v.Match[i]*v.BlockSize)
		best = math.Min(best, float64(v.Snapshots[i].QueueDepth)*s.StepUs+s.Beta0+s.Beta1*float64(uncached))
	}
	return best
}

// Decide compares the estimate with the class's budget.
func (s *Seed) Decide(r *Request, v *View, _ int) (Decision, error) {
	critical := r.Priority >= criticalPriority
	if s.Variant == "b" && critical {
		return admit(), nil
	}
	d := admit()
	d.PredictedUs = s.EstimateUs(r, v)
	d.BoundUs = d.PredictedUs
	d.P90Us = d.PredictedUs
	limit, ok := s.BudgetUs[r.ClassName]
	limit = limit * s.Headroom
	switch {
	case !ok, d.PredictedUs <= limit, critical:
	case s.AdmitUnmatched && slices.Max(v.Match) <= 0:
	case s.Variant == "a" && r.Priority >= 0 && d.PredictedUs <= 2*limit:
	default:
		d.Admit, d.Reason = false, reasonPredicted
	}
	return d, nil
}
