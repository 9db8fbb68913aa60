// Package fit turns recorded runs into result.Fit: it rebuilds rows per run,
// measures the lag, pools the rows of all runs, lets ridge choose and solve,
// and says in words what the answer is worth. It knows both what a row means
// (from rows) and how a fit is made (from ridge); neither of those knows the
// other.
//
// Its files, in the order of a fit:
//
//	options.go  what a fit is asked for; one run: batches, lag, tables, audit
//	fitter.go   the runs that take part; tables kept in a folder; other parameterisations on the same rows;
//	            fit.json -> the set that files hold
//	solve.go    chooses and solves; what runs, deployments and devices take on top of common coefficients
//	beta.go     step time, admission, egress and queue; library.go the prior of step time
//	judge.go    errors of a fit by scope; what the data can tell apart
//	describe.go coefficients with intervals, findings and null directions as sentences; sums that travel in place of
//	            rows, and fits from them
//
// The hold-out (the last share of each phase) never enters selection,
// leave-one-out or the published coefficients unless RefitAll is set.
package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
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
	less.Requests = nil
	less.Observed = nil
	less.KVEvents = nil
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
			p.Tables = append(p.Tables, t)
			p.Runs = append(p.Runs, t.Run)
			p.Data.P = t.P
			n += t.Kept
		}
	}
	d := p.Data
	d.Config = make([]int32, 0, n)
	d.Regime = make([]int32, 0, n)
	d.Run = make([]int32, 0, n)
	for k, t := range p.Tables {
		config := p.config(t.Config)
		for i := range t.Kept {
			row := int32(len(d.Run))
			d.Config = append(d.Config, config)
			d.Regime = append(d.Regime, int32(t.Regime[i]))
			d.Run = append(d.Run, int32(k))
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

// Files of a stored run: what is no table, the tables of the fit, those of one other model.
const (
	storedRun   = "run.json"
	storedRows  = "rows.bin"
	storedOther = "rows.%s.bin"
)

// stored is a run but for its tables and what its source tells.
type stored struct {
	runFacts
	Contexts string          `json:"contexts"`
	Spans    []rows.Span     `json:"spans"`
	Covered  *result.Covered `json:"covered"`
	Tables   []string        `json:"tables"` // names of those in storedRows, in order
}

// Names of tables; the others are those of alpha targets.
const (
	betaTable   = "beta"
	frozenTable = "frozen"
)

// StoreRows makes the rows of a run as a fit with options of TakingPart does, and its rows under every
// other basis, and writes them, slice by slice, to a folder that [Source.Rows] may name in such a fit.
func StoreRows(src Source, o Options, dir string) error {
	var names []string
	w := tableWriters{dir, map[string]*rows.TableWriter{}}
	err := w.add(storedRows)
	if err != nil {
		return err
	}
	p, err := makeParts(src, o, features.Gammas(), func(q *Run) error {
		add := func(name string, t *rows.Table) {
			if t != nil && err == nil {
				names = append(names, name)
				err = w.add(storedRows, t)
			}
		}
		add(betaTable, q.Beta)
		add(frozenTable, q.Frozen)
		for _, target := range o.AlphaTargets {
			add(target, q.Alpha[target])
		}
		q.Beta = nil
		q.Frozen = nil
		q.Alpha = nil
		if err == nil && q.steps != nil && o.Others() {
			err = w.addOthers(q, o)
		}
		q.steps = nil
		return err
	})
	if err = errors.Join(err, w.close()); err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedRun), stored{p.runFacts, p.Contexts, p.Spans, p.Covered, names})
}

// tableWriters append tables to files of a folder.
type tableWriters struct {
	dir   string
	files map[string]*rows.TableWriter
}

func (w *tableWriters) add(name string, tables ...*rows.Table) (err error) {
	f, known := w.files[name]
	if !known {
		if f, err = rows.CreateTables(filepath.Join(w.dir, name)); err != nil {
			return err
		}
		w.files[name] = f
	}
	for _, t := range tables {
		err = errors.Join(err, f.Encode(t))
	}
	return err
}

