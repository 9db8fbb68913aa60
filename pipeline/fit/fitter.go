// Package fit turns recorded runs into result.Fit: it rebuilds rows per run,
// measures the lag, pools the rows of all runs, lets ridge choose and solve,
// and says in words what the answer is worth. It knows both what a row means
// (from rows) and how a fit is made (from ridge); neither of those knows the
// other.
//
// Its files, in the order of a fit:
//
//	options.go  what a fit is asked for; one run: batches, lag, tables, audit
//	fitter.go   the runs that take part
//	store.go    tables kept in a folder; other parameterisations on the same rows; fit.json -> the set that files hold
//	solve.go    chooses and solves; what runs, deployments and devices take on top of common coefficients
//	beta.go     step time, admission, egress and queue; library.go the prior of step time
//	judge.go    errors of a fit by scope; what the data can tell apart
//	describe.go coefficients with intervals, findings and null directions as sentences
//	grams.go    sums that travel in place of rows, and fits from them
//
// The hold-out (the last share of each phase) never enters selection,
// leave-one-out or the published coefficients unless RefitAll is set.
package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
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
	stat.SortStable(sources, func(a, b Source) int { return strings.Compare(a.ID, b.ID) })
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
		strings.Join(why, "; ")).WithHint("blis-train inspect shows what is missing from each run; the key keep-saturated in " +
		"--config FILE keeps saturated runs")
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

// Again reads the recording and rebuilds its batches once more, for rows under other
// bases. Of stored rows there is nothing to do, and slices are read for each basis.
func (p *Run) Again(o Options) error {
	if p.Src.Rows != "" || p.Src.Slices != nil {
		return nil
	}
	run, err := p.Src.Load()
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, &p.Src.Deployment, o.Spec)
	if err != nil {
		return err
	}
	p.steps = withoutRequests(steps)
	p.space, err = features.New(o.Spec, &p.Src.Deployment)
	return err
}

// withoutRequests keeps of the requests only the batches.
func withoutRequests(steps *rows.Steps) *rows.Steps {
	less := *steps.Run
	less.Requests, less.Observed, less.KVEvents = nil, nil, nil
	steps.Run = &less
	return steps
}

// OtherTable makes the same rows under another basis, after Again; nil where the
// deployment has no form of it.
func (p *Run) OtherTable(name string, o Options) (*rows.Table, error) {
	if p.Src.Rows != "" {
		return p.restoreOther(name)
	}
	if p.Src.Slices != nil {
		return p.otherParts(name, o)
	}
	vec, err := Vectorizer(name, p.space)
	if vec == nil || err != nil { // skipOthers has said so
		return nil, nil
	}
	return p.steps.BetaBasis(p.space, *vec, rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gamma: features.DefaultGamma,
		Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride, Slim: true})
}

// Vectorizer is the basis of a parameterisation; nil for roofline, which reads
// the physics features.
func Vectorizer(name string, space *features.Space) (*rows.Vectorizer, error) {
	switch name {
	case Linear3:
		return &rows.Vectorizer{P: len(linear3Terms), Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
			x[0], x[1], x[2] = 1, in.ScheduledTokens, in.KVReadTokens
			return 0, nil
		}}, nil
	case Blackbox:
		return summed(len(features.BlackboxBeta), features.Blackbox), nil
	case TrainedPhysics:
		tp, err := features.NewTrainedPhysics(space.Deployment())
		if err != nil {
			return nil, err
		}
		return summed(len(features.TrainedPhysicsBeta()), tp.Beta), nil
	}
	return nil, nil
}

// summed is a basis of a batch's sums; approximate steps have no members and are refused.
func summed(p int, beta func(*features.Step, []float64)) *rows.Vectorizer {
	step := func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
		if len(members) == 0 {
			return 0, trace.Errorf(rows.UnknownBatch, "no requests known")
		}
		var s features.Step
		for i := range members {
			s.Add(members[i].Chunk)
		}
		beta(&s, x)
		return 0, nil
	}
	return &rows.Vectorizer{P: p, WantMembers: true, Step: step}
}

// refused10 says why the run has no rows with 1.0 features, for which nobody asks
// where there is one configuration.
func (p *Run) refused10(steps *rows.Steps) error {
	if err := steps.Refused10(); err != nil {
		return err
	}
	_, err := features.New(features.V10, &p.Src.Deployment)
	return err
}

// frozenTable is the run's cadence rows with 1.0 features, an error where 1.0 has
// no input for them.
func (p *Run) frozenTable(as *rows.Steps, o Options) (*rows.Table, error) {
	steps, err := as.As(features.V10)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V10, &p.Src.Deployment)
	if err != nil {
		return nil, err
	}
	return steps.Beta(space, rows.Options{Target: coeff.Cadence, Lag: p.Lag.Lag, Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride,
		Slim: true})
}

