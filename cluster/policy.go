package cluster

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Decision is a policy's decision about one request.
type Decision struct {
	Admit  bool
	Reason string // why it was rejected, or by which exception admitted; "" if admitted by the rule
	// PredictedUs is the estimated time to the first token from now on, BoundUs the bound that is
	// compared with the target, P90Us the bound at 90 %, and RawUs the estimate before calibration.
	// All are NaN without an estimate.
	PredictedUs, BoundUs, P90Us, RawUs float64
	Queued                             bool    // there was work ahead of the request
	MeetShare                          float64 // estimated probability of meeting the target, NaN without one
}

// Reasons of decisions.
const (
	reasonFloor     = "floor"
	reasonColdStart = "cold_start"
	reasonTokens    = "insufficient_tokens"
	reasonSignal    = "over_threshold"
	reasonSaturated = "saturated"
	reasonPredicted = "predicted_miss"
	reasonRandom    = "random"
)

// Policy decides about requests. target is the instance that the router will choose.
type Policy interface {
	Decide(r *Request, v *View, target int) (Decision, error)
	// Seen is called with the first token of an admitted request, before the ledger records it: the
	// decision, the instance, and the time from the decision in us.
	Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64)
}

// blind is the Seen method of policies that learn nothing.
type blind struct{}

func (blind) Seen(*Request, *View, *Decision, int, int64, int64) {}

// admit is the decision to admit without an estimate.
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

// reject is the decision to reject without an estimate.
func reject(reason string) Decision {
	d := admit()
	d.Admit, d.Reason = false, reason
	return d
}

// Always admits everything.
type Always struct{ blind }

// Decide admits.
func (Always) Decide(*Request, *View, int) (Decision, error) { return admit(), nil }

// tokenBucket admits a request while the bucket has as many tokens as its prompt.
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

// Signals of policy slo-gated.
const (
	maxQueueDepth     = "max-queue-depth"
	meanQueueDepth    = "mean-queue-depth"
	meanEffectiveLoad = "mean-effective-load"
)

// signals are all of them.
var signals = []string{maxQueueDepth, meanQueueDepth, meanEffectiveLoad}

// sloGated rejects the requests of a class while a signal of the cluster is above the class's
// threshold. A class without a threshold, and class critical, is never rejected.
type sloGated struct {
	blind
	Signal     string             // one of signals: public implementations differ
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

// signal is the value of the signal.
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

// saturation is the mean over instances of the larger of queue depth / queue and KV usage / kv, or 1
// without instances. Source: the utilization detector of the Gateway API inference extension.
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

// gaieLegacy rejects requests of negative priority while the cluster is saturated.
type gaieLegacy struct {
	blind
	Queue, KV float64 // queue depth and KV usage that count as full
}

// Decide rejects a request of negative priority if the saturation is 1 or more.
func (g *gaieLegacy) Decide(r *Request, v *View, _ int) (Decision, error) {
	if r.Priority < 0 && saturation(v, g.Queue, g.KV) >= 1 {
		return reject(reasonSaturated), nil
	}
	return admit(), nil
}

// probabilistic rejects requests of negative priority with the probability min(K*saturation^Power,
// 1). Source: llm-d's probabilistic admitter.
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

// Decide draws for a request of negative priority.
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

// randomMatched is a control: it rejects at random, with the reject rates of another run.
type randomMatched struct {
	blind
	Rates map[string][]float64 // share rejected, by class and second
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

// criticalPriority is the priority from which on requests are never rejected because of a
// prediction.
const criticalPriority = 4

// Request is what the gateway knows about a request.
type Request struct {
	Index        int // index in the workload, the key of its random draws
	Class        int // index of its class in the ledger
	ClassName    string
	Priority     int // of its class, higher is more important; below 0 it may be shed
	PromptTokens int64
	SLOTTFTUs    int64    // its target, 0: none
	Hashes       []uint64 // chained hashes of the leading prompt blocks that others may share
	Blocks       int64    // full blocks of the prompt
	Prefix       uint64   // its prefix group; 0 if no other request is known to share its prefix
	WaitedUs     int64    // time since its first arrival, above 0 for repeated arrivals
	Try          int      // number of earlier arrivals
}

// snapshot is the metrics of an instance at the last scrape.
type snapshot struct {
	AtUs                    int64
	QueueDepth              int64 // waiting requests
	BatchSize               int64 // running requests
	FreeBlocks, TotalBlocks int64
	StepStartUs             int64 // start of the step that executes; -1 for none, or if not exported
}

// KVUsage is the share of KV blocks in use, in [0, 1].
func (s *snapshot) KVUsage() float64 {
	if s.TotalBlocks <= 0 {
		return 0
	}
	return float64(s.TotalBlocks-s.FreeBlocks) / float64(s.TotalBlocks)
}

// View is all that a decision may read. Match and Exact are for the request that is decided.
type View struct {
	NowUs, BlockSize int64
	Snapshots        []snapshot
	Ledger           *ledger
	Match            []int64 // for each instance, the leading prompt blocks that the index expects on it
	Exact            []int64 // the same by the engines' KV events; nil without them
}

// Load is the number of waiting, running and in-flight requests of an instance, by which policy
// least-loaded chooses.
func (v *View) Load(i int) int64 {
	s := &v.Snapshots[i]
	return s.QueueDepth + s.BatchSize + v.Ledger.Of[i].InFlight
}

// CachedTokens is the expected number of cached prompt tokens, at most all but one.
func (v *View) CachedTokens(r *Request, i int) int64 {
	return max(0, min(v.Match[i]*v.BlockSize, r.PromptTokens-1))
}

// latencySLO rejects a request of negative priority if it has a target, there are predictions, no
// instance is predicted to meet the target, and no instance is idle or has almost no KV in use. Source:
// llm-d's latency-slo admitter.
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

// Seed is the published estimate of policy predictive-seed, unchanged: the number of waiting
// requests times a constant, plus one prefill.
type Seed struct {
	blind
	Variant      string             // a or b
	Headroom     float64            // multiplies every budget
	StepUs       float64            // called average step time there, but used as the time per queued request
	Beta0, Beta1 float64            // us, us per uncached prompt token
	BudgetUs     map[string]float64 // by class
	// AdmitUnmatched admits every request whose prefix no instance has, as the public
	// implementation does.
	AdmitUnmatched bool
}

// EstimateUs is the smallest estimate of all instances.
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
