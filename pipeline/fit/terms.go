package fit

import (
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Constants of the weights (spec#weights), us per step.
const (
	EpsBetaUs      = 50
	EpsAlphaUs     = 1000
	EpsAdmissionUs = 1e6
)

// RooflinePrior is the coefficient of a time-like term at the hardware's peak (spec#peaks), us/s.
const RooflinePrior = 1e6

// Term is one column of a linear model, for ridge and for people.
type Term struct {
	Name, Unit string
	penalty    float64
	free       bool
	IsTime     bool    // value in seconds: 1e6/coefficient is a utilisation
	PerUs      bool    // value in us at peak: 1/coefficient is a utilisation
	Prompt     bool    // mostly work on prompt tokens
	Constant   bool    // 1 in every row: one configuration's level shows it, its variation cannot
	prior      float64 // prior coefficient
}

// FeatureTerms are the terms of a physics model over the given number of configurations.
func FeatureTerms(fs []features.Feature, configs int, prior string) []Term {
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

// AlphaTerms are the terms of a delay over the given number of configurations.
// Their seconds are nominal: a delay is host work, so neither a prior at the
// hardware's peak nor a utilisation has a meaning.
func AlphaTerms(fs []features.Feature, configs int) []Term {
	out := FeatureTerms(fs, configs, PriorZero)
	for j := range out {
		out[j].IsTime = false
	}
	return out
}

// NominalTerm is the time-like term whose second is nominal, not the hardware's.
const NominalTerm = "fixed_step_overhead"

// RidgeOptions are the options of a model over the given terms.
func RidgeOptions(terms []Term, epsUs float64, o Options) ridge.Options {
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
