package fit

// This file describes the columns of a linear model and makes package ridge's options of them.

import (
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Floors of the denominator of relative weights (spec#weights), us per step or request.
const (
	EpsBetaUs  = 50
	EpsAlphaUs = 1000
	EpsQueueUs = 100 // an instant queueing delay is the time between two stamps of one step
)

// RooflinePrior is the coefficient of a time-like term at the hardware's peak (spec#peaks), us/s.
const RooflinePrior = 1e6

// Term is one column of a linear model.
type Term struct {
	Name, Unit string  // Unit is that of the coefficient
	penalty    float64 // d_j of the objective (ridge.Options.Penalty)
	free       bool    // the coefficient may be negative
	IsTime     bool    // the feature is seconds of work at peak, so 1e6/coefficient is a utilisation
	PerUs      bool    // the feature is us of work at peak, so 1/coefficient is a utilisation
	Prompt     bool    // mostly work on prompt tokens
	Constant   bool    // the feature is 1 in every row, so one configuration determines it without varying it
	prior      float64 // prior value of the coefficient
}

// featureTerms returns the terms of a physics model over the given number of configurations, on which
// the penalty of constants depends. With PriorRoofline the prior of time-like terms is the hardware's
// peak, otherwise 0.
func featureTerms(fs []features.Feature, configs int, prior string) []Term {
	out := make([]Term, len(fs))
	for j := range fs {
		f := &fs[j]
		out[j] = Term{
			Name:    f.Name,
			Unit:    f.CoefficientUnit(),
			penalty: f.PenaltyIn(configs),
			free:    f.Free,
			IsTime:  f.IsTime(),
			Prompt:  f.Prompt,
		}
		if prior == PriorRoofline && f.IsTime() {
			out[j].prior = RooflinePrior
		}
	}
	return out
}

// alphaTerms returns the terms of a delay over the given number of configurations. Their seconds of
// work are nominal: a delay is work of the host, so a prior at the hardware's peak and a
// utilisation would mean nothing.
func alphaTerms(fs []features.Feature, configs int) []Term {
	out := featureTerms(fs, configs, PriorZero)
	for j := range out {
		out[j].IsTime = false
	}
	return out
}

// ridgeOptions returns the options of package ridge for a model with these terms.
func ridgeOptions(terms []Term, epsUs float64, o Options) ridge.Options {
	ro := ridge.DefaultOptions(len(terms))
	ro.EpsUs = epsUs
	ro.Free = make([]bool, len(terms))
	ro.Prior = make([]float64, len(terms))
	for j, t := range terms {
		ro.Penalty[j] = t.penalty
		ro.Free[j] = t.free
		ro.Prior[j] = t.prior
	}
	ro.Objective = ridge.Objective(o.Objective)
	ro.Workers = o.Workers
	ro.Draws = o.Bootstraps
	ro.Seed = uint64(o.Seed)
	return ro
}
