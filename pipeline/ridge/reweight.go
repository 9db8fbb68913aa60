package ridge

// This file turns a least-squares fit into the one that is published, by fits with weights that depend
// on the fit before.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/par"
)

// Constants of the reweighting passes (spec#reweighting).
const (
	reweightPasses = 6
	minRelError    = 0.01 // relative error below which weights grow no further
	maxBiasGrowth  = 0.01 // of |bias|, up to which the reweighted fit is kept
)

// Polish is a fit before and after the reweighting passes, and which of the two is kept.
type Polish struct {
	Fit     Fit       // after the passes
	LS      Fit       // before
	Weights []float64 // of the last pass, one per row
	Passes  int
	Bias    float64 // sum(prediction - y)/sum y after the passes; NaN if all targets are 0
	BiasLS  float64 // before
	Kept    bool    // |Bias| is known and did not grow by more than 0.01
}

// Best returns the fit to publish.
func (p *Polish) Best() Fit {
	if p.Kept {
		return p.Fit
	}
	return p.LS
}

// Reweight returns a fit moved from squared toward absolute relative errors (spec#reweighting): six
// passes with weights w/max(|y - x.beta|/max(y, eps*steps), 0.01), w the base weights. W, s and
// ybar are computed again in every pass; lambda stays.
func Reweight(d *Data, w []float64, ls Fit, o Options) (Polish, error) {
	p := Polish{LS: ls, Fit: ls, Weights: make([]float64, len(w))}
	p.BiasLS = bias(d, ls.Beta)
	rows := d.AllRows()
	for p.Passes < reweightPasses {
		reweight(d, w, p.Fit.Beta, o, p.Weights)
		fit, err := Solve(OfRows(d, p.Weights, rows, o.Threads()), ls.Lambda, o)
		if err != nil {
			return p, fmt.Errorf("reweighting pass %d: %w", p.Passes+1, err)
		}
		p.Fit = fit
		p.Passes++
	}
	p.Bias = bias(d, p.Fit.Beta)
	p.Kept = math.Abs(p.Bias)-math.Abs(p.BiasLS) <= maxBiasGrowth
	return p, nil
}

// FitPublished returns the fit to publish of all rows with weights w at one lambda. With
// Options.Posterior that is the posterior mean (spec#posterior), with Options.Proportional the
// robust mean (spec#delay-weights), and Polish is nil; otherwise it is the least-squares fit after
// the reweighting passes (spec#reweighting).
func FitPublished(d *Data, w []float64, lambda float64, o Options) (Fit, *Polish, error) {
	ls, err := FitRows(d, w, nil, lambda, o)
	if err != nil {
		return ls, nil, err
	}
	if o.Posterior {
		fit, err := PosteriorMean(d, ls, o)
		return fit, nil, err
	}
	if o.Proportional {
		fit, err := robustMean(d, ls, o)
		return fit, nil, err
	}
	p, err := Reweight(d, w, ls, o)
	if err != nil {
		return ls, nil, err
	}
	return p.Best(), &p, nil
}

// reweight writes the weights of the pass after beta to out: w divided by the relative error of the
// row.
func reweight(d *Data, w, beta []float64, o Options, out []float64) {
	par.Each(o.Threads(), (len(w)+ChunkRows-1)/ChunkRows, func(_, c int) {
		for i := c * ChunkRows; i < min(len(w), (c+1)*ChunkRows); i++ {
			rel := math.Abs(d.Y[i]-Dot(d.Row(i), beta)) / d.BaseOf(i, o.EpsUs)
			out[i] = w[i] / math.Max(rel, minRelError)
		}
	})
}

// bias returns the relative error of the summed predictions: sum(x.beta - y)/sum y. It is NaN where all
// targets are 0, as those of waits whose stamps are rounded to more than they last.
func bias(d *Data, beta []float64) float64 {
	var diff, sum float64
	for i, y := range d.Y {
		diff += Dot(d.Row(i), beta) - y
		sum += y
	}
	if sum == 0 {
		return math.NaN()
	}
	return diff / sum
}

// posteriorPasses is how often PosteriorMean refits; after that predictions and their weights
// agree.
const posteriorPasses = 3

// PosteriorMean returns a new fit with a prior at fit's lambda, with weights from the predictions
// of the fit before: the mean of the coefficients given these rows. Weights that contain the target
// would pull it toward rows with small targets.
func PosteriorMean(d *Data, fit Fit, o Options) (Fit, error) {
	for range posteriorPasses {
		next, err := FitRows(d, predictionWeights(d, fit.Beta, o), nil, fit.Lambda, o)
		if err != nil {
			return fit, fmt.Errorf("posterior mean: %w", err)
		}
		fit = next
	}
	return fit, nil
}

// Constants of the robust mean (spec#delay-weights).
const (
	robustPasses = 12
	robustError  = 0.5 // relative error up to which a row counts in full
)

// robustMean returns a new fit at fit's lambda with weights from the predictions of the fit before,
// so that the sums of predictions and targets agree. A row that is more than half its prediction
// away counts by its absolute error, because a few requests that met a queue which the recorded
// state did not show yet would otherwise decide the predictions of all others.
func robustMean(d *Data, fit Fit, o Options) (Fit, error) {
	for pass := range robustPasses {
		w := robustPredictionWeights(d, fit.Beta, o, robustError)
		next, err := FitRows(d, w, nil, fit.Lambda, o)
		if err != nil {
			return fit, fmt.Errorf("robust mean, pass %d: %w", pass+1, err)
		}
		fit = next
	}
	return fit, nil
}
