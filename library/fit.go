package library

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// fitted is what one family's tables come to.
type fitted struct {
	*design
	tables     *Tables
	beta       []float64   // us/s, kernels alone
	covariance [][]float64 // between models
	lambda     float64
	options    ridge.Options // of the last fit
	gram       *ridge.Gram   // of balanced weights
	regimes    [learn.NumRegimes]quality
}

// quality is how well the terms hold the tables in one regime.
type quality struct {
	Rows            int
	MedianAPE       float64 // median relative error over all rows
	Bias            float64 // mean signed relative error
	Worst           float64 // mean relative error of the worst deployment
	WorstDeployment string
}

// termOptions are those of a family without a prior.
func termOptions(p int) ridge.Options {
	o := ridge.DefaultOptions(p)
	o.EpsUs, o.Objective, o.SkipNested = 1, ridge.Cross, true
	return o
}

// solve fits one table: lambda by leaving models out, then towards the least
// relative error.
func (t *design) solve(o ridge.Options) (ridge.Fit, error) {
	w := ridge.Weights(&t.Data, o)
	sel, err := ridge.Select(&t.Data, o)
	if err != nil {
		return ridge.Fit{}, err
	}
	fit, _, err := ridge.FitPublished(&t.Data, w, sel[0].Lambda, o)
	return fit, err
}

// fit evaluates the family's design points and fits them; without any it has no rows.
func (f *fitted) fit(o *Options) error {
	t, err := tableOf(f.tables, f.family, o)
	if err != nil || len(t.Y) == 0 {
		return err
	}
	f.design = t
	f.options = termOptions(betaSlots)
	f.gram = ridge.OfRows(&t.Data, ridge.Weights(&t.Data, f.options), nil, 1)
	fit, err := t.solve(f.options)
	if err != nil {
		return err
	}
	f.beta, f.lambda = fit.Beta, fit.Lambda
	return nil
}

// assess compares the fit with its own tables.
func (f *fitted) assess() {
	pred := ridge.Predict(&f.Data, f.beta)
	for r := range learn.NumRegimes {
		byRun := make([][]float64, len(f.deps))
		q := &f.regimes[r]
		for i, y := range f.Y {
			if f.Regime[i] == r {
				e := pred[i]/y - 1
				byRun[f.Run[i]] = append(byRun[f.Run[i]], math.Abs(e))
				q.Bias += e
				q.Rows++
			}
		}
		q.Bias /= float64(max(1, q.Rows))
		q.MedianAPE = stat.Median(slices.Concat(byRun...))
		for run, es := range byRun {
			if m := stat.Mean(es); m > q.Worst {
				q.Worst, q.WorstDeployment = m, f.deps[run].Label()
			}
		}
	}
}

var betaSlots = len(features.BetaFeatures(features.V12))
