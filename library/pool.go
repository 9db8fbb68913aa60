package library

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// poolTerms fits every family again with the terms of all families of its kind as
// the prior: each term is pulled towards the median over GPUs and weights as
// strongly as it is the same there. How strongly altogether each family decides by
// leaving models out.
func poolTerms(families []*fitted) error {
	for _, moe := range []bool{false, true} {
		var kind []*fitted
		for _, f := range families {
			if f.family.MoE == moe {
				kind = append(kind, f)
			}
		}
		if len(kind) < 3 {
			continue
		}
		common, spread := libraryBetween(kind)
		for _, f := range kind {
			o := termOptions(betaSlots)
			o.Prior = common
			for j := range o.Penalty {
				o.Penalty[j] = 1 / math.Max(spread[j]*spread[j], 1e-4)
			}
			least := slices.Min(o.Penalty)
			for j := range o.Penalty {
				o.Penalty[j] /= least
			}
			fit, err := f.solve(o)
			if err != nil {
				return err
			}
			f.beta, f.lambda, f.options = fit.Beta, fit.Lambda, o
		}
	}
	return nil
}

// libraryBetween are the median of every term over families and how far they lie from
// it, as a share of a step's time.
func libraryBetween(kind []*fitted) (common, spread []float64) {
	common, spread = make([]float64, betaSlots), make([]float64, betaSlots)
	for j := range common {
		var values, off []float64
		for _, f := range kind {
			values = append(values, f.beta[j])
		}
		common[j] = stat.Median(values)
		for _, f := range kind {
			s, ybar := f.gram.Scale()
			off = append(off, math.Abs(f.beta[j]-common[j])*s[j]/ybar)
		}
		spread[j] = stat.Mean(off)
	}
	return common, spread
}

// betweenModels is the covariance of a new model's coefficients about the
// family's: each model of the design is fitted alone with the family as its
// prior, and what the terms then leave of it is the rest.
func (f *fitted) betweenModels() error {
	f.covariance = make([][]float64, betaSlots)
	for j := range f.covariance {
		f.covariance[j] = make([]float64, betaSlots)
	}
	o := f.options
	o.Prior = f.beta
	w := ridge.Weights(&f.Data, o)
	n := float64(len(f.models))
	for m := range f.models {
		var rows []int32
		for i, c := range f.Config {
			if c == int32(m) {
				rows = append(rows, int32(i))
			}
		}
		own, err := ridge.FitRows(&f.Data, w, rows, ownLambda, o)
		if err != nil {
			return err
		}
		for j := range f.covariance {
			for k := range f.covariance {
				f.covariance[j][k] += (own.Beta[j] - f.beta[j]) * (own.Beta[k] - f.beta[k]) / n
			}
		}
	}
	for j, b := range f.beta {
		f.covariance[j][j] += square(leastShare * b)
	}
	return nil
}

const (
	ownLambda  = 1e-3 // how strongly a model's own fit is held to its family
	leastShare = 0.02 // standard error of a term below which no family claims to know it
)

func square(v float64) float64 { return float64(v * v) }
