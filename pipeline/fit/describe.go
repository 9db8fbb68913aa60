package fit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// describe.go says in a document and in words what a solved model is worth: intervals,
// what its rows tell apart, and warnings.

// Model fills what every fitted model reports: choice, coefficients with
// intervals, identifiability, counts.
func Model(s *Solved, m Selections, o *Options, name, target string) *result.Model {
	out := &result.Model{
		Name: name, SpecVersion: string(o.Spec), Recipe: o.Recipe, Target: target,
		Lambda: result.OrNull(s.Fit.Lambda), GammaEMA: result.OrNull(s.Pool.Gammas[s.Variant]), DFEff: result.OrNull(s.Fit.DF),
		Warnings: append([]trace.Finding{}, s.Findings...), NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{},
	}
	if m.Rel != nil {
		out.Grid = GridPoints(m.Rel)
		sel := m.Rel[s.Variant]
		out.FoldFingerprints = sel.Grid[sel.Index].Fingerprints
		out.NestedCross = result.OrNull(sel.NestedMean())
		out.Certificate = &result.Certificate{MinZeroGradient: result.OrNull(s.Fit.Cert.MinZero), MaxActiveGradient: s.Fit.Cert.MaxActive,
			OK: s.Fit.Cert.OK()}
	}
	if s.Frozen != nil {
		out.Grid = FrozenGrid(m.Frozen, s.Pool.Gammas)
		out.FoldFingerprints = s.Frozen.Grid[s.Frozen.Index].Fingerprints
	}
	if p := s.Polish; p != nil {
		out.Reweighting = &result.Reweighting{Passes: p.Passes, BiasBefore: p.BiasLS, BiasAfter: p.Bias, Kept: p.Kept}
	}
	out.Rows = RowCounts(s.Pool.Tables)
	out.Rows.Holdout = len(s.Pool.Hold)
	coefficients(s, o, out)
	if m.Rel != nil {
		setFolds(out, &m.Rel[s.Variant])
	}
	boundHits(s, out)
	rowGuidance(s, out)
	return out
}

// setFolds gives every coefficient its smallest and largest value over the folds (spec#fold-spread).
func setFolds(out *result.Model, sel *ridge.Selection) {
	for j := range out.Coefficients {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, beta := range sel.FoldBetas {
			lo = math.Min(lo, beta[j])
			hi = math.Max(hi, beta[j])
		}
		if lo <= hi {
			out.Coefficients[j].FoldSpread = &[2]float64{lo, hi}
		}
	}
}

// Evidence is what the rows say about the terms of a solved model. It comes
// from rows, or from Gram matrices alone.
type Evidence struct {
	Tags   []string
	Conf   *ridge.Confidence // nil: no intervals
	Diag   ridge.Diagnosis
	Lo, Hi []float64 // range of each feature on training rows
	Share  []float64 // mean share of the prediction; NaN where unknown
	// Longest is the largest target of one step or wait, us; 0 where only sums are left.
	Longest float64
}

// coefficients fills values, intervals and identifiability.
func coefficients(s *Solved, o *Options, out *result.Model) {
	e := Evidence{Tags: ridge.Identify(s.Train.WithinVariation(s.Weights)), Diag: DiagnoseRows(s, o.Workers), Share: meanShares(s)}
	for j, t := range s.Terms {
		if t.Constant && len(s.Pool.Configs) == 1 {
			e.Tags[j] = coeff.Within
		}
	}
	e.Conf = Confidence(s, e.Tags)
	e.Lo, e.Hi = rows.Ranges(s.Pool.Tables)
	for _, t := range s.Pool.Tables {
		e.Longest = max(e.Longest, slices.Max(append(perStep(t, t.Y), 0)))
	}
	e.Describe(s.Terms, s.Fit, len(s.Pool.Configs), out)
}

// mostOfLongest: a term at its largest training value makes so many times the longest target at most (spec#confidence).
const mostOfLongest = 2

