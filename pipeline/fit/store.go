package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

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
				names, err = append(names, name), w.add(storedRows, t)
			}
		}
		add(betaTable, q.Beta)
		add(frozenTable, q.Frozen)
		for _, target := range o.AlphaTargets {
			add(target, q.Alpha[target])
		}
		q.Beta, q.Frozen, q.Alpha = nil, nil, nil
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
		p.Beta, p.Frozen, p.Alpha = nil, nil, nil
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
