package fit

import (
	"context"
	"fmt"

	"github.com/blis-train/blis-train/pipeline/fit/estimate"
	"github.com/blis-train/blis-train/pipeline/fit/options"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Fit fits every model asked for on the given runs (sorted by id inside) and
// returns fit.json without its header.
func Fit(ctx context.Context, sources []options.Source, o options.Options, progress trace.Progress) (*result.Fit, error) {
	f, err := newFitter(ctx, sources, o, progress)
	if err != nil {
		return nil, err
	}
	if err := f.fit(ctx); err != nil {
		return nil, err
	}
	return f.out, nil
}

// choose scores every grid and takes the gamma that is best for beta and the default
// alpha target together.
func (f *fitter) choose(ctx context.Context) (beta *estimate.Solved, sel estimate.Selections, alphas alphaFits, err error) {
	if beta, sel, err = f.selectBeta(); err != nil {
		return nil, sel, nil, err
	}
	if alphas, err = f.selectAlphas(ctx); err != nil {
		return nil, sel, nil, err
	}
	scores := [][]cv.Selection{sel.Scores()}
	if a := alphas.byTarget(rows.DefaultAlphaTarget(f.o.Spec)); a != nil && a.sel.Scores() != nil {
		scores = append(scores, a.sel.Scores())
	}
	f.gamma = cv.ChooseVariant(scores...)
	return beta, sel, alphas, nil
}

// fit chooses gamma for beta and the default alpha target together, then
// solves every model at it.
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
