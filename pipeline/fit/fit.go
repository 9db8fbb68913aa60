// Package fit turns recorded runs into result.Fit: it rebuilds rows per run,
// measures the lag, pools the rows of all runs, lets ridge choose and solve,
// and says in words what the answer is worth. It knows both what a row means
// (from rows) and how a fit is made (from ridge); neither of those knows the
// other.
//
// Its files, in the order of a fit:
//
//	options.go  what a fit is asked for
//	fitter.go   the runs that take part
//	prepare.go  one run: batches, lag, tables, audit; store.go keeps them in a folder
//	pool.go     tables of all runs -> one ridge.Data; solve.go chooses and solves
//	beta.go     the step-time model; prior.go its prior, loco.go leave one configuration out
//	alpha.go    admission, egress, queue, and what all targets share
//	overhead.go overhead (interval-censored), with values per deployment
//	models.go   other parameterisations on the same rows
//	factors.go  what runs, deployments and devices take on top of common coefficients
//	describe.go coefficients with intervals, findings and null directions as sentences
//	grams.go    sums that travel in place of rows, and fits from them
//	identify.go what the data can tell apart
//	native.go   fit.json -> the coefficient set that files hold
//
// The hold-out (the last share of each phase) never enters selection,
// leave-one-out or the published coefficients unless RefitAll is set.
package fit

import (
	"context"
	"fmt"

	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// Fit fits every model asked for on the given runs (sorted by id inside) and
// returns fit.json without its header.
func Fit(ctx context.Context, sources []Source, o Options, progress trace.Progress) (*result.Fit, error) {
	f, err := newFitter(ctx, sources, o, progress)
	if err != nil {
		return nil, err
	}
	if err := f.fit(ctx); err != nil {
		return nil, err
	}
	return f.out, nil
}

// choose scores every grid and takes the gamma of the step time for all models.
func (f *fitter) choose(ctx context.Context) (beta *Solved, sel Selections, alphas alphaFits, err error) {
	if beta, sel, err = f.selectBeta(); err != nil {
		return nil, sel, nil, err
	}
	alphas, err = f.selectAlphas(ctx)
	return beta, sel, alphas, err
}

// fit chooses the gamma of the step time, then solves every model at it.
func (f *fitter) fit(ctx context.Context) error {
	beta, betaSel, alphas, err := f.choose(ctx)
	if err != nil {
		return err
	}
	if err := beta.SolveAt(betaSel, f.gamma, f.o.RefitAll); err != nil {
		return fmt.Errorf("beta: %w", err)
	}
	model, err := f.betaModel(beta, betaSel)
	if err != nil {
		return err
	}
	f.out.Beta = *model
	for _, a := range alphas {
		m, err := f.alphaModel(a)
		if err != nil {
			return fmt.Errorf("alpha %s: %w", a.target, err)
		}
		if m != nil {
			f.out.Alpha = append(f.out.Alpha, *m)
		}
	}
	if err := f.otherModels(ctx); err != nil {
		return err
	}
	if err := f.dump(); err != nil {
		return err
	}
	return ctx.Err()
}
