package cluster

// This file computes what users experience in one run: goodput by class, tails of TTFT, cache hits,
// fairness, and how good the gateway's TTFT estimates were. A record is one request; a shadow is a
// rejected request whose TTFT was simulated on a copy of the engine (gate.go).

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// target is the latency targets of a class, us; 0 for none.
type target struct{ TTFTUs, ITLUs, E2EUs float64 }

// promisedTargets returns the targets of each class, from its first request that has any.
func promisedTargets(reqs []sim.Request) map[string]target {
	out := map[string]target{}
	for i := range reqs {
		if q := &reqs[i]; out[q.SLOClass] == (target{}) {
			out[q.SLOClass] = target{
				TTFTUs: float64(q.SLOTTFTUs),
				ITLUs:  float64(q.SLOITLUs),
				E2EUs:  float64(q.SLOE2EUs),
			}
		}
	}
	return out
}

// window is the time [FromUs, ToUs) in which arrivals count.
type window struct{ FromUs, ToUs int64 }

// Class is the counts of one class of requests, or of all requests.
type Class struct {
	Name              string
	Arrived, Admitted int
	Good              int // requests that completed and met every target
	Late              int // admitted requests that missed the TTFT target
	Judged            int // admitted requests with a TTFT target
	// RuleLate and RuleJudged do not count requests that were admitted as an exception, such as by a
	// floor although they were predicted to miss.
	RuleLate, RuleJudged int
}

// Goodput returns good / arrived requests.
func (c *Class) Goodput() float64 { return ratioOrNaN(float64(c.Good), float64(c.Arrived)) }

// AdmittedShare returns admitted / arrived requests.
func (c *Class) AdmittedShare() float64 { return ratioOrNaN(float64(c.Admitted), float64(c.Arrived)) }

// MissShare returns the share of admitted requests past their TTFT target.
func (c *Class) MissShare() float64 { return ratioOrNaN(float64(c.Late), float64(c.Judged)) }

// RuleMissShare returns that share without requests admitted as an exception.
func (c *Class) RuleMissShare() float64 {
	return ratioOrNaN(float64(c.RuleLate), float64(c.RuleJudged))
}