// Describe puts the coefficients of a fit and the warnings about them into out.
func (e *Evidence) Describe(terms []Term, fit ridge.Fit, configs int, out *result.Model) {
	out.ConditionNumber = result.OrNull(e.Diag.Condition)
	var outside []string
	for j, t := range terms {
		c := result.Coefficient{
			Coefficient: coeff.Coefficient{
				Name: t.Name, Value: fit.Beta[j], Unit: t.Unit, Identified: e.Tags[j], Range: &[2]float64{e.Lo[j], e.Hi[j]},
			},
			VIF: result.OrNull(e.Diag.VIF[j]), Share: result.OrNull(e.Share[j]), ImpliedUtilisation: utilisation(&t, fit.Beta[j]),
		}
		if fit.PriorShare != nil {
			c.PriorShare = result.OrNull(fit.PriorShare[j])
		}
		if fit.DFTerm != nil {
			c.DF = result.OrNull(fit.DFTerm[j])
		}
		if e.Conf != nil {
			t := e.Conf.Terms[j]
			if most := mostOfLongest * e.Longest / e.Hi[j]; most > 0 && !math.IsInf(most, 1) {
				cut := func(v float64) float64 { return max(-most, min(v, most)) }
				t.Lo, t.Hi, t.Center = cut(t.Lo), cut(t.Hi), cut(t.Center)
			}
			setInterval(&c.Coefficient, t, e.Conf.Posterior)
		}
		if ci := c.EstimateCI95; ci != nil && (c.Value < ci[0] || c.Value > ci[1]) {
			outside = append(outside, t.Name)
		}
		c.NotLearned = t.IsTime && (c.Value == 0 || e.Tags[j] == coeff.PriorOnly)
		out.Coefficients = append(out.Coefficients, c)
		out.Warnings = append(out.Warnings, termFindings(&t, c, configs, out.Name == "beta")...)
	}
	if len(outside) > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(AtLimit,
			"%s: the penalty or the reweighting moved the value outside the 95 %% interval of the estimate", strings.Join(outside, ", ")))
	}
	if e.Conf != nil {
		out.Covariance = square(e.Conf.Covariance, len(terms))
	}
	if err := e.Diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Findingf(NotIdentified, "what the rows tell apart is not known: %v", err))
	}
	for _, g := range e.Diag.Null {
		sentence := NullSentence(terms, g, configs)
		out.NullDirections = append(out.NullDirections, sentence)
		out.Warnings = append(out.Warnings, trace.Finding{Code: NotIdentified, Message: sentence})
	}
}

// setInterval gives a coefficient the interval of its value and, where the value is not
// the posterior mean, the estimate without penalty with its own (spec#value-interval).
// Nothing where the rows do not say, or say nothing finite.
func setInterval(c *coeff.Coefficient, t ridge.Interval, posterior bool) {
	if t.Method == ridge.FromNothing || result.OrNull(t.Lo) == nil || result.OrNull(t.Hi) == nil {
		return
	}
	lo, hi := t.Holding(c.Value)
	c.CI95 = &[2]float64{lo, hi}
	if posterior {
		c.CI95Given = coeff.GivenPrior
	} else {
		c.Estimate = result.OrNull(t.Center)
		c.EstimateCI95 = &[2]float64{t.Lo, t.Hi}
	}
}

// utilisation is 1e6/coefficient for seconds-like terms (spec#utilisation).
func utilisation(t *Term, value float64) *float64 {
	switch {
	case value <= 0:
		return nil
	case t.IsTime:
		return result.OrNull(RooflinePrior / value)
	case t.PerUs:
		return result.OrNull(1 / value)
	}
	return nil
}

// termFindings are the findings about one coefficient; ofSteps: of the step time, not of a wait.
func termFindings(t *Term, c result.Coefficient, configs int, ofSteps bool) []trace.Finding {
	var out []trace.Finding
	if times, ok := features.RooflineTimes(t.Name, c.Unit, c.Value); ofSteps && ok && times != 0 && !features.IsPlausible(times) {
		out = append(out, trace.Findingf(absorbs, "%s: %.3g times what the hardware takes at its peak, want %g to %g", t.Name, times,
			features.PlausibleTimes[0], features.PlausibleTimes[1]))
	}
	if c.Identified != coeff.Within && c.Range[1] > 0 && configs > 1 {
		out = append(out, trace.Findingf(NotIdentified, "%s does not vary inside any configuration: its value is %s", t.Name, c.Identified))
	}
	if c.NotLearned && c.Range[1] > 0 {
		out = append(out, trace.Findingf(NotIdentified, "%s is %s at %.3g: these data say nothing about its cost", t.Name, c.Identified, c.Value))
	}
	return out
}

// Confidence is nil for recipes without block weights.
func Confidence(s *Solved, tags []string) *ridge.Confidence {
	switch {
	case s.Frozen != nil:
		return nil
	case s.Censored != nil:
		return new(ridge.Blocks(s.Censored.Blocks(s.Train, s.Weights, s.Opt), tags, s.Opt))
	case s.Opt.Posterior:
		return new(s.Train.Posterior(s.Fit, s.Opt))
	}
	return new(s.Train.Confidence(s.Fit, tags, s.Opt))
}

// DiagnoseRows examines the training rows of a solved model.
func DiagnoseRows(s *Solved, workers int) ridge.Diagnosis {
	return DiagnoseGram(ridge.OfRows(s.Train, s.Weights, nil, workers), s.Fit)
}

// DiagnoseGram examines a Gram at a fit made with other weights or without scales.
func DiagnoseGram(g *ridge.Gram, fit ridge.Fit) ridge.Diagnosis {
	if fit.Scale == nil {
		fit.Scale, fit.YBar = g.Scale()
		fit.W = g.W
		fit.Gamma = make([]float64, g.P)
		for j, b := range fit.Beta {
			fit.Gamma[j] = b * fit.Scale[j] / fit.YBar
		}
	} else {
		fit.W = g.W
		fit.Scale, _ = g.Scale()
	}
	return g.Diagnose(fit)
}

