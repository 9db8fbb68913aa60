package learn

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Learned is what was learned from requests.
type Learned struct {
	Set        *coeff.Set // values, covariance of the step time, intervals, evidence by term
	Prior      string
	Passes     []Pass
	Directions []Direction
	Objective  float64  // of the fit, mean over loads
	Floor      float64  // standard deviation of the objective over jittered twins
	SpanError  float64  // of one span whose steps are known, relative; NaN without
	TTFTError  float64  // of one TTFT that waited for no other prompt
	Scatter    *Scatter // nil: of points
	Calls      int      // objectives
	Steps      int64    // simulated, recordings included

	Names      []string // of the free terms, target/term
	Covariance [][]float64
}

// Fit learns the coefficients of one configuration from what its requests
// experienced. All loads are of that configuration. Codes: nothing_measured,
// those of the simulator and of the features.
func Fit(ctx context.Context, loads []*Load, prior *Prior, o Options) (*Learned, error) {
	if len(loads) == 0 {
		return nil, trace.Errorf(NothingMeasured, "requests: got no load, want at least one")
	}
	l := &learner{Options: o, ctx: ctx, loads: loads}
	for _, load := range loads {
		if err := load.check(); err != nil {
			return nil, err
		}
		l.twins = append(l.twins, twinsOf(load, o))
	}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	start, seen, err := l.anchored()
	if err != nil {
		return nil, err
	}
	best, e, err := l.best(start, seen)
	if err != nil {
		return nil, err
	}
	found, err := l.search(best, e)
	if err != nil {
		return nil, err
	}
	if loads[0].Point != nil { // a point's error is known beforehand
		post, err := l.posterior(e)
		if err != nil {
			return nil, err
		}
		return l.learned(found, post, nil), nil
	}
	values, post, scatter, err := l.refitted(found)
	if err != nil {
		return nil, err
	}
	answer, err := l.unbiased(found, values, scatter, found == best)
	if err != nil {
		return nil, err
	}
	if answer != found {
		return l.learned(answer, post, scatter), nil
	}
	if post, err = l.posterior(e); err != nil {
		return nil, err
	}
	return l.learned(found, widened(post, found.values, values), scatter), nil
}

const (
	manyTwins = 5    // standard deviations over twins that are no chance
	mostStep  = 0.25 // scatter of steps above which they are no longer like even noise around a mean
	farther   = 3    // times an objective that says a fit is of something else
)

// unbiased is the candidate without the bias of the equations, unless a search has led
// elsewhere, the recordings are not like the real one or the replays are clearly farther
// with it.
func (l *learner) unbiased(from *state, values []float64, u *Scatter, unsearched bool) (*state, error) {
	if !unsearched {
		return from, nil
	}
	next, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	if u.StepFrac > mostStep || next.objective > float64(farther*from.objective)+float64(manyTwins*from.twins) {
		l.passes = append(l.passes, Pass{Name: "bias not taken off", Objective: next.objective})
		return from, nil
	}
	l.passes = append(l.passes, Pass{Name: "bias taken off", Objective: next.objective})
	return next, nil
}

// widened is a covariance with the bias that was left in the answer as one more error.
func widened(covariance, answer, unbiased []float64) []float64 {
	n := len(answer)
	for k := range n {
		for i := range n {
			covariance[k*n+i] += float64((answer[k] - unbiased[k]) * (answer[i] - unbiased[i]))
		}
	}
	return covariance
}

// leastGain is by how much a fit that does without the regression's evidence must be
// nearer to take its place.
const leastGain = 0.1

// best is where the passes lead from the regression's answer: with its evidence, or
// without, should that be clearly nearer. Preemptions and waits for KV blocks are
// seen by the simulator alone.
func (l *learner) best(values []float64, seen *evidence) (*state, evidence, error) {
	start, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, evidence{}, err
	}
	l.stamps, l.seen = seen, seen
	with, e, err := l.newton(start)
	if err != nil || seen == nil {
		return with, e, err
	}
	l.stamps = nil
	without, other, err := l.newton(start)
	if err != nil {
		return nil, e, err
	}
	if without.objective < (1-leastGain)*with.objective {
		return without, other, nil
	}
	l.stamps = seen
	return with, *seen, nil
}

// twinsOf are jittered copies of a load; a closed loop sends by itself, its copies
// are the load itself.
func twinsOf(l *Load, o Options) [][]sim.Request {
	return sim.Twins(l.Requests, max(1, o.Twins), o.JitterUs, o.Seed)
}

// learned describes the answer.
func (l *learner) learned(s *state, post []float64, u *Scatter) *Learned {
	n := len(l.m.free)
	out := &Learned{Set: l.m.setOf(s.values), Prior: l.m.name, Passes: l.passes, Objective: s.objective, Floor: s.twins,
		SpanError: math.NaN(), TTFTError: math.NaN(), Calls: l.calls, Steps: l.steps.Load(), Names: l.m.names, Scatter: u}
	if l.seen != nil {
		out.SpanError, out.TTFTError = l.seen.errors[rowSpan], l.seen.errors[rowTTFT]
	}
	for k := range n {
		out.Covariance = append(out.Covariance, post[k*n:(k+1)*n])
	}
	l.describe(out, s)
	out.Directions = l.directions(s.values, post)
	return out
}

// posterior is the covariance of the free terms after the evidence.
func (l *learner) posterior(e evidence) ([]float64, error) {
	n := len(l.m.free)
	information := make([]float64, n*n)
	for k := range information {
		information[k] = e.sum.G[k]/(e.variance*e.design) + l.m.precision[k]
	}
	return l.m.inverse(information)
}

// inverse of an information matrix of the free terms.
func (m *model) inverse(information []float64) ([]float64, error) {
	out := stat.Inverse(information, len(m.free))
	if out == nil {
		return nil, trace.Errorf(coeff.ImpossibleCoefficient, "prior %s: got an information matrix that is singular", m.name).
			WithHint("is every request or load level of the one deployment, and its times in the unit stated?")
	}
	return out, nil
}

// normal95 is half the width of a 95 % interval in standard errors.
const normal95 = 1.959963984540054

// describe puts intervals and evidence on the terms. One that no time of any load depends
// on is the prior's, though it moves with others where the prior has them go together.
func (l *learner) describe(out *Learned, s *state) {
	n := len(s.values)
	for k, v := range s.values {
		c := l.m.at(out.Set, k)
		half := float64(normal95 * math.Sqrt(out.Covariance[k][k]))
		c.CI95, c.CI95Given = &[2]float64{math.Max(0, v-half), v + half}, coeff.GivenPrior
		share := 1 - out.Covariance[k][k]/(l.m.sd[k]*l.m.sd[k])
		if !slices.ContainsFunc(s.blocks, func(b *ridge.Gram) bool { return b.G[k*n+k] > 0 }) {
			share = 0
		}
		switch {
		case share > 0.9:
			c.Identified, c.Evidence = coeff.Within, "data"
		case share < 0.1:
			c.Identified, c.Evidence = coeff.PriorOnly, "prior"
		default:
			c.Identified, c.Evidence = coeff.Within, fmt.Sprintf("data %.2f, prior %.2f", share, 1-share)
		}
	}
	out.Set.Covariance = make([][]float64, len(out.Set.Beta))
	for j := range out.Set.Covariance {
		out.Set.Covariance[j] = make([]float64, len(out.Set.Beta))
	}
	for k := range l.m.beta {
		for i := range l.m.beta {
			out.Set.Covariance[l.m.free[k]][l.m.free[i]] = out.Covariance[k][i]
		}
	}
}

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
	BadPoints       trace.Code = "bad_points"
)