// addOthers makes and adds the tables of the other models.
func (w *tableWriters) addOthers(q *Run, o Options) error {
	for _, name := range o.Models {
		t, err := q.OtherTable(name, o)
		if err == nil && t != nil {
			err = w.add(fmt.Sprintf(storedOther, name), t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *tableWriters) close() (err error) {
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// restore reads the run that StoreRows wrote to src.Rows.
func restore(src Source) (*Run, error) {
	var s stored
	if err := files.ReadJSON(filepath.Join(src.Rows, storedRun), &s); err != nil {
		return nil, err
	}
	p := &Run{Src: src, runFacts: s.runFacts, Contexts: s.Contexts, Spans: s.Spans, Covered: s.Covered, Alpha: map[string]*rows.Table{}}
	p.Deployment = src.Deployment
	n, err := rows.RestoreTables(filepath.Join(src.Rows, storedRows), func(i int, t *rows.Table) {
		if i >= len(s.Tables) {
			return
		}
		switch name := s.Tables[i]; name {
		case betaTable:
			p.Beta = joinTables(p.Beta, t)
		case frozenTable:
			p.Frozen = joinTables(p.Frozen, t)
		default:
			p.Alpha[name] = joinTables(p.Alpha[name], t)
		}
	})
	if err != nil || n != len(s.Tables) {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d tables, want %d", src.Rows, n, len(s.Tables)))
	}
	return p, nil
}

// restoreOther reads the rows under another basis; nil where there are none.
func (p *Run) restoreOther(model string) (all *rows.Table, err error) {
	name := filepath.Join(p.Src.Rows, fmt.Sprintf(storedOther, model))
	_, err = rows.RestoreTables(name, func(_ int, t *rows.Table) { all = joinTables(all, t) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// Native builds the artifact of a fit; val, which may be nil, adds the gates.
// The result passes features.CheckSet and coeff.Set.Check. The same fit gives the same set.
func Native(fit *result.Fit, val *result.Validation) (*coeff.Set, error) {
	b := &fit.Beta
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion, ToolVersion: fit.ToolVersion, Platform: fit.Platform, Command: fit.Command, Inputs: fit.Inputs,
		FeatureSet: fit.FeatureSet, Recipe: b.Recipe, Refit: fit.Options.RefitAll,
		TrainedOn: trainedOn(fit), BetaTarget: b.Target,
		Beta: nativeTerms(b.Coefficients), Covariance: b.Covariance,
		Gamma: valueOr(b.GammaEMA, defaultGamma), GammaIdentified: b.GammaIdentified, PipelineLag: b.PipelineLag,
		Certificate: b.Certificate, Identifiability: b.NullDirections, Warnings: fit.AllWarnings(), Configs: nativeConfigs(fit, val),
	}
	set.SpecVersion = coeff.Version(b.SpecVersion)
	set.Gates, set.Purposes, set.ValidatedFor = val.Verdicts()
	set.Residuals = stat.Keyed(b.ResidualQuant, func(r result.RegimeQuantiles) (string, [][2]float64) { return r.Regime, r.Quantiles })
	set.HardwareFactors = stat.Keyed(b.HardwareFactors, func(h result.HardwareFactor) (string, float64) { return h.Hardware, h.Factor })
	set.DeploymentFactors = stat.Keyed(b.DeploymentFactors, func(d result.DeploymentFactor) (string, float64) { return d.Name(), d.Factor })
	set.PromptFactors = stat.Keyed(b.DeploymentFactors, func(d result.DeploymentFactor) (string, float64) { return d.Name(), d.Prompt })
	for i := range fit.Alpha {
		m := &fit.Alpha[i]
		of := func(d result.DeploymentCoefficients) (string, []float64) { return d.Deployment, d.Values }
		set.Alpha = append(set.Alpha, coeff.AlphaModel{
			Target: m.Target, Replay: coeff.Replayable(m.Target), Lambda: valueOr(m.Lambda, 0), Coefficients: nativeTerms(m.Coefficients),
			Covariance: m.Covariance, Deployments: stat.Keyed(m.DeploymentCoefficients, of),
		})
	}
	sort.Slice(set.Alpha, func(i, j int) bool { return set.Alpha[i].Target < set.Alpha[j].Target })
	err := features.CheckSet(set)
	if err == nil {
		err = set.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("fit.json: %w", err)
	}
	return set, nil
}

// defaultGamma is the EMA's gamma where a fit did not choose one (spec#preemption-average).
const defaultGamma = 0.3

func valueOr(v *float64, def float64) float64 {
	if v == nil {
		return def
	}
	return *v
}

func nativeTerms(cs []result.Coefficient) []coeff.Coefficient {
	return stat.Map(cs, func(c result.Coefficient) coeff.Coefficient { return c.Coefficient })
}

func nativeConfigs(fit *result.Fit, val *result.Validation) []coeff.Config {
	var out []coeff.Config
	for i := range fit.Configs {
		c := &fit.Configs[i]
		own := coeff.ConfigOf(&c.Deployment, c.Runs, 0)
		for _, r := range fit.Beta.Rows.ByRegime {
			if r.Config == c.Key {
				own.Samples += int64(r.Rows)
			}
		}
		if features.Layered(coeff.Version(fit.Beta.SpecVersion)) {
			if own.Layers = own.Deployment.LayerSums(); val != nil {
				own.Layers.Judged = fmt.Sprintf("on held-out parts of its own recordings, for %s: %s", val.For, val.Verdict)
			}
		}
		out = append(out, own)
	}
	stat.SortStable(out, func(a, b coeff.Config) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// distinct are the values that the deployments have, sorted.
func distinct[V cmp.Ordered](configs []result.FitConfig, of func(*deploy.Deployment) V) []V {
	all := stat.Map(configs, func(c result.FitConfig) V { return of(&c.Deployment) })
	slices.Sort(all)
	return slices.Compact(all)
}

// trainedOn collects where the coefficients hold, each list sorted.
func trainedOn(fit *result.Fit) coeff.TrainedOn {
	t := coeff.TrainedOn{
		Models:       distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Model.ID }),
		Hardware:     distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Hardware.Name }),
		VLLMVersions: distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Engine.VLLMVersion }),
		TPs:          distinct(fit.Configs, func(d *deploy.Deployment) int64 { return d.TP }),

		Date: fit.TrainingDate, Samples: int64(fit.Beta.Rows.Kept), Lambda: valueOr(fit.Beta.Lambda, 0),
		Gamma: valueOr(fit.Beta.GammaEMA, defaultGamma), HoldOutRMSE: map[string]float64{},
	}
	if !fit.Options.RefitAll {
		t.Samples -= int64(fit.Beta.Rows.Holdout)
	}
	all := append([]result.Model{fit.Beta}, fit.Alpha...)
	for i := range all {
		if e := all[i].Holdout; e != nil && e.RMSEUs != nil {
			t.HoldOutRMSE[all[i].Target] = *e.RMSEUs
		}
	}
	return t
}

// release lets go of the rows of the step-time model, unless somebody asks for
// them afterwards.
func (f *fitter) release() {
	if f.beta = nil; f.o.Rows != nil {
		return
	}
	for _, p := range f.used {
		p.Beta = nil
		p.Frozen = nil
		p.Alpha = nil
	}
}

// prepareOthers reads the recordings again, for rows under the other bases: with all
// rows of all models beside them they would not be small.
func (f *fitter) prepareOthers(ctx context.Context) error {
	if !f.o.Others() {
		return nil
	}
	return par.Try(ctx, f.o.Workers, len(f.used), func(i int) error {
		p := f.used[i]
		if err := p.Again(f.o); err != nil {
			return fmt.Errorf("run %s: %w", p.Src.ID, err)
		}
		return nil
	}, func(done int) { f.progress.Report("other models", int64(done), int64(len(f.used)), "runs") })
}

// otherModels fits the parameterisations on the same rows.
func (f *fitter) otherModels(ctx context.Context) error {
	f.out.Models = []result.Model{}
	var roofline *result.Model
	var why error
	if slices.Contains(f.o.Models, Roofline) {
		roofline, why = f.roofline()
	}
	f.release()
	if err := f.prepareOthers(ctx); err != nil {
		return err
	}
	for _, name := range f.o.Models {
		m, err := roofline, why
		if name != Roofline {
			tables, broken := f.otherTables(ctx, name)
			if broken != nil {
				return broken
			}
			m, err = f.otherModel(tables, name)
		}
		if err != nil {
			f.warn(trace.Findingf(ModelSkipped, "%s: %v", name, err))
			continue
		}
		f.out.Models = append(f.out.Models, *m)
	}
	return nil
}

// otherTables are the rows of all runs under one of the other bases, nil for a run
// that has none.
func (f *fitter) otherTables(ctx context.Context, name string) ([]*rows.Table, error) {
	tables := make([]*rows.Table, len(f.used))
	err := par.Try(ctx, f.o.Workers, len(f.used), func(i int) (err error) {
		if tables[i], err = f.used[i].OtherTable(name, f.o); err != nil {
			err = fmt.Errorf("run %s: %w", f.used[i].Src.ID, err)
		}
		return err
	}, nil)
	return tables, err
}

// otherModel fits such rows.
func (f *fitter) otherModel(tables []*rows.Table, name string) (*result.Model, error) {
	tables = slices.DeleteFunc(tables, func(t *rows.Table) bool { return t == nil || t.Kept == 0 })
	rows.Clean(tables, rows.Relative)
	p := Pooled(tables, nil)
	if len(p.Train) == 0 {
		return nil, fmt.Errorf("no training rows with known requests")
	}
	s := &Solved{Pool: p, Terms: BasisTerms(name, len(p.Configs))}
	o := f.o
	o.Recipe, o.Objective = Relative, ""
	s.Opt = RidgeOptions(s.Terms, EpsBetaUs, o)
	sel, err := ridge.Select(p.TrainData(), s.Opt)
	if err != nil {
		return nil, err
	}
	s.Findings = p.Words(sel[0].Findings)
	if err := s.SolveRelative(0, &sel[0], f.o.RefitAll); err != nil {
		return nil, err
	}
	return f.otherResult(s, Selections{Rel: sel}, name)
}

// otherResult is the document's form of another parameterisation.
func (f *fitter) otherResult(s *Solved, m Selections, name string) (*result.Model, error) {
	out := Model(s, m, &f.o, name, f.o.BetaTarget) // these models have no preemption average: one gamma
	out.GammaEMA, out.Recipe = nil, Relative
	s.Judge(out, false, f.o.Workers)
	return out, f.locoOther(s, m, out)
}

func (f *fitter) locoOther(s *Solved, m Selections, out *result.Model) error {
	if len(s.Pool.Configs) < 2 {
		return nil
	}
	for c, key := range s.Pool.Configs {
		beta, err := f.leaveOut(s, int32(c))
		if err != nil {
			return err
		}
		out.Loco = append(out.Loco, leftOut(key, trainErrors(s, ridge.Predict(s.Train, beta), int32(c))))
	}
	out.LocoMedian, out.LocoWorst = spread(out.Loco, func(l result.Loco) *float64 { return l.MAPE })
	return nil
}

// rooflineSlots are those of 1.1: the slots behind them say what a roofline leaves out.
var rooflineSlots = len(features.BetaFeatures(features.V11))

// roofline has no free terms: every hardware time at its peak. Its bias says
// how far from the peak the engine runs.
func (f *fitter) roofline() (*result.Model, error) {
	if f.o.Spec.Base() == features.V10 {
		return nil, fmt.Errorf("the roofline reads 1.1 features")
	}
	p := f.beta
	s := &Solved{Pool: p, Terms: FeatureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), PriorZero)}
	s.Opt = RidgeOptions(s.Terms, EpsBetaUs, f.o)
	s.Data = p.Data.With(f.gamma)
	s.Train = s.Data.Subset(p.Train)
	s.Fit.Beta = make([]float64, len(s.Terms))
	out := &result.Model{
		Name: Roofline, SpecVersion: string(f.o.Spec), Target: f.o.BetaTarget, Rows: RowCounts(p.Tables),
		NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{}, BoundHits: []result.BoundHit{},
		Warnings: []trace.Finding{},
	}
	out.Rows.Holdout = len(p.Hold)
	for j, t := range s.Terms {
		if j < rooflineSlots && t.IsTime && t.Name != NominalTerm {
			s.Fit.Beta[j] = RooflinePrior
		}
		out.Coefficients = append(out.Coefficients, result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.Name, Value: s.Fit.Beta[j], Unit: t.Unit, Identified: coeff.PriorOnly,
		}})
	}
	s.Pred = ridge.Predict(s.Data, s.Fit.Beta)
	s.Judge(out, false, f.o.Workers)
	for c, key := range p.Configs {
		var pred, y float64
		for i, k := range s.Data.Config {
			if k == int32(c) {
				pred, y = pred+s.Pred[i], y+s.Data.Y[i]
			}
		}
		out.Utilisation = append(out.Utilisation, result.Utilisation{Config: key, Share: pred / y})
	}
	return out, nil
}