// RelErr is sqrt of the weighted relative squared error of the hold-out.
func RelErr(s *Solved, workers int) float64 {
	if len(s.Pool.Hold) == 0 {
		return math.NaN()
	}
	hold := s.Data.Subset(s.Pool.Hold)
	return math.Sqrt(ridge.OfRows(hold, ridge.Weights(hold, s.Opt), nil, workers).Score(s.Fit.Beta))
}

// meanShares are the terms' mean shares of the prediction on training rows.
func meanShares(s *Solved) []float64 {
	sum := make([]float64, len(s.Terms))
	var total float64
	for i := range s.Train.Len() {
		for j, x := range s.Train.Row(i) {
			sum[j] += x * s.Fit.Beta[j]
			total += x * s.Fit.Beta[j]
		}
	}
	for j := range sum {
		sum[j] /= total
	}
	return sum
}

func square(v []float64, p int) [][]float64 {
	out := make([][]float64, p)
	for j := range out {
		out[j] = v[j*p : (j+1)*p]
	}
	return out
}

// RowCounts adds up what tables read, kept and dropped.
func RowCounts(tables []*rows.Table) result.RowCounts {
	out := result.RowCounts{Dropped: map[string]int{}, ByRun: []result.RunRows{}, ByRegime: []result.RegimeRows{}}
	for _, t := range tables {
		r := result.RunRows{Run: t.Run, Read: t.Read, Kept: t.Kept, Dropped: map[string]int{}}
		for _, c := range t.Dropped {
			r.Dropped[string(c.Code)] += c.N
			out.Dropped[string(c.Code)] += c.N
		}
		out.Read += t.Read
		out.Kept += t.Kept
		out.ByRun = append(out.ByRun, r)
		countRegimes(&out, t)
	}
	return out
}

func countRegimes(out *result.RowCounts, t *rows.Table) {
	for i := range t.Kept {
		name := t.Regime[i].String()
		k := slices.IndexFunc(out.ByRegime, func(r result.RegimeRows) bool { return r.Config == t.Config && r.Regime == name })
		if k < 0 {
			k = len(out.ByRegime)
			out.ByRegime = append(out.ByRegime, result.RegimeRows{Config: t.Config, Regime: name})
		}
		out.ByRegime[k].Rows++
		out.ByRegime[k].Steps += int(t.Steps[i])
	}
}

// boundHits counts rows at the bound of a feature (spec#bound-hits).
func boundHits(s *Solved, out *result.Model) {
	out.BoundHits = []result.BoundHit{}
	hits := make([]int, len(s.Terms))
	read := 0
	for _, t := range s.Pool.Tables {
		read += t.Read
		for j, n := range t.Hits {
			hits[j] += n
		}
	}
	for j, n := range hits {
		if n == 0 {
			continue
		}
		h := result.BoundHit{Name: s.Terms[j].Name, Rows: n, Share: float64(n) / float64(read)}
		out.BoundHits = append(out.BoundHits, h)
		if h.Share > 0.001 {
			out.Warnings = append(out.Warnings, trace.Findingf(AtLimit, "%s: %d of %d rows hit its bound (%.2g %%)", h.Name, n, read, 100*h.Share))
		}
	}
}

// rowGuidance warns about configurations with little data.
func rowGuidance(s *Solved, out *result.Model) {
	want := guidanceAlpha
	if out.Name == "beta" {
		want = GuidanceBeta
	}
	counts := make([]int, len(s.Pool.Configs))
	for _, c := range s.Train.Config {
		counts[c]++
	}
	for c, n := range counts {
		if n < want {
			out.Warnings = append(out.Warnings, FewRows(out.Name, s.Pool.Configs[c], n, want))
		}
	}
}

// NullSentence says which terms the rows cannot tell apart, what is known of
// them together, and which experiment would separate them.
func NullSentence(terms []Term, g ridge.NullGroup, configs int) string {
	names := stat.Map(g.Terms, func(j int) string { return terms[j].Name })
	if len(names) == 1 {
		return fmt.Sprintf("%s leaves no mark on these rows; %s would show it", names[0], experimentFor(names))
	}
	list := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	known := fmt.Sprintf("only their sum, %.3g ms of a typical step, is known", g.SumUs/1000)
	switch {
	case g.Dim == 0:
		return fmt.Sprintf("%s nearly move together: %.3g ms of a typical step is known of their sum, little of each; add %s", list,
			g.SumUs/1000, experimentFor(names))
	case g.Dim < len(names)-1:
		known = fmt.Sprintf("%d combinations of them are unknown; together they make %.3g ms of a typical step", g.Dim, g.SumUs/1000)
	}
	return fmt.Sprintf("%s cannot be told apart: %s; add %s", list, known, experimentFor(names))
}

