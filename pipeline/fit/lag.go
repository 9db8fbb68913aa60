package fit

// This file measures the lag of a run: how many steps lie between the call of schedule() that planned
// a batch and the batch's execution (spec#lag). Where it cannot be measured, it is 1 with asynchronous
// scheduling, else 0.

import (
	"context"
	"errors"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// chooseLag measures the lag between scheduling and execution of one run, or assumes it from
// async_scheduling.
func (p *Run) chooseLag(ctx context.Context, steps *rows.Steps, space *features.Space, o Options) error {
	assumed := rows.AssumedLag(steps.Run, steps.Dep)
	p.Lag = result.RunLag{Lag: assumed}
	// Only a cadence, the time between two starts of steps, has to be assigned to a batch. A duration
	// is recorded with its own step.
	if o.BetaTarget != coeff.Cadence || steps.Quality.Recorded == 0 {
		p.Lag.Lag = 0
		return nil
	}
	e, err := steps.LagEvidence(ctx, space, rows.Options{Target: coeff.Cadence, Gamma: features.DefaultGamma}, o.Workers)
	if err != nil {
		return err
	}
	// Each lag assigns the intervals between steps to other batches. At the right one prompt steps are
	// predicted best.
	errs := make([]float64, reconstruct.Lags) // MAPE, by lag
	workers := 1                              // of a long run one table is in memory at a time
	if e.KeepsRows() {
		workers = o.Workers
	}
	err = par.Try(ctx, workers, len(errs), func(lag int) error {
		train, test, err := e.At(lag)
		if err == nil {
			errs[lag] = lagError(train, test, space, o)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	best, second := twoSmallest(errs)
	measured := e.N() >= reconstruct.LagRows && second >= 0 && errs[best] <= reconstruct.LagMargin*errs[second]
	verdict := "not_measurable"
	if measured {
		verdict = "measured"
		p.Lag = result.RunLag{Lag: best, Measured: true}
	}
	for lag := range errs {
		p.Evidence = append(p.Evidence, result.LagEvidence{Run: p.Src.ID, Lag: lag, HoldoutMAPEPrefill: result.OrNull(errs[lag]),
			N: e.N(), Verdict: verdict})
	}
	switch {
	case o.Lag != nil:
		p.Lag = result.RunLag{Lag: *o.Lag, Measured: measured && best == *o.Lag}
	case !measured:
		p.Findings = append(p.Findings, trace.Finding{Code: LagUncertain, Message: report.LagAssumed(p.Src.ID, e.N(), assumed)})
	case best != assumed:
		p.Findings = append(p.Findings, trace.Finding{Code: LagUncertain, Message: report.LagUnlikeConfig(p.Src.ID, best, assumed)})
	}
	return nil
}

// lagError returns the MAPE on the test intervals of a fit to the training rows; NaN if there are too
// few rows.
func lagError(train, test *rows.Table, space *features.Space, o Options) float64 {
	if train.Kept < reconstruct.LagRows || test.Kept == 0 {
		return math.NaN()
	}
	rows.CleanOwn(train, rows.Relative)
	train.HoldOut = make([]bool, train.Kept) // every row trains: test is the hold-out here
	pool := Pooled([]*rows.Table{train}, nil)
	opt := ridgeOptions(featureTerms(space.BetaFeatures(), 1, PriorZero), EpsBetaUs, o)
	opt.Workers = 1
	opt.Objective = ridge.Within
	sel, err := ridge.Select(pool.Data, opt)
	if err != nil {
		return math.NaN()
	}
	w := ridge.Weights(pool.Data, opt)
	fit, _, err := ridge.FitPublished(pool.Data, w, sel[0].Lambda, opt)
	if err != nil {
		return math.NaN()
	}
	pred := make([]float64, test.Kept)
	for i := range pred {
		pred[i] = ridge.Dot(test.Row(i), fit.Beta)
	}
	scored := stat.Rows{Y: test.Y, Pred: pred}
	return scored.Errors(nil).MAPE
}

// twoSmallest returns the positions of the smallest and second smallest number; -1
// where there is none.
func twoSmallest(v []float64) (best, second int) {
	best, second = -1, -1
	for i, x := range v {
		switch {
		case math.IsNaN(x):
		case best < 0 || x < v[best]:
			best, second = i, best
		case second < 0 || x < v[second]:
			second = i
		}
	}
	return best, second
}

// MeasureLag returns the lag of one run with its evidence, as a fit would use it.
func MeasureLag(ctx context.Context, src Source, o Options) (result.RunLag, []result.LagEvidence, error) {
	o, err := o.Resolve()
	if err != nil {
		return result.RunLag{}, nil, err
	}
	var p *Run
	o.slicesAtOnce = 1 // the first slice is enough
	err = visitParts(src, o, func(_ int, part Source) (err error) {
		if p, _, _, err = Load(ctx, part, o); err == nil {
			err = errEnough
		}
		return err
	})
	if !errors.Is(err, errEnough) {
		return result.RunLag{}, nil, err
	}
	return p.Lag, p.Evidence, nil
}
