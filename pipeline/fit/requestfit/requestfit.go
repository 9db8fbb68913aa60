// Package requestfit fits coefficients to measured times of requests when the
// steps of the engine were not traced: a client's timings, stock spans (those of
// an unmodified vLLM), or the means that a benchmark printed of a few load levels
// (spec#request-level).
//
// A Load is the requests that arrived at one engine in one interval of time and
// the times that its clients measured; of a load level only means are known
// (Point). Fit takes loads of one configuration and a Prior, in these steps:
//
//  1. A regression without any replay: the clients' stamps show which requests
//     were decoding when, which gives a first estimate of the coefficients
//     (occupancy.go, regression.go).
//  2. Gauss-Newton through the simulator. For a given schedule every time of a
//     request is a linear function of the coefficients, so that one replay gives
//     residuals and exact derivatives (newton.go).
//  3. Optionally a derivative-free search along those directions in coefficient
//     space that the data determine. Its answer is used only if it also lowers the
//     error of loads that were held out (search.go).
//  4. The bias and the uncertainty of the answer, from fits to recordings that were
//     simulated with it (repeats.go, scatter.go).
//  5. A description: which directions in coefficient space the data determine, and
//     which the prior (answer.go).
//
// Requests and Points are fit.Evidence: they make the loads of recorded runs, fit
// them, and validate the answer on requests that were held out. Inspect reports,
// before any fit, which coefficients the requests of a run can determine.
//
// Document turns a coefficient set on one deployment into the form of a fit;
// Choose picks the most informative load levels to measure. Times are in
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

// Learned is the result of a fit of loads.
type Learned struct {
	Set        *coeff.Set           // values, covariance of the step time, intervals, evidence by term
	Level      *result.RequestLevel // how it was fitted, for fit.json
	Names      []string             // of the free terms (those that a fit may change), target/term
	Covariance [][]float64          // of the errors of the free terms
	directions []direction          // independent combinations of the free terms, best determined first
	share      *shareEstimate       // of cached prompt tokens; nil: stated
	equations  *repeats             // with the learner of the fit; nil for load levels
}

// Fit returns the coefficients of one configuration fitted to the measured times of its requests.
// All loads have to be of that configuration. Codes: nothing_measured, and those of the simulator
// and of the features.
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
	// The steps of the package comment: regression, Gauss-Newton, search, bias and uncertainty.
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
	if loads[0].Point != nil { // errors of points are constants, see pointTPOTSD: nothing is simulated
		post, err := l.posterior(e)
		if err != nil {
			return nil, err
		}
		if o.valuesAlone {
			return l.learned(found, post, nil), nil
		}
		return l.learnedWithShare(found, post, nil)
	}
	r, post, err := l.refitted(found)
	if err != nil {
		return nil, err
	}
	answer, err := l.biasRemoved(found, r.values, &r.scatter, found != best)
	if err != nil {
		return nil, err
	}
	// The covariance of refitted is that of the corrected answer. An answer that keeps its bias has that of the
	// Gauss-Newton equations, widened by the bias.
	var out *Learned
	if answer != found {
		out, err = l.learnedWithShare(answer, post, &r.scatter)
	} else {
		if post, err = l.posterior(e); err != nil {
			return nil, err
		}
		out, err = l.learnedWithShare(found, widened(post, found.values, r.values), &r.scatter)
	}
	if err != nil {
		return nil, err
	}
	out.equations = r
	return out, nil
}

// Limits of a bias correction (spec#request-intervals). Beyond them, simulated recordings are not like the
// real one, so that the bias estimated from them is not the real one either. Twins are copies of a load with
// jittered send times (twinsOf).
const (
	mostObjectiveRatio = 1.5  // of the corrected answer's objective to the old one
	moreByDeviations   = 5    // standard deviations of the old objective over twins that may be added to that
	mostStepScatter    = 0.25 // of step times, as a share
)

// biasRemoved returns the answer without the bias of the equations: the state of values, the corrected
// coefficients. It returns from, the uncorrected answer, if a search has moved it away from where the equations
// have that bias (isSearched), or if the correction exceeds its limits.
func (l *learner) biasRemoved(from *state, values []float64, scatter *result.RequestScatter, isSearched bool) (*state, error) {
	if isSearched {
		return from, nil
	}
	corrected, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	limit := mostObjectiveRatio*from.objective + moreByDeviations*from.twins
	if scatter.StepFrac > mostStepScatter || corrected.objective > limit {
		l.passes = append(l.passes, result.RequestPass{Name: "bias not taken off", Objective: corrected.objective})
		return from, nil
	}
	l.passes = append(l.passes, result.RequestPass{Name: "bias taken off", Objective: corrected.objective})
	return corrected, nil
}

// widened returns the covariance plus the square of the bias that was left in the answer.
func widened(covariance, answer, unbiased []float64) []float64 {
	n := len(answer)
	for k := range n {
		for i := range n {
			covariance[k*n+i] += (answer[k] - unbiased[k]) * (answer[i] - unbiased[i])
		}
	}
	return covariance
}

// leastGain is by how much, as a share, the objective without the regression's equations must be
// lower for that answer to be taken.
const leastGain = 0.1

// best starts the Gauss-Newton passes at values, the answer of the regression, once with the
// regression's equations (seen; nil: the loads have none) and once without, and returns the better
// end with the evidence behind it. The regression does not know preemptions and waits for KV blocks, so
// its equations can lead astray: where its answer has a larger objective than the prior, the passes
// start at the prior instead.
func (l *learner) best(values []float64, seen *evidence) (*state, evidence, error) {
	start, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, evidence{}, err
	}
	if seen != nil {
		prior, err := l.assess(l.loads, l.twins, l.m.mean, 0, true)
		if err != nil {
			return nil, evidence{}, err
		}
		if prior.objective < start.objective {
			l.passes = append(l.passes, result.RequestPass{Name: "start", Objective: start.objective})
			start = prior
		}
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
	// The evidence of the answer is the regression's alone: both kinds of equations are of the same measured
	// times.
	l.stamps = seen
	return with, *seen, nil
}