// experimentFor is what separates the first two terms that have such an experiment.
func experimentFor(names []string) string {
	var what []string
	separates, _ := features.Experiments()
	for _, s := range separates {
		if slices.Contains(names, s[0]) {
			what = stat.AppendNew(what, s[1])
		}
	}
	if len(what) == 0 {
		return "runs that vary them separately"
	}
	return strings.Join(what[:min(2, len(what))], ", or ")
}

// Guidance: rows per configuration.
const (
	GuidanceBeta  = 200
	guidanceAlpha = 100
)

// FloorFindings names runs whose target is no step time (spec#target-audit).
func FloorFindings(s *Solved, target string, out *result.Model) {
	for _, table := range s.Pool.Tables {
		if found := TableBelowFloor(table, target); found != nil {
			out.Warnings = append(out.Warnings, *found)
		}
	}
}

// TableBelowFloor is the finding of one run, nil when its target may be a step time.
func TableBelowFloor(t *rows.Table, target string) *trace.Finding {
	y := stat.Median(perStep(t, t.Y))
	floor := stat.Median(perStep(t, t.FloorUs))
	if !(y < floor) {
		return nil
	}
	return new(trace.Findingf(Implausible,
		"%s: the median %s is %.0f us, below the %.0f us that reading the weights once takes at peak bandwidth: it cannot be the "+
			"step time", t.Run, target, y, floor))
}

func perStep(t *rows.Table, v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / t.Steps[i]
	}
	return out
}

// OrderFinding warns of a prediction that falls as tokens are added (spec#err-decode-linear).
func OrderFinding(out *result.Model) {
	value := stat.Keyed(out.Coefficients, func(c result.Coefficient) (string, float64) { return c.Name, c.Value })
	if w, c := value["decode_weight_load"], value["prefill_linear_compute"]; w > c && c > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(Implausible,
			"decode_weight_load %.3g us/s exceeds prefill_linear_compute %.3g us/s: the predicted time can fall as tokens are added", w, c))
	}
}

// DriftFindings name machines that change speed while measured: the signed
// hold-out error of a block leaves ten percent. Of runs that no machine ran there is
// nothing to say.
func DriftFindings(out *result.Model, measured func(run string) bool) {
	worst := map[string]result.DriftBlock{}
	var order []string
	for _, d := range out.Drift {
		w, seen := worst[d.Run]
		if !seen {
			order = append(order, d.Run)
		}
		if !seen || math.Abs(d.Bias) > math.Abs(w.Bias) {
			worst[d.Run] = d
		}
	}
	for _, run := range order {
		if d := worst[run]; math.Abs(d.Bias) > 0.1 && measured(run) {
			direction := "slower"
			if d.Bias > 0 {
				direction = "faster"
			}
			out.Warnings = append(out.Warnings, trace.Findingf(rows.MachineDrift,
				"%s: in block %d of %d of the hold-out the engine ran %s than the training part predicts (signed error %+.0f %%)", run, d.Block,
				DriftBlocks, direction, 100*d.Bias))
		}
	}
}

// FewRows says that a configuration has fewer training rows than the guidance.
func FewRows(model, config string, n, want int) trace.Finding {
	return trace.Findingf(CodeFewRows, "%s: %s has %d training rows, guidance is %d", model, config, n, want)
}

// Keys of a Gram file's meta. Common ones must agree between files; those of a
// run carry its id behind the prefix.
const (
	metaSpec      = "spec_version"
	metaFeatures  = "feature_set"
	metaRecipe    = "recipe"
	metaTarget    = "beta_target"
	metaSplit     = "split"
	metaSchema    = "table_schema"
	metaRunPrefix = "run/"
)

// commonMeta are the keys that must agree, in the order they are compared.
var commonMeta = []string{metaSpec, metaFeatures, metaRecipe, metaTarget, metaSplit, metaSchema}

// gramRun is what a Gram file says about one run beside its sums: everything
// the report of a fit needs that no sum holds.
type gramRun struct {
	runFacts
	Lags [MaxLags]gramLagFigures `json:"lags"`
}

// gramLagFigures are the figures of one run's rows at one lag.
type gramLagFigures struct {
	Read    int            `json:"read"`
	Kept    int            `json:"kept"`
	Dropped map[string]int `json:"dropped"`
	Min     []float64      `json:"feature_min"`
	Max     []float64      `json:"feature_max"`
	Within  []*float64     `json:"within_share"` // v_j inside the run; null for a column of zeros
	// BelowFloor is the finding of a target below the floor; empty when the target may be a step time.
	BelowFloor string `json:"below_floor"`
}

// metaOf is the common part of a file's meta under the given options.
func metaOf(o Options) map[string]string {
	return map[string]string{
		metaSpec: string(o.Spec), metaFeatures: features.SetOf(o.Spec).Hash, metaRecipe: o.Recipe,
		metaTarget: o.BetaTarget, metaSplit: fmt.Sprint(o.Split), metaSchema: table.SchemaVersion,
	}
}