// Pool is the rows of all runs as one gram.Data, with the way back to the
// tables. Runs are in sorted order, rows in time order inside a run. The tables'
// features, targets and weights are parts of the pool's.
type Pool struct {
	Tables  []*rows.Table // per used run
	Runs    []string      // label -> run id
	Configs []string      // label -> configuration key
	Gammas  []float64     // of the variants of data, or the tables' own
	Data    *ridge.Data
	Train   []int32 // rows outside the hold-out
	Hold    []int32 // hold-out rows
}

// Pooled joins one table per run; gammas are the smoothing factors to choose
// from, one of them the tables' own, or nil for no choice.
func Pooled(all []*rows.Table, gammas []float64) *Pool {
	p := &Pool{Gammas: gammas, Data: &ridge.Data{}}
	if len(gammas) == 0 {
		p.Gammas = []float64{features.DefaultGamma}
	}
	n := 0
	for _, t := range all {
		if t != nil && t.Kept > 0 {
			p.Tables, p.Runs = append(p.Tables, t), append(p.Runs, t.Run)
			p.Data.P = t.P
			n += t.Kept
		}
	}
	d := p.Data
	d.Config, d.Regime, d.Run = make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n)
	for k, t := range p.Tables {
		config := p.config(t.Config)
		for i := range t.Kept {
			row := int32(len(d.Run))
			d.Config, d.Regime, d.Run = append(d.Config, config), append(d.Regime, int32(t.Regime[i])), append(d.Run, int32(k))
			if t.HoldOut[i] {
				p.Hold = append(p.Hold, row)
			} else {
				p.Train = append(p.Train, row)
			}
		}
	}
	p.join(n)
	p.variants(gammas)
	return p
}

// join makes one column of the tables' and makes theirs parts of it.
func (p *Pool) join(n int) {
	d := p.Data
	d.X = joined(p.Tables, n*d.P, func(t *rows.Table) *[]float64 { return &t.X })
	d.Y = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Y })
	d.Steps = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Steps })
	d.Factor = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Factor })
	d.Time = joined(p.Tables, n, func(t *rows.Table) *[]int64 { return &t.TimeNs })
}

func joined[T any](tables []*rows.Table, n int, column func(*rows.Table) *[]T) []T {
	if len(tables) == 1 {
		return *column(tables[0])
	}
	all := make([]T, 0, n)
	for _, t := range tables {
		c, from := column(t), len(all)
		all = append(all, *c...)
		*c = all[from:len(all):len(all)]
	}
	return all
}

func (p *Pool) config(key string) int32 {
	k := slices.Index(p.Configs, key)
	if k < 0 {
		k = len(p.Configs)
		p.Configs = append(p.Configs, key)
	}
	return int32(k)
}

// variants takes the columns of every smoothing factor that some factor changes
// in some run: those fed by the preemption average.
func (p *Pool) variants(gammas []float64) {
	var cols []int
	for _, t := range p.Tables {
		for _, v := range t.Variants {
			cols = append(cols, v.Cols...)
		}
	}
	slices.Sort(cols)
	cols = slices.Compact(cols)
	for _, g := range gammas {
		v := ridge.Variant{Gamma: g, Cols: cols, Values: make([][]float64, len(cols))}
		for c, j := range cols {
			for _, t := range p.Tables {
				v.Values[c] = append(v.Values[c], t.Column(g, j)...)
			}
		}
		p.Data.Variants = append(p.Data.Variants, v)
	}
}

// saturated reports a run whose rows near preemptions alone take part (spec#saturation).
func (p *Pool) saturated(run int32) bool {
	t := p.Tables[run]
	return t.DroppedFor(rows.Saturated) > 0 && !slices.Contains(t.HoldOut, true)
}

// saturatedConfig reports that all runs of a configuration are such.
func (p *Pool) saturatedConfig(key string) bool {
	for r, t := range p.Tables {
		if t.Config == key && !p.saturated(int32(r)) {
			return false
		}
	}
	return true
}

// rowOf is where row i of the pool stands in its table.
func (p *Pool) rowOf(i int32) (t *rows.Table, row int) {
	k := p.Data.Run[i]
	first, _ := slices.BinarySearch(p.Data.Run, k)
	return p.Tables[k], int(i) - first
}

// embargo is how many rows are dropped before a validation block, one number for all
// smoothing factors: the steps that the longest average remembers (spec#folds).
func embargo(rowsPerStep float64) int {
	return int(math.Ceil(features.MemorySteps * rowsPerStep))
}

// TrainData are the rows outside the hold-out.
func (p *Pool) TrainData() *ridge.Data { return p.Data.Subset(p.Train) }

// Bounds are the intervals of the given rows.
func (p *Pool) Bounds(list []int32) ridge.Bounds {
	var b ridge.Bounds
	for _, i := range list {
		t, k := p.rowOf(i)
		b.Lo = append(b.Lo, t.Lo[k])
		b.Hi = append(b.Hi, t.Hi[k])
	}
	return b
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
