package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file makes the cross-fits of fit.json: every phase of a run is cut into five blocks of time, and
// each fit leaves out one block. Package validate replays the requests of a block with the fit that
// has not seen it.

// crossFitter makes the fits that each leave out one block of time (spec#cross-fitting). They use
// the rows of the hold-out too, because it is one of the blocks.
//
// Each fit chooses lambda and gamma of the step time among its own rows. The form of the step time
// (spec#forms), and lambda and spread of a delay, are those of the published fit: what is chosen
// among a dozen values on four blocks hardly depends on the fifth, and choosing them is the longest
// part of a fit.
type crossFitter struct {
	*fitter
	step     *Solved // the published step time
	delays   alphaFits
	byDevice bool                 // the published fit has hardware factors
	blocks   []result.CrossBlocks // one element for each phase of each run, with the cuts between its blocks
}

// crossFit adds the fits to the document, unless the blocks of a run are unknown or too few rows lie
// outside one of them.
func (f *fitter) crossFit(ctx context.Context, step *Solved, delays alphaFits) error {
	c := &crossFitter{
		fitter:   f,
		step:     step,
		delays:   delays,
		byDevice: len(f.out.Beta.HardwareFactors) > 0,
	}
	for _, p := range f.used {
		if len(p.Blocks) == 0 { // its steps are not on the clock of its requests
			return nil
		}
		c.blocks = append(c.blocks, p.Blocks...)
	}
	fits := make([]result.CrossFit, result.CrossFolds)
	err := par.Try(ctx, f.atOnce, result.CrossFolds, func(block int) error {
		fit, err := c.fitWithout(ctx, block)
		if err != nil {
			return fmt.Errorf("without block %d of %d: %w", block+1, result.CrossFolds, err)
		}
		fits[block] = fit
		return nil
	}, func(done int) { f.progress.Report("cross-fitting", int64(done), result.CrossFolds, "fits") })
	if errors.Is(err, errFewRows) {
		f.warn(trace.Findingf(CodeFewRows,
			"few measurements lie outside one of %d blocks of time: replays are judged by the last share of each phase alone",
			result.CrossFolds))
		return nil
	}
	if err != nil {
		return err
	}
	f.out.Cross = &result.CrossFits{Blocks: c.blocks, Fits: fits}
	return nil
}

// errFewRows is the error of a fit without a block for which too few rows are left.
var errFewRows = errors.New("too few rows")

// fitWithout returns the fit without one block of time. gamma and lambda are chosen again, forms and
// limits are those of the published fit. The error is errFewRows if too few rows are left.
func (c *crossFitter) fitWithout(ctx context.Context, block int) (out result.CrossFit, err error) {
	s := &Solved{Pool: c.without(c.step.Pool, block), Terms: c.step.Terms, Opt: c.step.Opt}
	s.Opt.SkipNested = true // nested fits only give the error that the published fit reports
	if len(s.Pool.Train) <= s.Opt.Folds {
		return out, errFewRows
	}
	if err := c.adjustPenalty(s); err != nil {
		return out, err
	}
	sel, err := s.Choose(c.o.Recipe, "beta")
	if err != nil {
		return out, err
	}
	gamma, _ := ridge.ChooseVariant(sel.scores(c.gammas), features.DefaultGamma)
	if err := s.SolveAt(sel, gamma, false); err != nil {
		return out, err
	}
	// ApplyDeploymentFactors also scales the predictions of s; the document needs only the factors.
	var described result.Model
	ApplyDeploymentFactors(s, c.namesOf(s, (*deploy.Deployment).Label), &described)
	out = result.CrossFit{
		Learned:           len(s.Pool.Train),
		Lambda:            result.OrNull(s.Fit.Lambda),
		GammaEMA:          result.OrNull(c.gammas[gamma]),
		Beta:              s.Fit.Beta,
		DeploymentFactors: described.DeploymentFactors,
		Alpha:             []result.CrossAlpha{},
	}
	if c.byDevice {
		out.HardwareFactors = deviceFactors(s.Train, ridge.Predict(s.Train, s.Fit.Beta), c.namesOf(s, hardwareName), -1)
	}
	for _, a := range c.delays {
		if a.s == nil || !coeff.Replayable(a.target) { // not fitted, or no part of a replay
			continue
		}
		alpha, err := c.delayWithout(ctx, block, a, gamma)
		if _, ok := notConverged(err); ok {
			err = errFewRows
		}
		if err != nil {
			return out, fmt.Errorf("alpha %s: %w", a.target, err)
		}
		out.Alpha = append(out.Alpha, alpha)
	}
	return out, nil
}

// adjustPenalty computes again the parts of the penalty that depend on the training rows: a prior's
// lambda, principal components.
func (c *crossFitter) adjustPenalty(s *Solved) error {
	if c.prior != nil {
		if err := c.prior.apply(s); err != nil {
			return err
		}
	}
	if !c.o.Spec.InComponents() {
		return nil
	}
	train := s.Pool.TrainData()
	gram := ridge.OfRows(train, ridge.Weights(train, s.Opt), nil, c.o.Workers)
	_, err := s.Opt.Components(gram, componentShare)
	return err
}

// delayWithout returns the coefficients of one delay fitted without one block, with the lambda of the
// published fit at that gamma. The error is errFewRows if too few rows are left.
func (c *crossFitter) delayWithout(ctx context.Context, block int, published *alphaFit, gamma int) (result.CrossAlpha, error) {
	s := &Solved{Pool: c.without(published.s.Pool, block), Terms: published.s.Terms, Opt: published.s.Opt}
	if len(s.Pool.Train) <= s.Opt.Folds {
		return result.CrossAlpha{}, errFewRows
	}
	a := &alphaFit{target: published.target, s: s, sel: published.sel}
	var err error
	if a.target == coeff.Overhead {
		err = c.solveIntervals(ctx, a, gamma, s.Pool.Train)
	} else {
		err = s.SolveAt(a.sel, gamma, false)
	}
	return result.CrossAlpha{Target: a.target, Values: s.Fit.Beta, Deployments: a.byDeployment}, err
}

// without returns the pool with other training rows: those that may teach if a block is left out
// (result.CrossBlocks.Teaches), and no hold-out. Outliers are left out: those of the training rows
// were removed before, those of the hold-out are still there.
func (c *crossFitter) without(p *Pool, block int) *Pool {
	out := *p
	out.Train = nil
	out.Hold = nil
	row := int32(0) // position in the pool, which has the rows of its tables one after the other
	for _, t := range p.Tables {
		byPhase := c.blocksByPhase(t.Run)
		for i := range t.Kept {
			b := byPhase[t.Phase[i]] // nil where nothing was recorded of the phase
			if b != nil && b.Teaches(block, t.TimeNs[i]) && !t.IsOutlier(i) {
				out.Train = append(out.Train, row)
			}
			row++
		}
	}
	return &out
}

// blocksByPhase returns the blocks of a run by the index of their phase in the deployment, as the
// column Phase of its tables has it: -1 for a run without phases.
func (c *crossFitter) blocksByPhase(run string) map[int32]*result.CrossBlocks {
	k := slices.IndexFunc(c.used, func(p *Run) bool { return p.Src.ID == run })
	phases := c.used[k].Src.Deployment.Phases
	out := map[int32]*result.CrossBlocks{}
	for i := range c.used[k].Blocks {
		b := &c.used[k].Blocks[i]
		phase := slices.IndexFunc(phases, func(p deploy.Phase) bool { return p.Name == b.Phase })
		out[int32(phase)] = b
	}
	return out
}