// Save sums the step-time rows of the given runs: per run one unnormalised Gram
// for each regime, fold segment, lag (0, 1, 2) and gamma, and one of the
// hold-out for each regime, lag and gamma. Rows are cleaned run by run, so that
// the sums of a run do not depend on the runs beside it and any split of the
// runs over files merges to the same bits.
func Save(ctx context.Context, sources []Source, o Options, progress trace.Progress) (ridge.File, error) {
	o, err := o.Resolve()
	if err != nil {
		return ridge.File{}, err
	}
	if o.Recipe != Relative {
		return ridge.File{},
			trace.Errorf(rows.BadOption, "--save-gram: got recipe %s, want relative: the frozen recipe has no sums per cell", o.Recipe)
	}
	if sources, err = Without(append([]Source{}, sources...), o.Without); err != nil {
		return ridge.File{}, err
	}
	files := make([]ridge.File, len(sources))
	err = par.Try(ctx, o.Workers, len(sources), func(i int) (err error) {
		files[i], err = gramsOf(sources[i], o)
		return err
	}, func(done int) { progress.Report("grams", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return ridge.File{}, err
	}
	return mergeGrams(files)
}

// gramsOf is the file of one run.
func gramsOf(src Source, o Options) (ridge.File, error) {
	f := ridge.File{Meta: metaOf(o), Runs: []string{src.ID}, Configs: []string{src.Deployment.Config()}}
	for r := rows.Decode; r <= rows.Mixed; r++ {
		f.Regimes = append(f.Regimes, r.String())
	}
	p, steps, space, err := Load(src, o)
	if err != nil {
		return f, err
	}
	info := gramRun{runFacts: p.runFacts}
	for lag := range MaxLags {
		tables, err := lagTables(p, steps, space, lag, o)
		if err != nil {
			return f, err
		}
		for g, t := range tables {
			train, hold, err := gramCells(t, features.Gammas()[g], lag, o)
			if err != nil {
				return f, fmt.Errorf("run %s: %w", src.ID, err)
			}
			f.Sets = append(f.Sets, train, hold)
		}
		base := tables[slices.Index(features.Gammas(), features.DefaultGamma)]
		info.Lags[lag] = lagFigures(base, o)
	}
	text, err := json.Marshal(info)
	f.Meta[metaRunPrefix+src.ID] = string(text)
	return f, err
}

// lagTables are the cleaned rows of one run at one lag, per gamma; a run left
// out has none.
func lagTables(p *Run, steps *rows.Steps, space *features.Space, lag int, o Options) ([]*rows.Table, error) {
	t, err := steps.Beta(space, rows.Options{Target: o.BetaTarget, Lag: lag, Gammas: features.Gammas(), Split: o.Split,
		Saturated: p.Spans, Preempting: true})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{t}, rows.Relative)
	return stat.Map(features.Gammas(), func(gamma float64) *rows.Table { return t.At(gamma) }), nil
}

// gramCells are the sums of a table's training rows and of its hold-out.
func gramCells(t *rows.Table, gamma float64, lag int, o Options) (train, hold *ridge.Cells, err error) {
	opt := RidgeOptions(FeatureTerms(features.BetaFeatures(o.Spec), 1, PriorZero), EpsBetaUs, o)
	opt.Workers = 1
	opt.EmbargoRows = embargo(1)
	empty := ridge.Cells{P: len(opt.Penalty), EpsUs: opt.EpsUs, Folds: opt.Folds, Gamma: gamma, Lag: lag}
	train, hold = new(ridge.Cells), new(ridge.Cells)
	*train, *hold = empty, empty
	train.Embargo = opt.EmbargoRows
	if t.Kept == 0 {
		return train, hold, nil
	}
	p := Pooled([]*rows.Table{t}, nil)
	hold.List = looseCells(p.Data, p.Hold, opt)
	if len(p.Train) <= opt.Folds { // too few for the folds, as in cells.Cut
		train.List = looseCells(p.Data, p.Train, opt)
		return train, hold, nil
	}
	cells, _, err := p.TrainData().Cut(opt)
	if err != nil {
		return nil, nil, err
	}
	train.List = cells[0].List
	return train, hold, nil
}

// looseCells are sums per regime that belong to no fold.
func looseCells(d *ridge.Data, list []int32, o ridge.Options) []ridge.Cell {
	w := d.Unbalanced(o)
	var out []ridge.Cell
	for r := int32(rows.Decode); r <= int32(rows.Mixed); r++ {
		mine := stat.Filter(list, func(i int32) bool { return d.Regime[i] == r })
		if len(mine) > 0 {
			out = append(out, ridge.Cell{CellKey: ridge.CellKey{Regime: r, Block: -1, From: ridge.Never}, Gram: *ridge.OfRows(d, w, mine, 1)})
		}
	}
	return out
}

// lagFigures are the counts, ranges and within-run variation of cleaned rows.
func lagFigures(t *rows.Table, o Options) gramLagFigures {
	out := gramLagFigures{Read: t.Read, Kept: t.Kept, Dropped: map[string]int{}}
	for _, c := range t.Dropped {
		out.Dropped[string(c.Code)] += c.N
	}
	out.Min, out.Max = rows.Ranges([]*rows.Table{t})
	if t.Kept == 0 {
		return out
	}
	p := Pooled([]*rows.Table{t}, nil)
	if len(p.Train) == 0 {
		return out
	}
	train := p.TrainData()
	opt := RidgeOptions(FeatureTerms(features.BetaFeatures(o.Spec), 1, PriorZero), EpsBetaUs, o)
	for _, v := range train.WithinVariation(ridge.Weights(train, opt))[0] {
		out.Within = append(out.Within, result.OrNull(v))
	}
	if found := TableBelowFloor(t, o.BetaTarget); found != nil {
		out.BelowFloor = found.Message
	}
	return out
}

// mergeGrams joins files of other runs; everything common must agree.
func mergeGrams(files []ridge.File) (ridge.File, error) {
	if len(files) == 0 {
		return ridge.File{}, trace.Errorf(rows.BadOption, "--from-gram: got no file, want one or more")
	}
	meta := map[string]string{}
	for _, f := range files {
		if err := sameMeta(files[0].Meta, f.Meta); err != nil {
			return ridge.File{}, err
		}
		for _, k := range slices.Sorted(maps.Keys(f.Meta)) {
			meta[k] = f.Meta[k]
		}
	}
	out, err := ridge.Merge(files...)
	if err != nil {
		return out, refused("%v", err)
	}
	out.Meta = meta
	return out, nil
}

// sameMeta refuses files that other features or another recipe made.
func sameMeta(want, got map[string]string) error {
	for _, k := range commonMeta {
		if want[k] != got[k] {
			return refused("%s: got %q, want %q", k, got[k], want[k])
		}
	}
	return nil
}

func refused(format string, args ...any) error {
	return trace.Errorf(features.WrongFeatureSet, "gram: "+format,
		args...).WithHint("save the Gram files again with one version and one set of options: blis-train fit OUT --save-gram FILE")
}

// withoutRuns drops runs by name from the sums and from the meta.
func withoutRuns(f *ridge.File, names []string) error {
	for _, name := range names {
		if _, known := f.Meta[metaRunPrefix+name]; !known {
			return trace.Errorf(rows.BadOption, "--without: no run %q in the Gram files", name)
		}
		if err := f.WithoutRun(name); err != nil {
			return trace.Errorf(rows.BadOption, "--without: %v", err)
		}
		delete(f.Meta, metaRunPrefix+name)
	}
	return nil
}

// gramFit is a step-time fit from sums alone.
type gramFit struct {
	o       Options
	file    ridge.File
	gammas  []float64
	runs    []gramRun // in the order of file.Runs
	out     *result.Fit
	terms   []Term
	opt     ridge.Options
	configs []int32 // labels with sums
}

// Fit fits the step time from the sums of Grams: the selection, the
// coefficients and their uncertainty are those of the rows; what needs rows
// (reweighting passes, interval targets, MAPE, floor) is absent and said to be.
func FromGrams(ctx context.Context, files []ridge.File, o Options) (*result.Fit, error) {
	o, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	file, err := mergeGrams(files)
	if err != nil {
		return nil, err
	}
	if err := sameMeta(metaOf(o), file.Meta); err != nil {
		return nil, err
	}
	if o.RefitAll {
		return nil, trace.Errorf(rows.BadOption, "refit-all: not with --from-gram: hold-out sums serve the report only")
	}
	if o.Spec.InComponents() {
		return nil, trace.Errorf(rows.BadOption, "--spec %s: not with --from-gram: sums are fitted in their own columns", o.Spec)
	}
	if err := withoutRuns(&file, o.Without); err != nil {
		return nil, err
	}
	g := &gramFit{o: o, file: file, gammas: features.Gammas(), out: &result.Fit{Options: o.Record(),
		FeatureSet: features.SetOf(o.Spec), Alpha: []result.Model{}, Models: []result.Model{}}}
	if err := g.describe(); err != nil {
		return nil, err
	}
	if err := g.fit(); err != nil {
		return nil, err
	}
	g.out.Warnings = append(g.out.Warnings, trace.Finding{Code: ModelSkipped,
		Message: "fitted from Gram files: no reweighting passes, no alpha (interval and delay targets need rows), MAPE, constant " +
			"and floor are unknown"})
	return g.out, ctx.Err()
}

// describe fills runs and configurations from the meta.
func (g *gramFit) describe() error {
	g.runs = make([]gramRun, len(g.file.Runs))
	var ids []string
	var facts []*runFacts
	for k, id := range g.file.Runs {
		r := &g.runs[k]
		text, known := g.file.Meta[metaRunPrefix+id]
		if !known {
			r.Reason = "left out"
			continue
		}
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return refused("run %s: %v", id, err)
		}
		if g.o.Lag != nil {
			r.Lag = result.RunLag{Lag: *g.o.Lag, Measured: r.Lag.Measured && r.Lag.Lag == *g.o.Lag}
		}
		if r.Lag.Lag < 0 || r.Lag.Lag >= MaxLags {
			return refused("run %s: lag %d, want 0 to %d", id, r.Lag.Lag, MaxLags-1)
		}
		if r.Reason == "" && r.Lags[r.Lag.Lag].Kept == 0 {
			r.Reason = "no beta rows"
		}
		r.Findings = append([]trace.Finding{}, r.Findings...)
		ids = append(ids, id)
		facts = append(facts, &r.runFacts)
	}
	describeRuns(g.out, ids, facts)
	return nil
}

