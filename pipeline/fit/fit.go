// Package fit fits the coefficients of a configuration to recordings. It returns the document fit.json
// (result.Fit) and the coefficient set to be saved as a file.
//
// What a fit learns from is an [Evidence]: [Steps] (traces of engine steps) or [Grams] (Gram files, the
// sums over rows that [Save] wrote on another machine) of this package, or requests and load levels,
// whose evidence is in package requestfit. A [Kind] lists the options that do not apply to each.
//
// A fit of steps starts from [Source] values, one per recorded run, and [Options]. For every run
// it rebuilds the batch of each step (package rows), measures how many steps
// execution lags behind scheduling, and makes rows: a feature vector, a target
// in microseconds and labels. The rows of all runs are pooled (Pool); package
// ridge chooses the penalty and solves (Solved); and the answer is described
// with intervals, errors on held-out rows, and findings (result.Model). The
// step time is fitted first, because it decides the smoothing factor gamma of
// the preemption average; then the delays outside the engine; then other
// parameterisations on the same rows, for comparison.
//
// Packages rows (what a row means) and ridge (fitting of a linear model) do not
// depend on each other; this package connects them. The hold-out, the last share of each
// phase of a run, takes no part in selection, cross-validation or the
// published coefficients unless Options.RefitAll is set. Times are in
// microseconds. The same sources and options give the same bytes for any
// number of workers.
package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Fit fits every model asked for on the given runs (sorted by id inside) and
// returns fit.json without its header.
func Fit(ctx context.Context, sources []Source, o Options, progress trace.Progress) (*result.Fit, error) {
	f, err := newFitter(ctx, sources, o, progress)
	if err != nil {
		return nil, err
	}
	return f.fit(ctx)
}

// fitter is a fit of step traces in progress.
type fitter struct {
	o        Options
	gammas   []float64 // smoothing factors of the preemption average to choose from
	gamma    int       // chosen position in gammas
	within   []int     // positions within one standard error of the best
	prepared []*Run    // all runs, by id
	used     []*Run    // those of them that are fitted
	atOnce   int       // models that are fitted at the same time; 0: one a processor
	beta     *Pool     // the rows of the step-time model
	selected *selected // the step time; nil until selectBeta has been called

	// The roofline reads the rows of the step time, so it is made before the other models; or the reason
	// why there is none.
	roofline   *result.Model
	noRoofline error

	out      *result.Fit
	progress trace.Progress
	prior    *libraryPrior // of the step time; nil: none with a covariance
}

// newFitter makes the rows of all runs. It returns an error if no run can be fitted.
func newFitter(ctx context.Context, sources []Source, o Options, progress trace.Progress) (*fitter, error) {
	sources, o, err := TakingPart(sources, o)
	if err != nil {
		return nil, err
	}
	f := &fitter{o: o, gammas: features.Gammas(), out: &result.Fit{Options: o.Record(), FeatureSet: features.SetOf(o.Spec)},
		progress: progress}
	if err := f.prepareAll(ctx, sources); err != nil {
		return nil, err
	}
	f.describe()
	f.warn(RowsLearned(sources, o.MaxRows)...)
	if len(f.used) == 0 {
		return nil, f.nothingLeft()
	}
	return f, nil
}

// TakingPart returns the sources of a fit, without those that Options.Without names and sorted by
// id, and the options with their defaults. Together they determine the rows of every run.
func TakingPart(sources []Source, o Options) ([]Source, Options, error) {
	o, err := o.Resolve()
	if err != nil {
		return nil, o, err
	}
	if sources, err = Without(slices.Clone(sources), o.Without); err != nil {
		return nil, o, err
	}
	stat.SortStable(sources, func(a, b Source) int { return strings.Compare(a.ID, b.ID) })
	o.OneConfig = !slices.ContainsFunc(sources, func(s Source) bool { return s.Deployment.Config() != sources[0].Deployment.Config() })
	RowsLearned(sources, o.MaxRows) // sets their strides; newFitter reports the warning
	// Where there are fewer runs than workers, two slices of a run are made at the same time.
	if len(sources) < par.Workers(o.Workers) {
		o.slicesAtOnce = 2
	}
	return sources, o, nil
}

