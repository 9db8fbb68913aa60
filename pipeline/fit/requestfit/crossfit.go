package requestfit

// This file fits a recording again without one block of time each (spec#cross-fitting), so that
// validation can replay every block with coefficients that were not fitted to it.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// crossFit returns the fits of the loads that each leave out one block of time
// (spec#cross-fitting). There are none for load levels, and if nothing is left to fit without one
// of the blocks.
//
// Each is a fit of the other blocks' requests from the prior, made as the answer is made of all
// requests, except for the search and the simulated recordings: it estimates its own weights and
// decides by itself whether the regression's equations are used. It does not begin at the answer:
// the answer was fitted to the block too, and one block unlike the others can decide it.
func (c *collection) crossFit(answer *Learned) (cross *result.CrossFits, found []trace.Finding, err error) {
	if len(c.whole) == 0 || answer.equations == nil {
		return nil, nil, nil
	}
	cross = &result.CrossFits{}
	for _, l := range c.whole {
		cross.Blocks = append(cross.Blocks, l.blocks())
	}
	parts := make([][]*Load, result.CrossFolds)
	for block := range parts {
		for i, l := range c.whole {
			parts[block] = append(parts[block], l.without(&cross.Blocks[i], block))
		}
		if countMeasured(parts[block]) == 0 {
			return nil, []trace.Finding{trace.Findingf(fit.CodeFewRows,
				"no request was measured outside one of %d blocks of time: replays are judged by the last share of each phase alone",
				result.CrossFolds)}, nil
		}
	}
	cross.Fits = make([]result.CrossFit, len(parts))
	l := answer.equations.learner
	err = par.Try(l.ctx, l.Workers, len(parts), func(block int) error {
		set, err := l.crossFitted(parts[block])
		if err != nil {
			return fmt.Errorf("cross-fitting without block %d of %d: %w", block+1, result.CrossFolds, err)
		}
		on := features.On(set, c.deployment)
		f := &cross.Fits[block]
		*f = result.CrossFit{Learned: countMeasured(parts[block]), Beta: coeff.Values(on.Beta), Alpha: []result.CrossAlpha{}}
		for i := range on.Alpha {
			f.Alpha = append(f.Alpha, result.CrossAlpha{
				Target: on.Alpha[i].Target,
				Values: coeff.Values(on.Alpha[i].Coefficients),
			})
		}
		return nil
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	return cross, nil, nil
}

// crossFitted returns the fit of loads that lack a part of what was measured, with the options and
// the prior of l. It begins at the regression of these loads and makes Gauss-Newton steps until
// they gain no more than jittered copies of the loads differ by (settled). The fit of all loads
// also follows smaller gains, which takes three to four times as many replays and ends at the same
// predictions.
func (l *learner) crossFitted(loads []*Load) (*coeff.Set, error) {
	own := &learner{Options: l.Options, ctx: l.ctx, loads: loads, m: l.m}
	for _, load := range loads {
		own.twins = append(own.twins, twinsOf(load, l.Options))
	}
	values, seen, err := own.anchored()
	if err != nil {
		return nil, err
	}
	start, err := own.assess(loads, own.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	own.stamps = seen
	found, err := own.settled(start)
	if err != nil {
		return nil, err
	}
	if seen == nil {
		return l.m.setOf(found.values), nil
	}
	// The regression knows neither preemptions nor waits for KV blocks. Where replays alone could fit
	// clearly better, the steps are repeated without its equations and the better end is used.
	own.stamps = nil
	if gains, err := own.couldGain(found, leastGain); err != nil || !gains {
		return l.m.setOf(found.values), err
	}
	without, err := own.settled(start)
	if err != nil {
		return nil, err
	}
	if without.objective < (1-leastGain)*found.objective {
		found = without
	}
	return l.m.setOf(found.values), nil
}

// settled takes Gauss-Newton steps until one gains no more than the objective scatters by with the send times
// of the requests, and returns the best state. A step that loses more than that is shortened.
func (l *learner) settled(best *state) (*state, error) {
	damping := 0.0
	for pass := 0; pass < l.Passes && damping <= mostDamping && !l.isSpent(); pass++ {
		values, err := l.step(best, l.weigh(best), damping)
		if err != nil {
			return nil, err
		}
		next, err := l.assess(l.loads, l.twins, values, 0, true)
		if err != nil {
			return nil, err
		}
		// The standard error of the objective, a mean over the jittered copies.
		noise := best.twins / math.Sqrt(float64(max(1, l.Twins)))
		gain := best.objective - next.objective
		if gain < -noise { // the step was too long: shorten it
			damping = math.Max(leastDamping, 10*damping)
			continue
		}
		damping /= 10
		if gain > 0 {
			best = next
		}
		if gain < math.Max(noise, leastStepGain*best.objective) {
			break
		}
	}
	return best, nil
}

// couldGain reports whether, by the normal equations of a state, a step from it would reduce the squared error of
// its replays by a share or more.
func (l *learner) couldGain(s *state, share float64) (bool, error) {
	e := l.weigh(s)
	values, err := l.step(s, e, 0)
	if err != nil {
		return false, err
	}
	return e.sum.SSE(values) < (1-share)*e.sum.SSE(s.values), nil
}

// blocks returns the blocks of equal length into which the time from the first to the last request
// of a load is divided for cross-fitting. Requests within the longest latency of a block that is
// left out are left out too, because they ran together with its own.
func (l *Load) blocks() result.CrossBlocks {
	longestUs := 0.0
	for i := range l.Requests {
		longestUs = max(longestUs, l.endUs(i)-float64(l.sent(i)))
	}
	first := l.OriginNs + 1000*l.sent(0)
	last := l.OriginNs + 1000*l.sent(len(l.Requests)-1)
	return result.NewCrossBlocks(l.Run, l.Phase, first, last, trace.Ns(longestUs))
}

// without returns the load without what was measured in a block, and without the times of requests
// in its embargo (the time near a block within which nothing is used). All requests still run,
// because they share steps with the others.
func (l *Load) without(b *result.CrossBlocks, block int) *Load {
	out := *l
	out.Seen = slices.Clone(l.Seen)
	out.Stamps = slices.Clone(l.Stamps)
	for i := range l.Requests {
		ns := l.OriginNs + 1000*l.sent(i)
		if b.Block(ns) == block {
			unsee(out.Stamps, i)
		}
		if !b.Teaches(block, ns) {
			unsee(out.Seen, i)
		}
	}
	return &out
}

// countMeasured returns the number of requests that have a measured time.
func countMeasured(loads []*Load) int {
	n := 0
	for _, l := range loads {
		for i := range l.Seen {
			if isMeasured(&l.Seen[i]) {
				n++
			}
		}
	}
	return n
}

// endUs returns the last moment at which the load's client saw request i, us, on the clock of sent.
func (l *Load) endUs(i int) float64 {
	end := float64(l.sent(i))
	for _, us := range [...]float64{l.first(i), l.last(i), float64(l.sent(i)) + l.stamps(i).E2EUs} {
		if us > end { // false for NaN
			end = us
		}
	}
	return end
}

// unsee removes what was measured of a request, where the list has it.
func unsee(all []sim.Measured, i int) {
	if i < len(all) {
		all[i] = sim.Measured{TTFTUs: math.NaN(), SpanUs: math.NaN(), E2EUs: math.NaN()}
	}
}