// cells are the sums at one gamma, each run at its own lag.
func (g *gramFit) cells(gamma int, hold bool) *ridge.Cells {
	at := func(lag int) *ridge.Cells {
		k := 2 * (lag*len(g.gammas) + gamma)
		if hold {
			k++
		}
		return g.file.Sets[k]
	}
	out := *at(0)
	out.List = nil
	for lag := range MaxLags {
		for _, c := range at(lag).List {
			if r := &g.runs[c.Run]; r.Reason == "" && r.Lag.Lag == lag {
				out.List = append(out.List, c)
			}
		}
	}
	slices.SortStableFunc(out.List, func(a, b ridge.Cell) int {
		if a.Config != b.Config {
			return int(a.Config - b.Config)
		}
		return int(a.Run - b.Run)
	})
	return &out
}

// fit selects gamma and lambda, solves, and reports what sums allow.
func (g *gramFit) fit() error {
	if want := 2 * MaxLags * len(g.gammas); len(g.file.Sets) != want {
		return refused("got %d sets of sums, want %d", len(g.file.Sets), want)
	}
	g.configs = g.cells(0, false).Configs()
	if len(g.configs) == 0 {
		return trace.Errorf(CodeNoRows, "no sums of a run that can be fitted in %d Gram files", len(g.file.Runs))
	}
	g.terms = FeatureTerms(features.BetaFeatures(g.o.Spec), len(g.configs), g.o.Prior)
	g.opt = RidgeOptions(g.terms, EpsBetaUs, g.o)
	sels := make([]ridge.Selection, len(g.gammas))
	for k := range sels {
		c := g.cells(k, false)
		if !slices.ContainsFunc(c.List, func(c ridge.Cell) bool { return c.From != ridge.Never }) {
			return trace.Errorf(CodeNoRows, "no run has the %d rows that folds need", g.opt.Folds+1)
		}
		var err error
		if sels[k], err = c.Select(g.opt); err != nil {
			return err
		}
	}
	gamma, within := ridge.ChooseVariant(sels, features.DefaultGamma)
	total := g.cells(gamma, false).Total(g.opt.MinCellRows)
	fit, err := ridge.Solve(total, sels[gamma].Lambda, g.opt)
	if err != nil {
		return err
	}
	g.report(sels, gamma, total, fit)
	j := slices.IndexFunc(g.terms, func(t Term) bool { return t.Name == preemptionTerm })
	sayGamma(g.gammas, gamma, within, j, &g.out.Beta)
	for _, v := range within {
		if c := &g.out.Beta.Coefficients[j]; v != gamma && c.CI95 != nil {
			tags := slices.Repeat([]string{c.Identified}, len(g.terms))
			unite(&c.Coefficient, ridge.Blocks(g.cells(v, false).Blocks(g.opt.MinCellRows), tags, g.opt).Terms[j])
		}
	}
	return nil
}