// prepareAll makes the rows of every run, several runs at a time, in the order of the sources. A
// saturated run is used only if there are other runs, for its rows near preemptions.
func (f *fitter) prepareAll(ctx context.Context, sources []Source) error {
	f.prepared = make([]*Run, len(sources))
	err := par.Try(ctx, f.o.Workers, len(sources), func(i int) (err error) {
		f.prepared[i], err = Make(ctx, sources[i], f.o, f.gammas)
		return err
	}, func(done int) { f.progress.Report("rows", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return err
	}
	f.used = usable(f.prepared)
	kept := 0
	for _, p := range f.used {
		if p.Beta != nil {
			kept += p.Beta.Kept
		}
	}
	f.atOnce = f.o.Workers
	if kept > mostRowsAtOnce {
		f.atOnce = min(2, par.Workers(f.o.Workers))
	}
	return nil
}

// mostRowsAtOnce is the number of rows up to which as many models are fitted at the same time as there are
// workers. With more it is two: the memory of a fit is that of its rows, and each model has copies of some of
// their columns.
const mostRowsAtOnce = 50_000

// usable returns the runs that are fitted. Saturated ones are among them for their rows near preemptions,
// and lose their Reason, if there are others (spec#saturation).
func usable(prepared []*Run) (used []*Run) {
	alone := !slices.ContainsFunc(prepared, func(p *Run) bool { return p.Reason == "" })
	for _, p := range prepared {
		if p.Reason != "" && !alone && p.Saturated && p.Beta != nil && p.Beta.Kept > 0 {
			p.Reason = ""
		}
		if p.Reason == "" {
			used = append(used, p)
		}
	}
	return used
}

// describe fills in the runs and configurations of the document, and how far the recordings of each
// configuration reach.
func (f *fitter) describe() {
	var ids []string
	var facts []*runFacts
	for _, p := range f.prepared {
		ids = append(ids, p.Src.ID)
		facts = append(facts, &p.runFacts)
	}
	describeRuns(f.out, ids, facts)
	for _, p := range f.used {
		f.warn(p.Src.Deployment.Assumed()...)
		k := slices.IndexFunc(f.out.Configs, func(c result.FitConfig) bool { return c.Key == p.Config })
		f.out.Configs[k].Covered = Cover(f.out.Configs[k].Covered, p.Covered)
	}
}

// nothingLeft returns the error for a fit in which no run has the rows that cross-validation needs. It lists what each run
// lacks.
func (f *fitter) nothingLeft() error {
	var reasons []string
	saturated, apart := false, true // a run was saturated; in all of them hardly a step follows another
	for _, p := range f.prepared {
		reason := p.Reason
		if reason == "" {
			reason = fmt.Sprintf("too few beta rows, %d: %s", p.kept, strings.TrimPrefix(p.noRows, "no beta rows: "))
		}
		reasons = append(reasons, p.Src.ID+": "+reason)
		saturated = saturated || p.Saturated
		apart = apart && p.lost == rows.NoInterval
	}
	hint := "blis-train inspect shows what is missing from each run"
	switch {
	case saturated:
		hint += "; a recording that lasts six answers or less may only show how an idle server fills: record longer; the key keep-saturated in " +
			"--config FILE keeps saturated runs"
	case apart:
		hint = "the time of a step is the interval to the next one, and hardly a step follows another: record requests that answer more than " +
			"one token, at a higher rate, and every step (--step-tracing-sample-rate 1.0); or fit the times of requests: --from requests"
	}
	return trace.Errorf(CodeNoRows, "no run can be fitted (%s)", strings.Join(reasons, "; ")).WithHint(hint)
}

// fit chooses the gamma of the step time, then solves every model at it, and returns the document. The
// order matters for memory: otherModels drops the rows that the models before it read.
func (f *fitter) fit(ctx context.Context) (*result.Fit, error) {
	beta, betaSel, alphas, err := f.choose(ctx)
	if err != nil {
		return nil, err
	}
	if err := beta.SolveAt(betaSel, f.gamma, f.o.RefitAll); err != nil {
		return nil, fmt.Errorf("beta: %w", err)
	}
	if err := f.describeModels(ctx, beta, betaSel, alphas); err != nil {
		return nil, err
	}
	if err := f.crossFit(ctx, beta, alphas); err != nil {
		return nil, fmt.Errorf("cross-fitting: %w", err)
	}
	if err := f.otherModels(ctx); err != nil {
		return nil, err
	}
	if err := f.dump(); err != nil {
		return nil, err
	}
	return f.out, ctx.Err()
}

// choose scores the grids of the step time and of every delay, which do not depend on each other,
// chooses gamma by the step time, and returns the choices.
func (f *fitter) choose(ctx context.Context) (beta *Solved, sel Selections, alphas alphaFits, err error) {
	alphas = make(alphaFits, len(f.o.AlphaTargets))
	report := func(done int) { f.progress.Report("grids", int64(done), int64(1+len(alphas)), "targets") }
	err = par.Try(ctx, f.atOnce, 1+len(alphas), func(i int) (err error) {
		if i == 0 {
			beta, sel, err = f.selectBeta()
			f.selected = nil // it has the rows, which are in memory no longer than needed
			return err
		}
		target := f.o.AlphaTargets[i-1]
		if alphas[i-1], err = f.selectAlpha(ctx, target); err != nil {
			return fmt.Errorf("alpha %s: %w", target, err)
		}
		return nil
	}, report)
	f.warnOf(alphas)
	return beta, sel, alphas, err
}

// describeModels adds the solved step time and the delays, which do not depend on each other, to the
// document, and makes the roofline.
func (f *fitter) describeModels(ctx context.Context, beta *Solved, sel Selections, alphas alphaFits) error {
	delays := make([]*result.Model, len(alphas))
	err := par.Try(ctx, f.atOnce, 2+len(alphas), func(i int) error {
		switch i {
		case 0:
			model, err := f.betaModel(beta, sel)
			if err == nil {
				f.out.Beta = *model
			}
			return err
		case 1:
			if slices.Contains(f.o.Models, Roofline) {
				f.roofline, f.noRoofline = f.rooflineModel()
			}
			return nil
		}
		a := alphas[i-2]
		var err error
		if delays[i-2], err = f.alphaModel(ctx, a); err != nil {
			return fmt.Errorf("alpha %s: %w", a.target, err)
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	for _, m := range delays {
		if m != nil {
			f.out.Alpha = append(f.out.Alpha, *m)
		}
	}
	f.warnOf(alphas)
	return nil
}

// warnOf moves the findings of the delays to the document.
func (f *fitter) warnOf(alphas alphaFits) {
	for _, a := range alphas {
		if a != nil {
			f.warn(a.findings...)
			a.findings = nil
		}
	}
}

// warn adds findings to the document.
func (f *fitter) warn(found ...trace.Finding) { f.out.Warnings = append(f.out.Warnings, found...) }

// tablesOf returns one table of each run, that which pick returns.
func tablesOf(used []*Run, pick func(*Run) *rows.Table) []*rows.Table {
	tables := make([]*rows.Table, len(used))
	for i, p := range used {
		tables[i] = pick(p)
	}
	return tables
}

// namesOf returns a name for each configuration of the pool, made from its deployment.
func (f *fitter) namesOf(s *Solved, name func(*deploy.Deployment) string) []string {
	out := make([]string, len(s.Pool.Configs))
	for _, p := range f.used {
		if k := slices.Index(s.Pool.Configs, p.Config); k >= 0 {
			out[k] = name(&p.Src.Deployment)
		}
	}
	return out
}

// release drops the rows of the step-time model and the delays, to free memory. The tables of the runs
// stay if Options.Rows gets them later (dump).
func (f *fitter) release() {
	f.beta = nil
	if f.o.Rows != nil {
		return
	}
	for _, p := range f.used {
		p.Beta = nil
		p.Frozen = nil
		p.Alpha = nil
	}
}
