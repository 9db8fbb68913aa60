package fit

// This file fits the step time to Gram files, the sums over rows that gramfile.go wrote, without the
// rows themselves.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// FitGrams returns a fit of the step time from Gram files. Selection, coefficients and intervals
// are computed as from rows. Figures that need rows (reweighting passes, delays, MAPE, floor) are
// absent, and a warning of the document lists them.
func FitGrams(ctx context.Context, files []ridge.File, o Options) (*result.Fit, error) {
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
	g := &gramFit{
		o:      o,
		file:   file,
		gammas: features.Gammas(),
		out: &result.Fit{
			Options:    o.Record(),
			FeatureSet: features.SetOf(o.Spec),
			Alpha:      []result.Model{},
			Models:     []result.Model{},
		},
	}
	if err := g.describeRuns(); err != nil {
		return nil, err
	}
	if err := g.fitStepTime(); err != nil {
		return nil, err
	}
	g.out.Warnings = append(g.out.Warnings, trace.Finding{
		Code: ModelSkipped,
		Message: "fitted from Gram files: no reweighting passes, no alpha (interval and delay targets need rows), " +
			"MAPE, constant and floor are unknown",
	})
	return g.out, ctx.Err()
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

// describeRuns sets g.runs from the Gram file's metadata, and describes the runs and configurations in
// fit.json.
func (g *gramFit) describeRuns() error {
	g.runs = make([]gramRun, len(g.file.Runs))
	var ids []string
	var facts []*runFacts
	for k, id := range g.file.Runs {
		r := &g.runs[k]
		text, known := g.file.Meta[metaRunPrefix+id]
		if !known { // withoutRuns removed it; its labels stay, and the document does not list it
			r.Reason = "left out"
			continue
		}
		if err := trace.UnmarshalJSON([]byte(text), r); err != nil {
			return gramRefusal("run %s: %v", id, err)
		}
		if g.o.Lag != nil {
			r.Lag = result.RunLag{Lag: *g.o.Lag, Measured: r.Lag.Measured && r.Lag.Lag == *g.o.Lag}
		}
		if r.Lag.Lag < 0 || r.Lag.Lag >= reconstruct.Lags {
			return gramRefusal("run %s: lag %d, want 0 to %d", id, r.Lag.Lag, reconstruct.Lags-1)
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

// cellsAt returns the Gram matrices of all usable runs, each run at the lag that was measured for
// it: of the hold-out if hold is set, otherwise of the training part. gamma is a position in
// g.gammas. A Gram file stores its sets by lag, then by gamma, the training part before the hold-out.
func (g *gramFit) cellsAt(gamma int, hold bool) *ridge.Cells {
	setAt := func(lag int) *ridge.Cells {
		k := 2 * (lag*len(g.gammas) + gamma)
		if hold {
			k++
		}
		return g.file.Sets[k]
	}
	out := *setAt(0)
	out.List = nil
	for lag := range reconstruct.Lags {
		for _, c := range setAt(lag).List {
			r := &g.runs[c.Run]
			if r.Reason == "" && r.Lag.Lag == lag {
				out.List = append(out.List, c)
			}
		}
	}
	stat.SortStable(out.List, func(a, b ridge.Cell) int {
		if a.Config != b.Config {
			return int(a.Config - b.Config)
		}
		return int(a.Run - b.Run)
	})
	return &out
}

// fitStepTime selects gamma and lambda, solves, and describes the answer.
func (g *gramFit) fitStepTime() error {
	if want := 2 * reconstruct.Lags * len(g.gammas); len(g.file.Sets) != want {
		return gramRefusal("got %d sets of sums, want %d", len(g.file.Sets), want)
	}
	g.configs = g.cellsAt(0, false).Configs()
	if len(g.configs) == 0 {
		return trace.Errorf(CodeNoRows, "no sums of a run that can be fitted in %d Gram files", len(g.file.Runs))
	}
	g.terms = featureTerms(features.BetaFeatures(g.o.Spec), len(g.configs), g.o.Prior)
	g.opt = ridgeOptions(g.terms, EpsBetaUs, g.o)
	g.o.setSelection(&g.opt)
	cells := make([]*ridge.Cells, len(g.gammas))
	for k := range cells {
		cells[k] = g.cellsAt(k, false)
		c := cells[k]
		if !slices.ContainsFunc(c.List, func(c ridge.Cell) bool { return c.From != ridge.Never }) {
			return trace.Errorf(CodeNoRows, "no run has the %d rows that folds need", g.opt.Folds+1)
		}
	}
	usual := slices.Index(g.gammas, features.DefaultGamma)
	forms, form, err := chooseForm(cells, g.terms, usual, &g.opt)
	if err != nil {
		return err
	}
	sels := forms[form].sels
	gamma, within := ridge.ChooseVariant(sels, features.DefaultGamma)
	total := g.cellsAt(gamma, false).Total(g.opt.MinCellRows)
	fit, err := ridge.Solve(total, sels[gamma].Lambda, g.opt)
	if err != nil {
		return err
	}
	g.describeModel(sels, gamma, total, fit)
	g.out.Beta.Candidates = describeForms(forms, form, gamma)
	g.out.Beta.Warnings = append(g.out.Beta.Warnings, limitFindings(g.terms, g.opt.Upper, fit.Beta)...)
	j := slices.IndexFunc(g.terms, func(t Term) bool { return t.Name == preemptionTerm })
	noteGamma(g.gammas, gamma, within, j, &g.out.Beta)
	// The interval of the preemption term includes those at every gamma that is as good
	// (spec#gamma-choice).
	for _, v := range within {
		c := &g.out.Beta.Coefficients[j]
		if v == gamma || c.CI95 == nil {
			continue
		}
		tags := slices.Repeat([]string{c.Identified}, len(g.terms))
		other := ridge.Blocks(g.cellsAt(v, false).Blocks(g.opt.MinCellRows), tags, g.opt)
		widenInterval(&c.Coefficient, other.Terms[j])
	}
	return nil
}

// describeModel fills the beta part of fit.json.
func (g *gramFit) describeModel(sels []ridge.Selection, gamma int, total *ridge.Gram, fit ridge.Fit) {
	sel := &sels[gamma]
	names := Pool{Runs: g.file.Runs, Configs: g.file.Configs}
	out := &g.out.Beta
	*out = result.Model{
		Name:             "beta",
		SpecVersion:      string(g.o.Spec),
		Recipe:           g.o.Recipe,
		Target:           g.o.BetaTarget,
		Lambda:           result.OrNull(sel.Lambda),
		GammaEMA:         result.OrNull(g.gammas[gamma]),
		Grid:             GridPoints(sels),
		DFEff:            result.OrNull(fit.DF),
		FoldFingerprints: sel.Grid[sel.Index].Fingerprints,
		NestedCross:      result.OrNull(sel.NestedMean()),
		Certificate:      certificateOf(&fit),
		NullDirections:   []string{},
		Loco:             []result.Loco{},
		BoundHits:        []result.BoundHit{},
		Warnings:         ofModel("beta", names.Words(sel.Findings)),
		PipelineLag:      map[string]result.RunLag{},
	}
	g.countRows(out)
	g.termEvidence(gamma, total, fit).Describe(g.terms, fit, len(g.configs), out)
	setFoldSpreads(out, sel)
	warnRepeatedFolds(out)
	g.describeErrors(gamma, sel, fit.Beta, out)
	for k, r := range g.runs {
		if r.Audit.Run == "" { // a run without facts: left out
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
	orderFinding(out)
}

// termEvidence returns the evidence about the terms from sums and the metadata of the runs.
func (g *gramFit) termEvidence(gamma int, total *ridge.Gram, fit ridge.Fit) *termEvidence {
	var shares [][]float64
	for _, label := range g.configs {
		shares = append(shares, g.withinVariation(g.file.Configs[label]))
	}
	evidence := &termEvidence{
		Tags:  ridge.Identify(shares),
		Diag:  DiagnoseGram(total, fit),
		Share: make([]float64, len(g.terms)),
	}
	evidence.Conf = new(ridge.Blocks(g.cellsAt(gamma, false).Blocks(g.opt.MinCellRows), evidence.Tags, g.opt))
	for j := range evidence.Share {
		evidence.Share[j] = math.NaN()
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, r := range g.runs { // a run without training rows has no ranges
			if f := r.Lags[r.Lag.Lag]; r.Reason == "" && j < len(f.Min) && j < len(f.Max) {
				lo = math.Min(lo, f.Min[j])
				hi = math.Max(hi, f.Max[j])
			}
		}
		if lo > hi {
			lo, hi = 0, 0
		}
		evidence.Lo = append(evidence.Lo, lo)
		evidence.Hi = append(evidence.Hi, hi)
	}
	return evidence
}

// withinVariation returns, for each term, the largest share of its variation that lies within a run of
// the configuration (v_j of spec#identified; NaN: no row has the term). A term that varies inside a
// run varies inside the configuration.
func (g *gramFit) withinVariation(config string) []float64 {
	out := make([]float64, len(g.terms))
	for j := range out {
		out[j] = math.NaN()
	}
	for _, r := range g.runs {
		if r.Reason != "" || r.Config != config {
			continue
		}
		within := r.Lags[r.Lag.Lag].Within
		for j := range out {
			if j < len(within) && within[j] != nil && !(out[j] > *within[j]) {
				out[j] = *within[j]
			}
		}
	}
	return out
}

// countRows adds up the row counts of the metadata; read = kept + dropped.
func (g *gramFit) countRows(out *result.Model) {
	out.Rows = noRowCounts()
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
		out.Rows.ByRun = append(out.Rows.ByRun, result.RunRows{
			Run:     g.file.Runs[k],
			Read:    f.Read,
			Kept:    f.Kept,
			Dropped: f.Dropped,
		})
	}
}

// describeErrors sets the weighted relative errors: of the hold-out, as a whole and by run and
// regime, and of configurations held out in turn. Sums of squares do not give a MAPE.
func (g *gramFit) describeErrors(gamma int, sel *ridge.Selection, beta []float64, out *result.Model) {
	train := g.cellsAt(gamma, false)
	hold := g.cellsAt(gamma, true)
	counts := map[int32]int{}
	for i := range train.List {
		counts[train.List[i].Config] += int(train.List[i].Gram.N)
	}
	for _, c := range g.configs {
		if n := counts[c]; n < GuidanceBeta {
			out.Warnings = append(out.Warnings, trace.Finding{
				Code:    CodeFewRows,
				Message: report.FewTrainingRows("beta", g.file.Configs[c], n, GuidanceBeta),
			})
		}
	}
	for _, n := range sel.Nested {
		key := g.file.Configs[n.Config]
		out.Loco = append(out.Loco, result.Loco{
			Config: key,
			Label:  key,
			Rows:   counts[n.Config],
			RelErr: result.OrNull(math.Sqrt(n.Outer)),
		})
	}
	if len(hold.List) == 0 {
		return
	}
	whole := hold.Total(g.opt.MinCellRows)
	out.Rows.Holdout = int(whole.N)
	out.Holdout = &result.Errors{Rows: int(whole.N), RelErr: result.OrNull(math.Sqrt(whole.Score(beta)))}
	for i := range hold.List {
		c := &hold.List[i]
		out.Cells = append(out.Cells, result.Cell{
			Run:    g.file.Runs[c.Run],
			Config: g.file.Configs[c.Config],
			Regime: g.file.Regimes[c.Regime],
			Errors: result.Errors{Rows: int(c.Gram.N), RelErr: result.OrNull(math.Sqrt(c.Gram.Score(beta)))},
		})
	}
}