// report is the beta part of fit.json.
func (g *gramFit) report(sels []ridge.Selection, gamma int, total *ridge.Gram, fit ridge.Fit) {
	sel := &sels[gamma]
	out := &g.out.Beta
	*out = result.Model{
		Name: "beta", SpecVersion: string(g.o.Spec), Recipe: g.o.Recipe, Target: g.o.BetaTarget,
		Lambda: result.OrNull(sel.Lambda), GammaEMA: result.OrNull(g.gammas[gamma]), Grid: GridPoints(sels),
		DFEff:            result.OrNull(fit.DF),
		FoldFingerprints: sel.Grid[sel.Index].Fingerprints, NestedCross: result.OrNull(sel.NestedMean()),
		Certificate: &result.Certificate{MinZeroGradient: result.OrNull(fit.Cert.MinZero), MaxActiveGradient: fit.Cert.MaxActive,
			OK: fit.Cert.OK()},
		NullDirections: []string{}, Loco: []result.Loco{}, BoundHits: []result.BoundHit{}, Warnings: g.words(sel.Findings),
		PipelineLag: map[string]result.RunLag{},
	}
	g.countRows(out)
	g.evidence(gamma, total, fit).Describe(g.terms, fit, len(g.configs), out)
	setFolds(out, sel)
	g.errors(gamma, sel, fit.Beta, out)
	for k, r := range g.runs {
		if r.Audit.Run == "" {
			continue
		}
		out.TargetAudit = append(out.TargetAudit, r.Audit)
		out.LagEvidence = append(out.LagEvidence, r.Evidence...)
		if r.Reason == "" {
			out.PipelineLag[g.file.Runs[k]] = r.Lag
			if text := r.Lags[r.Lag.Lag].BelowFloor; text != "" {
				out.Warnings = append(out.Warnings, trace.Finding{Code: Implausible, Message: text})
			}
		}
	}
	OrderFinding(out)
}

