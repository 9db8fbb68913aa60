package cluster

// This file is the admission policy predictive (spec#admission-predictive). Estimates of TTFT are
// calibrated with the ratios observed/estimated of earlier requests; a floor (floor.go) admits a
// share of each prefix group (requests with the same leading prompt blocks) whatever the estimate.

import (
	"math"
)

// predictive admits a request if its calibrated TTFT estimate meets the request's target
// (spec#admission-predictive).
//
// The estimate comes from a Rollout. It is multiplied by a quantile of the ratios observed / estimated
// of similar earlier requests, so that the share of admitted requests that miss their target stays
// below Eps. Before enough ratios were observed, it assumes that the request's own step is full and uses
// the quantile of the coefficient set's residuals.
type predictive struct {
	Estimate estimator
	Best     bool               // use the instance with the smallest estimate, not the router's choice
	Eps      map[string]float64 // tolerated share of misses by class; see eps for other classes
	// StandardUs is the TTFT target of class standard, by which the floor judges the first requests of
	// a new prefix group, us; 0: it admits none of them for being new.
	StandardUs int64
	Floor      *Floor // nil: none
	// Prior is the quantile of observed / estimated before enough are observed; nil for 1.
	Prior func(level float64) float64

	seen map[errorGroup]*ratios // of the requests whose first token was seen
}

// errorGroup is a group of requests whose ratios observed/estimated are pooled: same class, with or
// without work ahead of them, and estimates within the same factor of two (octave).
type errorGroup struct {
	class  int  // index in the ledger, or everybody
	queued bool // other requests were ahead
	octave int  // binary exponent of the estimate in us, or everybody
}

// everybody is the class of a group of all classes, and the octave of a group of all estimates.
const everybody = math.MinInt

// errorGroups returns the four groups to which a request with an estimated TTFT of us belongs, the
// narrowest first.
func errorGroups(class int, queued bool, us float64) [4]errorGroup {
	_, octave := math.Frexp(us)
	return [4]errorGroup{
		{class: class, queued: queued, octave: octave},
		{class: everybody, queued: queued, octave: octave},
		{class: class, queued: queued, octave: everybody},
		{class: everybody, queued: queued, octave: everybody},
	}
}

// epsStandard and epsShed are the tolerated shares of misses of classes that have none in Eps.
const (
	epsStandard = 0.05
	epsShed     = 0.10
)

// eps returns the tolerated share of misses of a class, in [0, 1].
func (p *predictive) eps(name string, priority int) float64 {
	if e, ok := p.Eps[name]; ok {
		return e
	}
	if priority >= 0 {
		return epsStandard
	}
	return epsShed
}