// ratioOrNaN returns a/b, and NaN if b is 0.
func ratioOrNaN(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// audit is how well TTFT estimates matched observed times, for admitted requests or for shadows.
type audit struct {
	N int // number of pairs of estimate and observed time
	// Relative figures, NaN without pairs: MedianAPE is the median of |estimate/observed - 1|, Bias
	// the ratio of the sums minus 1, Coverage90 the share of requests within their P90 bound,
	// FalseShare the share of rejected requests that would have met their target.
	MedianAPE, Bias, Coverage90, FalseShare float64
}

// pair is one estimate of the time from the decision to the first token and the observed time, ms.
type pair struct {
	PredictedMs, TookMs float64
	Shadow              bool
}

// Goodput is the figures of one run.
type Goodput struct {
	All     Class
	Classes []Class // in the order of their first arrival
	// P99 of TTFT in ms, NaN without requests. Rejected requests of Critical and Everybody count as infinite,
	// so the P99 is +Inf where more than 1 % were rejected.
	Critical  float64 // class critical
	Admitted  float64 // admitted requests of all classes
	Everybody float64 // all requests

	CachedShare       float64 // prompt tokens of admitted requests found in a cache
	PotentialShare    float64 // cached share expected on the best instance at arrival, all requests
	PotentialAdmitted float64 // the same over admitted ones
	PotentialCV       float64 // coefficient of variation of expected cached tokens over requests
	PhantomShare      float64 // share of the expected cached tokens that were not found
	Jain              float64 // Jain's fairness index of good/arrived over prefix groups
	OutputPerS        float64 // tokens produced inside the window per second
	Shed              int     // rejected
	Tries             int     // arrivals, including repeated ones
	Live, Shadow      audit   // of admitted requests, and of the sample of rejected ones
	Reliability       [10]reliability
}

// reliability is the requests whose estimated probability of meeting their target is in one tenth
// of 0 to 1: their weight N, the sum of the probabilities, and the weight of those that met the
// target. An admitted request has weight 1. Shadows are a sample of the rejected requests, so each
// has the weight rejected requests / shadows.
type reliability struct{ N, Expected, Met float64 }

// fillReliability fills out.Reliability from the admitted requests and the shadows in recs.
func (out *Goodput) fillReliability(recs []*record) {
	shadows := 0
	for _, r := range recs {
		if r.Shadowed && !r.Admitted() {
			shadows++
		}
	}
	for _, r := range recs {
		probability := r.Decision.MeetShare
		weight := 1.0
		met := false
		switch us, ok := r.TTFTUs(); {
		case math.IsNaN(probability) || r.Decision.RawUs == 0 || r.SLOTTFTUs == 0: // no estimate or no target
			continue
		case r.Admitted():
			met = ok && us <= float64(r.SLOTTFTUs)
		case r.Shadowed:
			weight = float64(out.Shed) / float64(shadows)
			met = r.Shadow.OK && r.Shadow.V+r.DecidedUs-r.ArrivalUs <= r.SLOTTFTUs
		default:
			continue
		}
		band := &out.Reliability[min(9, int(10*probability))]
		band.N += weight
		band.Expected += weight * probability
		if met {
			band.Met += weight
		}
	}
}

// Meets reports whether the request finished and met every target of its class. The ITL target does
// not apply to answers of one token.
func (t target) Meets(r *record) bool {
	if r.Outcome != sim.OutcomeFinished {
		return false
	}
	ttft, _ := r.TTFTUs()
	e2e, _ := r.E2EUs()
	itl, hasITL := r.ITLUs()
	switch {
	case t.TTFTUs != 0 && !(ttft <= t.TTFTUs):
		return false
	case t.E2EUs != 0 && !(e2e <= t.E2EUs):
		return false
	case t.ITLUs != 0 && hasITL && !(itl <= t.ITLUs):
		return false
	}
	return true
}

// goodputOf computes the figures of the requests that arrived inside window w. targets are the
// latency targets by class.
func goodputOf(all []record, targets map[string]target, w window) *Goodput {
	recs := inWindow(all, w)
	out := &Goodput{All: Class{Name: "all"}}
	for _, r := range recs {
		i := slices.IndexFunc(out.Classes, func(c Class) bool { return c.Name == r.Class })
		if i < 0 {
			i = len(out.Classes)
			out.Classes = append(out.Classes, Class{Name: r.Class})
		}
		out.All.addRecord(r, targets[r.Class])
		out.Classes[i].addRecord(r, targets[r.Class])
		out.Tries += r.Tries
	}
	out.Shed = out.All.Arrived - out.All.Admitted
	out.tails(recs)
	out.cache(recs)
	out.fairness(recs, targets)
	out.OutputPerS = outputPerS(all, w)
	out.fillReliability(recs)
	pairs := pairsOf(recs)
	out.Live = auditOf(recs, pairs, false)
	out.Shadow = auditOf(recs, pairs, true)
	return out
}

// inWindow returns the records of requests that arrived inside the window, in order of arrival.
func inWindow(all []record, w window) []*record {
	out := make([]*record, 0, len(all))
	for i := range all {
		if at := all[i].ArrivalUs; at >= w.FromUs && at < w.ToUs && all[i].Tries > 0 {
			out = append(out, &all[i])
		}
	}
	stat.SortStable(out, func(a, b *record) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	return out
}

// addRecord counts one request with the targets t of its class.
func (c *Class) addRecord(r *record, t target) {
	c.Arrived++
	if t.Meets(r) {
		c.Good++
	}
	if !r.Admitted() {
		return
	}
	c.Admitted++
	if t.TTFTUs == 0 {
		return
	}
	ttft, ok := r.TTFTUs()
	late := !ok || ttft > t.TTFTUs
	rule := r.Decision.Reason == ""
	c.Judged++
	if rule {
		c.RuleJudged++
	}
	if late {
		c.Late++
	}
	if late && rule {
		c.RuleLate++
	}
}

// tails sets the P99 figures. A request without a first token counts as infinite.
func (out *Goodput) tails(recs []*record) {
	var critical, admitted, everybody []float64
	for _, r := range recs {
		ms := math.Inf(1)
		if us, ok := r.TTFTUs(); ok {
			ms = us / 1e3
		}
		everybody = append(everybody, ms)
		if r.Admitted() {
			admitted = append(admitted, ms)
		}
		if r.Class == "critical" {
			critical = append(critical, ms)
		}
	}
	out.Critical = p99(critical)
	out.Admitted = p99(admitted)
	out.Everybody = p99(everybody)
}

// p99 returns the 99th percentile of the values by nearest rank; NaN without values.
func p99(v []float64) float64 { return stat.NearestRank(stat.Sorted(v), 0.99) }

// cache sets the figures of cached prompt tokens: found, expected, and expected but not found
// (phantom).
func (out *Goodput) cache(recs []*record) {
	// Sums of tokens: prompts and potential over all requests, the others over admitted ones.
	var prompts, admitted, cached, potential, potentialIn, expected, phantom float64
	potentials := make([]float64, 0, len(recs))
	for _, r := range recs {
		prompts += float64(r.PromptTokens)
		potential += float64(r.Potential)
		potentials = append(potentials, float64(r.Potential))
		if r.Admitted() {
			admitted += float64(r.PromptTokens)
			cached += float64(r.CachedTokens)
			potentialIn += float64(r.Potential)
			expected += float64(r.Expected)
			phantom += float64(max(0, r.Expected-r.CachedTokens))
		}
	}
	out.CachedShare = ratioOrNaN(cached, admitted)
	out.PotentialShare = ratioOrNaN(potential, prompts)
	out.PotentialAdmitted = ratioOrNaN(potentialIn, admitted)
	out.PhantomShare = ratioOrNaN(phantom, expected)
	mean := stat.Mean(potentials)
	squares := 0.0
	for _, x := range potentials {
		squares += (x - mean) * (x - mean)
	}
	out.PotentialCV = ratioOrNaN(math.Sqrt(ratioOrNaN(squares, float64(len(potentials)))), mean)
}

// fairness sets Jain's index of the goodput of prefix groups (requests that share a prompt prefix):
// 1 if all groups have the same share of good requests, 1/groups if only one has any. Each group
// counts once, whatever its size.
func (out *Goodput) fairness(recs []*record, targets map[string]target) {
	var names []uint64
	groups := map[uint64]*Class{}
	for _, r := range recs {
		g := groups[r.Group]
		if g == nil {
			g = &Class{}
			groups[r.Group] = g
			names = append(names, r.Group)
		}
		g.addRecord(r, targets[r.Class])
	}
	sum, squares := 0.0, 0.0
	for _, name := range names {
		x := groups[name].Goodput()
		sum += x
		squares += x * x
	}
	out.Jain = ratioOrNaN(sum*sum, float64(len(names))*squares)
}

// outputPerS returns the output tokens per second inside the window. The tokens of a request are
// spread evenly between its first token and its end.
func outputPerS(all []record, w window) float64 {
	sum := 0.0
	end := w.ToUs
	if end == math.MaxInt64 { // an open window ends with the last arrival
		end = w.FromUs
		for i := range all {
			end = max(end, all[i].ArrivalUs)
		}
	}
	for i := range all {
		r := &all[i]
		if !r.FirstTokenUs.OK || !r.FinishedUs.OK {
			continue
		}
		from, to := r.FirstTokenUs.V, r.FinishedUs.V
		if to == from {
			if from >= w.FromUs && from < end {
				sum += float64(r.OutputTokens)
			}
			continue
		}
		part := float64(min(to, end)-max(from, w.FromUs)) / float64(to-from)
		sum += math.Max(0, part) * float64(r.OutputTokens)
	}
	return ratioOrNaN(sum*1e6, float64(end-w.FromUs))
}

// pairsOf returns estimate and observed time of each admitted request that has both, and of each
// shadow that was simulated at least up to its P90 bound.
func pairsOf(recs []*record) []pair {
	var out []pair
	for _, r := range recs {
		p := r.Decision.PredictedUs
		if math.IsNaN(p) || math.IsInf(p, 0) {
			continue
		}
		if us, ok := r.TookUs(); ok && r.Admitted() {
			out = append(out, pair{PredictedMs: p / 1e3, TookMs: float64(us) / 1e3})
		} else if r.Shadow.OK && followedToBound(r) {
			out = append(out, pair{PredictedMs: p / 1e3, TookMs: float64(r.Shadow.V) / 1e3, Shadow: true})
		}
	}
	return out
}

// followedToBound reports whether the request's shadow was simulated for at least as long as its
// P90 bound. If it was not, only short times could be observed, which would bias coverage.
func followedToBound(r *record) bool { return r.Decision.P90Us <= float64(r.FollowedUs()) }

// auditOf compares the estimates in pairs and the P90 bounds in recs with observed times, either of
// admitted requests or of shadows.
func auditOf(recs []*record, pairs []pair, shadow bool) audit {
	nan := math.NaN()
	a := audit{MedianAPE: nan, Bias: nan, Coverage90: nan, FalseShare: nan}
	var ape []float64
	predicted, took := 0.0, 0.0
	for _, p := range pairs {
		if p.Shadow == shadow && p.TookMs > 0 {
			ape = append(ape, math.Abs(p.PredictedMs/p.TookMs-1))
			predicted += p.PredictedMs
			took += p.TookMs
		}
	}
	a.N = len(ape)
	if a.N > 0 {
		a.MedianAPE = stat.Median(ape)
		a.Bias = predicted/took - 1
	}
	var (
		n       int // requests with a bound
		covered int // of n, within the bound
		judged  int // rejected requests with a target
		wrong   int // of judged, those that would have met it
	)
	for _, r := range recs {
		us, ok := r.TookUs()
		if shadow { // without a first token it took longer than it was followed
			us = r.FollowedUs()
			ok = r.Shadowed
			if r.Shadow.OK {
				us = r.Shadow.V
			}
		}
		if !ok || r.Admitted() == shadow || math.IsNaN(r.Decision.P90Us) {
			continue
		}
		if shadow && r.SLOTTFTUs > 0 {
			judged++
			if us+r.DecidedUs-r.ArrivalUs <= r.SLOTTFTUs {
				wrong++
			}
		}
		if shadow && !followedToBound(r) {
			continue
		}
		n++
		if float64(us) <= r.Decision.P90Us {
			covered++
		}
	}
	a.Coverage90 = ratioOrNaN(float64(covered), float64(n))
	a.FalseShare = ratioOrNaN(float64(wrong), float64(judged))
	return a
}

// newcomer is how often a new prefix group is admitted compared with established groups, by second
// after its first arrival.
type newcomer struct {
	Ratio   []float64          // admission ratio, new / established; NaN without arrivals
	SecondS trace.Opt[float64] // the first second in which Ratio reaches 0.8
}

// leastRatio is the admitted share of a new prefix group, relative to that of the others, from which on its prefix
// counts as taken up.
const leastRatio = 0.8

// newcomerOf returns the admission of a prefix group compared with all other groups, from the
// group's first arrival to the end of the window; empty if it has no arrival.
func newcomerOf(all []record, group uint64, w window) newcomer {
	recs := inWindow(all, w)
	first := slices.IndexFunc(recs, func(r *record) bool { return r.Group == group })
	if first < 0 {
		return newcomer{}
	}
	from := recs[first].ArrivalUs
	var fresh, old []Class
	for _, r := range recs[first:] {
		s := int((r.ArrivalUs - from) / 1e6)
		for len(fresh) <= s {
			fresh = append(fresh, Class{})
			old = append(old, Class{})
		}
		if r.Group == group {
			fresh[s].addRecord(r, target{})
		} else {
			old[s].addRecord(r, target{})
		}
	}
	var out newcomer
	for s := range fresh {
		out.Ratio = append(out.Ratio, fresh[s].AdmittedShare()/old[s].AdmittedShare())
		if out.Ratio[s] >= leastRatio && !out.SecondS.OK {
			out.SecondS = trace.Some(float64(s))
		}
	}
	return out
}
