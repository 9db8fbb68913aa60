package fit

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// fitter is one fit in progress.
type fitter struct {
	o        Options
	gammas   []float64
	gamma    int   // chosen position in gammas
	within   []int // positions within one standard error of the best
	prepared []*Run
	used     []*Run
	beta     *Pool // the rows of the step-time model
	out      *result.Fit
	progress trace.Progress
	prior    *libraryPrior // of the step time; nil: none with a covariance
}

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

// TakingPart are the runs that take part in a fit, by id, and its options with their defaults:
// what the rows of a run are made from.
func TakingPart(sources []Source, o Options) ([]Source, Options, error) {
	o, err := o.Resolve()
	if err != nil {
		return nil, o, err
	}
	if sources, err = Without(slices.Clone(sources), o.Without); err != nil {
		return nil, o, err
	}
	slices.SortStableFunc(sources, func(a, b Source) int { return strings.Compare(a.ID, b.ID) })
	o.OneConfig = !slices.ContainsFunc(sources, func(s Source) bool { return s.Deployment.Config() != sources[0].Deployment.Config() })
	RowsLearned(sources, o.MaxRows)
	return sources, o, nil
}

// prepareAll makes the rows of every run, several runs at a time; the order of
// the result is that of sources.
func (f *fitter) prepareAll(ctx context.Context, sources []Source) error {
	f.prepared = make([]*Run, len(sources))
	err := par.Try(ctx, f.o.Workers, len(sources), func(i int) (err error) {
		f.prepared[i], err = Make(sources[i], f.o, f.gammas)
		return err
	}, func(done int) { f.progress.Report("rows", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return err
	}
	alone := !slices.ContainsFunc(f.prepared, func(p *Run) bool { return p.Reason == "" })
	for _, p := range f.prepared {
		if p.Reason != "" && !alone && p.Saturated && p.Beta != nil && p.Beta.Kept > 0 {
			p.Reason = "" // its preemptions teach what they cost
		}
		if p.Reason == "" {
			f.used = append(f.used, p)
		}
	}
	return nil
}

// describe fills the runs and configurations of the document.
func (f *fitter) describe() {
	var ids []string
	var facts []*runFacts
	for _, p := range f.prepared {
		ids, facts = append(ids, p.Src.ID), append(facts, &p.runFacts)
	}
	describeRuns(f.out, ids, facts)
	for _, p := range f.used {
		f.warn(p.Src.Deployment.Assumed()...)
		k := slices.IndexFunc(f.out.Configs, func(c result.FitConfig) bool { return c.Key == p.Config })
		f.out.Configs[k].Covered = Cover(f.out.Configs[k].Covered, p.Covered)
	}
}

func (f *fitter) nothingLeft() error {
	why := stat.Map(f.prepared, func(p *Run) string { return p.Src.ID + ": " + p.Reason })
	return trace.Errorf(CodeNoRows, "no run can be fitted (%s)",
		strings.Join(why, "; ")).WithHint("blis-train inspect shows what is missing from each run; --keep-saturated keeps saturated runs")
}

func (f *fitter) warn(found ...trace.Finding) { f.out.Warnings = append(f.out.Warnings, found...) }

// tablesOf is one table of each of the given runs.
func tablesOf(used []*Run, pick func(*Run) *rows.Table) []*rows.Table {
	return stat.Map(used, func(p *Run) *rows.Table { return pick(p) })
}

// namesOf is what pick says of the deployment behind each configuration label.
func (f *fitter) namesOf(s *Solved, pick func(*deploy.Deployment) string) []string {
	out := make([]string, len(s.Pool.Configs))
	for _, p := range f.used {
		if k := slices.Index(s.Pool.Configs, p.Config); k >= 0 {
			out[k] = pick(&p.Src.Deployment)
		}
	}
	return out
}

// dump hands the rows to Options.Rows.
func (f *fitter) dump() error {
	if f.o.Rows == nil {
		return nil
	}
	d := &Dump{Spec: f.o.Spec, Phases: map[string][]deploy.Phase{}}
	for _, p := range f.used {
		d.Tables = append(d.Tables, p.Beta.At(f.gammas[f.gamma]))
		d.Phases[p.Src.ID] = p.Src.Deployment.Phases
	}
	for _, target := range f.o.AlphaTargets {
		for _, p := range f.used {
			d.Tables = append(d.Tables, p.Alpha[target].At(f.gammas[f.gamma]))
		}
	}
	d.Tables = slices.DeleteFunc(d.Tables, func(t *rows.Table) bool { return t.Kept == 0 })
	return f.o.Rows(d)
}

// alphaFit is one alpha target on its way.
type alphaFit struct {
	target string
	s      *Solved
	sel    Selections
	bounds ridge.Bounds // training rows; overhead only
	passes int
	counts result.RowCounts
	on     []result.DeploymentCoefficients // overhead of several deployments
}

// clipped is max(0, prediction): alphas are delays.
func clipped(pred []float64) []float64 {
	for i, v := range pred {
		pred[i] = math.Max(0, v)
	}
	return pred
}
