package cluster

// This file has what a policy may read (Request, View), what it decides (Decision), and the
// admission policies that use no forecast of the engines. predictive.go has the one that does.

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
	BudgetUs                           float64 // time left for the first token, that BoundUs is compared with; 0: none
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

// Policy decides whether the gateway admits a request.
type Policy interface {
	// Decide decides about request r at v.NowUs. target is the instance that the router would
	// choose now.
	Decide(r *Request, v *View, target int) (Decision, error)
	// Seen is called when an admitted request gets its first token, before the ledger records it. d
	// is the decision, and tookUs the time from the decision.
	Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64)
}

// blind provides Seen for policies that learn nothing from observed times.
type blind struct{}

// Seen does nothing.
func (blind) Seen(*Request, *View, *Decision, int, int64, int64) {}

// admit returns the decision to admit, without an estimate of TTFT.
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

// reject returns the decision to reject for a reason, without an estimate of TTFT.
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
	level                float64 // tokens in the bucket at atUs
	atUs                 int64   // time of the last decision
	filled               bool    // false before the first decision, which finds the bucket full
}

// Decide refills the bucket for the time since the last decision, and admits the request if the
// bucket has as many tokens as its prompt, which it then takes.
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

// Signals that policy slo-gated can compare with a threshold: the largest or mean number of waiting
// requests of an instance, and the mean of View.Load.
const (
	maxQueueDepth     = "max-queue-depth"
	meanQueueDepth    = "mean-queue-depth"
	meanEffectiveLoad = "mean-effective-load"
)

// signals are the valid values of sloGated.Signal.
var signals = []string{maxQueueDepth, meanQueueDepth, meanEffectiveLoad}

// sloGated rejects the requests of a class while a signal of the cluster is above the class's
// threshold. A class without a threshold, and class critical, is never rejected.
type sloGated struct {
	blind
	Signal     string             // one of signals: public implementations differ
	Thresholds map[string]float64 // by class
}

// Decide rejects the request if its class has a threshold, the class is below critical and the
// signal exceeds the threshold.
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

// signal returns the present value of g.Signal, in requests.
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

// saturation returns how full the cluster is: the mean over instances of the larger of queue
// depth/queue and KV usage/kv. 1 is full; a cluster without instances counts as full. Source: the
// utilization detector of the Gateway API inference extension.
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
	Queue, KV float64 // queue depth and KV usage that count as full
	K, Power  float64
	Seed      int64
}

// Streams of random draws, so that one policy's draws do not depend on another's. The numbers 1, 4
// and 5 are streamTies, streamShadow and streamLLMD.
const (
	streamProbabilistic = 2
	streamMatched       = 3
)

// Decide rejects a request of negative priority at random, with a probability that grows with the
// saturation.
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

// Decide rejects the request with the probability m.Rates of its class in the current second, which
// another policy's run had. Requests after the end of that run are admitted.
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

// KVUsage returns the share of KV blocks in use, in [0, 1].
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

// Load returns the number of requests of instance i by which routing policy least-loaded compares:
// waiting and running at the last scrape, plus those sent and not finished. A request can be
// counted twice, as in the router that this mirrors.
func (v *View) Load(i int) int64 {
	s := &v.Snapshots[i]
	return s.QueueDepth + s.BatchSize + v.Ledger.Of[i].InFlight
}

// CachedTokens returns how many prompt tokens of r the index expects in the cache of instance i, at
// most all but one: the last token is always computed.
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

// idleKV is the share of KV blocks in use below which an instance counts as free.
const idleKV = 0.02

// Decide estimates the TTFT of the request on every instance and rejects it if the smallest
// estimate misses the target and no instance is free.
func (l *latencySLO) Decide(r *Request, v *View, _ int) (Decision, error) {
	decision := admit()
	if r.Priority >= 0 || r.SLOTTFTUs == 0 {
		return decision, nil
	}
	best := math.Inf(1)
	idle := false
	for i := range v.Snapshots {
		s := &v.Snapshots[i]
		idle = idle || s.BatchSize == 0 || s.KVUsage() < idleKV
		estimate, err := l.Estimate.TTFT(r, v, i)
		if err != nil {
			return decision, err
		}
		if estimate.Us < best {
			best, decision.Queued = estimate.Us, estimate.Queued
		}
	}
	decision.PredictedUs = best
	decision.BoundUs = best
	decision.P90Us = best
	decision.BudgetUs = float64(r.SLOTTFTUs - r.WaitedUs)
	if math.IsInf(best, 0) || math.IsNaN(best) || idle || best+float64(r.WaitedUs) <= float64(r.SLOTTFTUs) {
		return decision, nil
	}
	decision.Admit, decision.Reason = false, reasonPredicted
	return decision, nil
}

// Seed is the published policy predictive-seed, unchanged (it has nothing to do with random seeds):
// it estimates the TTFT as the number of waiting requests times a constant, plus one prefill.
type Seed struct {
	blind
	Variant      string             // a or b
	Headroom     float64            // multiplies every budget
	StepUs       float64            // us per waiting request; the publication calls it the average step time
	Beta0, Beta1 float64            // us, us per uncached prompt token
	BudgetUs     map[string]float64 // by class
	// AdmitUnmatched admits every request whose prefix no instance has, as the public
	// implementation does.
	AdmitUnmatched bool
}

// EstimateUs returns the estimated TTFT, us, on the instance where it is smallest.
func (s *Seed) EstimateUs(r *Request, v *View) float64 {
	best := math.Inf(1)
	for i := range v.Snapshots {
		uncached := max(0, r.PromptTokens-v.Match[i]*v.BlockSize)
		best = math.Min(best, float64(v.Snapshots[i].QueueDepth)*s.StepUs+s.Beta0+s.Beta1*float64(uncached))
	}
	return best
}

// Decide rejects the request if the estimate exceeds its class's budget. The two published variants
// differ: a also admits classes of priority 0 and above up to twice the budget, b skips the
// estimate for critical classes. Critical classes are admitted by both.
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
	d.BudgetUs = limit
	admitted := !ok || d.PredictedUs <= limit || critical || // a class without a budget is always admitted
		s.AdmitUnmatched && slices.Max(v.Match) <= 0 ||
		s.Variant == "a" && r.Priority >= 0 && d.PredictedUs <= 2*limit
	if !admitted {
		d.Admit, d.Reason = false, reasonPredicted
	}
	return d, nil
}