func (g *gramFit) words(found []ridge.Finding) []trace.Finding {
	p := Pool{Runs: g.file.Runs, Configs: g.file.Configs}
	return append([]trace.Finding{}, p.Words(found)...)
}

// evidence is what sums and meta say about the terms.
func (g *gramFit) evidence(gamma int, total *ridge.Gram, fit ridge.Fit) *Evidence {
	shares := stat.Map(g.configs, func(label int32) []float64 { return g.within(g.file.Configs[label]) })
	e := &Evidence{Tags: ridge.Identify(shares), Diag: DiagnoseGram(total, fit), Share: make([]float64, len(g.terms))}
	e.Conf = new(ridge.Blocks(g.cells(gamma, false).Blocks(g.opt.MinCellRows), e.Tags, g.opt))
	for j := range e.Share {
		e.Share[j] = math.NaN()
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, r := range g.runs {
			if f := r.Lags[r.Lag.Lag]; r.Reason == "" && j < len(f.Min) && j < len(f.Max) {
				lo = math.Min(lo, f.Min[j])
				hi = math.Max(hi, f.Max[j])
			}
		}
		if lo > hi {
			lo, hi = 0, 0
		}
		e.Lo, e.Hi = append(e.Lo, lo), append(e.Hi, hi)
	}
	return e
}

// within is the largest v_j over the runs of a configuration: a term that
// varies inside a run varies inside the configuration.
func (g *gramFit) within(config string) []float64 {
	out := make([]float64, len(g.terms))
	for j := range out {
		out[j] = math.NaN()
		for _, r := range g.runs {
			if w := r.Lags[r.Lag.Lag].Within; r.Reason == "" && r.Config == config && j < len(w) && w[j] != nil && !(out[j] > *w[j]) {
				out[j] = *w[j]
			}
		}
	}
	return out
}

// countRows takes the counts of the meta; read = kept + dropped.
func (g *gramFit) countRows(out *result.Model) {
	out.Rows = result.RowCounts{Dropped: map[string]int{}, ByRun: []result.RunRows{}, ByRegime: []result.RegimeRows{}}
	for k, r := range g.runs {
		if r.Reason != "" {
			continue
		}
		f := r.Lags[r.Lag.Lag]
		out.Rows.Read += f.Read
		out.Rows.Kept += f.Kept
		for code, n := range f.Dropped {
			out.Rows.Dropped[code] += n
		}
		out.Rows.ByRun = append(out.Rows.ByRun, result.RunRows{Run: g.file.Runs[k], Read: f.Read, Kept: f.Kept, Dropped: f.Dropped})
	}
}

// errors are the weighted relative errors: of the hold-out, whole and per run
// and regime, and of every configuration left out.
func (g *gramFit) errors(gamma int, sel *ridge.Selection, beta []float64, out *result.Model) {
	train := g.cells(gamma, false)
	hold := g.cells(gamma, true)
	counts := map[int32]int{}
	for i := range train.List {
		counts[train.List[i].Config] += int(train.List[i].Gram.N)
	}
	for _, c := range g.configs {
		if n := counts[c]; n < GuidanceBeta {
			out.Warnings = append(out.Warnings, FewRows("beta", g.file.Configs[c], n, GuidanceBeta))
		}
	}
	for _, n := range sel.Nested {
		key := g.file.Configs[n.Config]
		out.Loco = append(out.Loco, result.Loco{Config: key, Label: key, Rows: counts[n.Config], RelErr: result.OrNull(math.Sqrt(n.Outer))})
	}
	if len(hold.List) == 0 {
		return
	}
	whole := hold.Total(g.opt.MinCellRows)
	out.Rows.Holdout = int(whole.N)
	out.Holdout = &result.Errors{Rows: int(whole.N), RelErr: result.OrNull(math.Sqrt(whole.Score(beta)))}
	for i := range hold.List {
		c := &hold.List[i]
		out.Cells = append(out.Cells, result.Cell{Run: g.file.Runs[c.Run], Config: g.file.Configs[c.Config], Regime: g.file.Regimes[c.Regime],
			Errors: result.Errors{Rows: int(c.Gram.N), RelErr: result.OrNull(math.Sqrt(c.Gram.Score(beta)))}})
	}
}
