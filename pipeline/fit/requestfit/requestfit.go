// Package requestfit makes coefficients from what requests experienced when the
// steps of the engine were not traced: a client's timings, stock spans, or the
// means that a benchmark printed of a few load levels (spec#request-level).
//
// A Load is what one engine was asked in one stretch of time and what its
// clients measured; of a load level only means are known (Point). Fit takes
// loads of one configuration and a Prior, and goes through these steps:
//
//  1. A regression without any replay: the clients' stamps show which requests
//     were decoding when, which gives a first estimate of what that cost
//     (occupancy.go, regression.go).
//  2. Gauss-Newton through the simulator. For a given schedule every time of a
//     request is a linear function of the coefficients, so that one replay gives
//     residuals and exact derivatives (newton.go).
//  3. Optionally a derivative-free search of the directions that were learned,
//     kept only if held-out loads agree (search.go).
//  4. Recordings simulated with the answer show its bias and its uncertainty
//     (repeats.go, scatter.go).
//  5. A description: which directions the data decide, which the prior
//     (answer.go).
//
// Requests and Points are fit.Evidence: they make the loads of recorded runs, fit
// them, and judge the answer by requests that were held out. Inspect reports what
// the requests of a run could teach before any fit.
//
// Document turns a coefficient set on one deployment into the form of a fit;
// Choose picks the load levels that would teach most. Times are in
// microseconds unless a name ends in Ms.
package requestfit

import (
	"context"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
	BadPoints       trace.Code = "bad_points"
)

// Learned is what was learned from requests.
type Learned struct {
	Set        *coeff.Set           // values, covariance of the step time, intervals, evidence by term
	Level      *result.RequestLevel // how it was learned, for fit.json
	Names      []string             // of the free terms, target/term
	Covariance [][]float64
	directions []direction
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
		if err := load.checkMeasured(); err != nil {
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
	farther   = 3    // times an objective: the replays with it are clearly worse
)

// unbiased is the candidate without the bias of the equations, unless a search has led
// elsewhere, the recordings are not like the real one or the replays are clearly farther
// with it.
func (l *learner) unbiased(from *state, values []float64, u *result.RequestScatter, unsearched bool) (*state, error) {
	if !unsearched {
		return from, nil
	}
	next, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	took, answer := "bias taken off", next
	if u.StepFrac > mostStep || next.objective > farther*from.objective+manyTwins*from.twins {
		took, answer = "bias not taken off", from
	}
	l.passes = append(l.passes, result.RequestPass{Name: took, Objective: next.objective})
	return answer, nil
}

// widened is a covariance with the bias that was left in the answer as one more error.
func widened(covariance, answer, unbiased []float64) []float64 {
	n := len(answer)
	for k := range n {
		for i := range n {
			covariance[k*n+i] += (answer[k] - unbiased[k]) * (answer[i] - unbiased[i])
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
