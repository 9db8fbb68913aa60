package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/par"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// fitter is one fit in progress.
type fitter struct {
	o        Options
	gammas   []float64
	gamma    int // chosen position in gammas
	prepared []*prepared
	used     []*prepared
	beta     *pool // the rows of the step-time model
	out      *result.Fit
	progress trace.Progress
}

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

func newFitter(ctx context.Context, sources []Source, o Options, progress trace.Progress) (*fitter, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	f := &fitter{o: o, gammas: features.Gammas(), out: &result.Fit{Options: optionsOf(o), FeatureSet: features.SetOf(o.Spec)}, progress: progress}
	sources = slices.Clone(sources)
	if sources, err = without(sources, o.Without); err != nil {
		return nil, err
	}
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.ID, b.ID) })
	if err := f.prepareAll(ctx, sources); err != nil {
		return nil, err
	}
	f.describe()
	if len(f.used) == 0 {
		return nil, f.nothingLeft()
	}
	return f, nil
}

// without leaves out the named runs; a name without a run is an error.
func without(sources []Source, names []string) ([]Source, error) {
	for _, name := range names {
		k := slices.IndexFunc(sources, func(s Source) bool { return s.ID == name })
		if k < 0 {
			return nil, trace.Errorf(BadOption, "--without: no run %q", name)
		}
		sources = slices.Delete(sources, k, k+1)
	}
	return sources, nil
}

func optionsOf(o Options) result.FitOptions {
	return result.FitOptions{
		Spec: string(o.Spec), Recipe: o.Recipe, BetaTarget: o.BetaTarget, Objective: o.Objective, Split: o.Split,
		Seed: o.Seed, Bootstraps: o.Bootstraps, RefitAll: o.RefitAll, Prior: o.Prior, Without: append([]string{}, o.Without...),
	}
}

// prepareAll makes the rows of every run, several runs at a time; the order of
// the result is that of sources.
func (f *fitter) prepareAll(ctx context.Context, sources []Source) error {
	f.prepared = make([]*prepared, len(sources))
	f.o.lone = !slices.ContainsFunc(sources, func(s Source) bool { return s.Deployment.Config() != sources[0].Deployment.Config() })
	err := par.Try(ctx, f.o.Workers, len(sources), func(i int) (err error) {
		f.prepared[i], err = prepare(sources[i], f.o, f.gammas)
		return err
	}, func(done int) { f.progress.Report("rows", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return err
	}
	for _, p := range f.prepared {
		if p.reason == "" {
			f.used = append(f.used, p)
		}
	}
	return nil
}

// describe fills the runs and configurations of the document.
func (f *fitter) describe() {
	var latest int64
	for _, p := range f.prepared {
		latest = max(latest, p.wallNs)
		f.out.Runs = append(f.out.Runs, result.FitRun{
			ID: p.src.ID, Config: p.config, Used: p.reason == "", Saturated: p.saturated, Reason: p.reason,
			Steps: p.quality, Findings: p.findings,
		})
	}
	if latest > 0 {
		f.out.TrainingDate = time.Unix(0, latest).UTC().Format(time.DateOnly)
	}
	for _, p := range f.used {
		f.warn(p.src.Deployment.Assumed()...)
		k := slices.IndexFunc(f.out.Configs, func(c result.FitConfig) bool { return c.Key == p.config })
		if k < 0 {
			k = len(f.out.Configs)
			f.out.Configs = append(f.out.Configs, result.FitConfig{Key: p.config, Label: p.src.Deployment.Label(), Deployment: p.src.Deployment})
		}
		f.out.Configs[k].Runs = append(f.out.Configs[k].Runs, p.src.ID)
	}
	for k := range f.out.Configs {
		c := &f.out.Configs[k]
		var sum lengths
		for _, p := range f.used {
			if p.config == c.Key {
				sum.add(p.lengths)
			}
		}
		c.MeanPromptTokens, c.MeanOutputTokens = sum.means()
	}
}

func (f *fitter) nothingLeft() error {
	var why []string
	for _, p := range f.prepared {
		why = append(why, p.src.ID+": "+p.reason)
	}
	return trace.Errorf(NoRows, "no run can be fitted (%s)", strings.Join(why, "; ")).WithHint("blis-train inspect shows what is missing from each run; --keep-saturated keeps saturated runs")
}

// fit chooses gamma for beta and the default alpha target together, then
// solves every model at it.
func (f *fitter) fit(ctx context.Context) error {
	beta, betaSel, err := f.selectBeta()
	if err != nil {
		return err
	}
	alphas, err := f.selectAlphas(ctx)
	if err != nil {
		return err
	}
	scores := [][]cv.Selection{betaSel.scores()}
	if a := alphas.byTarget(rows.DefaultAlphaTarget(f.o.Spec)); a != nil && a.sel.scores() != nil {
		scores = append(scores, a.sel.scores())
	}
	f.gamma = cv.ChooseVariant(scores...)
	if err := f.solveChosen(beta, betaSel); err != nil {
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

func (f *fitter) warn(found ...trace.Finding) { f.out.Warnings = append(f.out.Warnings, found...) }

// tablesOf is one table of each of the given runs.
func tablesOf(used []*prepared, pick func(*prepared) *rows.Table) []*rows.Table {
	out := make([]*rows.Table, len(used))
	for i, p := range used {
		out[i] = pick(p)
	}
	return out
}