// Decide admits the request if its calibrated bound on the TTFT, at the level 1 - eps of its class,
// meets the target. Otherwise it may be admitted by the floor: as one of the first requests of a
// new prefix group, or on the group's credit.
func (p *predictive) Decide(r *Request, v *View, target int) (Decision, error) {
	estimate, err := p.Estimate.TTFT(r, v, target)
	if err != nil {
		return Decision{}, err
	}
	if p.Best {
		for i := range v.Snapshots {
			other, err := p.Estimate.TTFT(r, v, i)
			if err != nil {
				return Decision{}, err
			}
			if other.Us < estimate.Us {
				estimate = other
			}
		}
	}
	// Ratios are observed times over LikelyUs, the estimate that is right for most requests; Us, the
	// mean, includes prompts that may join the request's step (forecast.TTFT).
	likelyUs := estimate.LikelyUs
	groups := errorGroups(r.Class, estimate.Queued, likelyUs)
	eps := p.eps(r.ClassName, r.Priority)
	wide := groups[2:] // those of any estimate
	// With ByClass, engines serve by priority: classes wait for different queues, so the errors of
	// other classes predict less than errors of the same class at other lengths, and the second and
	// third group change places.
	if estimate.ByClass {
		groups[1], groups[2] = groups[2], groups[1]
		wide = []errorGroup{groups[1], groups[3]}
	}
	ratios := p.ratios(groups[:])
	// Before enough ratios are known, assume that other prompts fill the request's own step.
	upper := likelyUs
	if e, ok := p.Estimate.(fuller); ok && ratios == nil {
		full, err := e.FullTTFT(r, v, target)
		if err != nil {
			return Decision{}, err
		}
		upper = math.Max(likelyUs, full.Us)
	}
	decision := Decision{
		Admit:       true,
		Queued:      estimate.Queued,
		RawUs:       likelyUs,
		PredictedUs: estimate.Us * p.quantile(ratios, median),
		P90Us:       upper * p.quantile(ratios, 0.9),
		BoundUs:     upper * p.carefulQuantile(ratios, wide, 1-eps),
	}
	if r.SLOTTFTUs > 0 {
		decision.BudgetUs = float64(r.SLOTTFTUs - r.WaitedUs)
	}
	decision.MeetShare = math.NaN()
	if ratios != nil && r.SLOTTFTUs > 0 {
		decision.MeetShare = ratios.share((float64(r.SLOTTFTUs) - float64(r.WaitedUs)) / likelyUs)
	}
	cold := p.Floor.noteArrival(r, v.NowUs)
	if r.Priority >= criticalPriority || r.SLOTTFTUs == 0 || decision.BoundUs+float64(r.WaitedUs) <= float64(r.SLOTTFTUs) {
		return decision, nil
	}
	// The bound misses the target: only the floor may still admit the request. One of the first of a
	// new group needs a bound that would meet the target of class standard.
	standardUs := upper*p.carefulQuantile(ratios, wide, 1-p.eps("standard", 0)) + float64(r.WaitedUs)
	cost := float64(max(1, r.PromptTokens-v.CachedTokens(r, target))) // prompt tokens to compute
	open := !estimate.ByClass || !p.Floor.isPaused(v.NowUs)
	switch {
	case open && cold && p.StandardUs > 0 && standardUs <= float64(p.StandardUs) && p.Floor.spendBudget(v, cost):
		decision.Reason = reasonColdStart
	case open && p.Floor.hasCredit(r) && p.Floor.spendBudget(v, cost):
		p.Floor.chargeGroup(r)
		decision.Reason = reasonFloor
	default:
		decision.Admit, decision.Reason = false, reasonPredicted
	}
	return decision, nil
}

// fuller is an estimator that can also assume that the engine step with the request's own prefill
// is as full as possible. Its estimate is an upper bound that is used until enough errors were
// observed.
type fuller interface {
	FullTTFT(r *Request, v *View, instance int) (estimate, error)
}

// watcher is an estimator that learns when the steps of an engine ended, from observed first tokens.
type watcher interface {
	FirstToken(r *Request, v *View, instance int, atUs int64)
}

// Seen adds the ratio of observed to estimated time to all groups of the request, and passes the
// first token on to the floor and the estimator.
func (p *predictive) Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64) {
	if o, ok := p.Estimate.(watcher); ok {
		o.FirstToken(r, v, instance, atUs)
	}
	if d.Reason != "" && p.Floor != nil { // the floor admitted it
		p.Floor.noteFirstToken(r, atUs, tookUs)
	}
	if !(d.RawUs > 0) { // no estimate
		return
	}
	if p.seen == nil {
		p.seen = map[errorGroup]*ratios{}
	}
	for _, g := range errorGroups(r.Class, d.Queued, d.RawUs) {
		if p.seen[g] == nil {
			p.seen[g] = &ratios{}
		}
		p.seen[g].addRatio(float64(tookUs) / d.RawUs)
	}
}

// ratios returns the ratios of the first group of the list that has at least `enough` of them; nil
// if none has.
func (p *predictive) ratios(list []errorGroup) *ratios {
	for _, g := range list {
		if s := p.seen[g]; s != nil && len(s.sorted) >= enough {
			return s
		}
	}
	return nil
}

// carefulQuantile returns the larger of two quantiles: of the ratios in narrow, and of those of the
// first group in wide that has enough of them. When an engine reaches max_num_seqs, estimates become longer than
// any before; their errors then resemble recent errors at other lengths more than old ones at the
// same length.
func (p *predictive) carefulQuantile(narrow *ratios, wide []errorGroup, level float64) float64 {
	if all := p.ratios(wide); all != nil {
		return math.Max(p.quantile(narrow, level), all.quantile(level))
	}
	return p.quantile(narrow, level)
}

// quantile returns a quantile of s, and of the prior if s is nil; 1 without a prior.
func (p *predictive) quantile(s *ratios, level float64) float64 {
	switch {
	case s != nil:
		return s.quantile(level)
	case p.Prior != nil:
		return p.Prior(level)
	}
	return 1
}
