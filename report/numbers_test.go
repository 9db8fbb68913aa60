package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// texts returns the texts of the known cells of each row, with the line below a text in parentheses.
func texts(t *Table) (rows []string) {
	for _, r := range t.Rows {
		var cells []string
		for _, c := range r.Cells {
			text := strings.ReplaceAll(c.Text, "\u00a0", " ")
			if c.Sub != "" {
				text += " (" + c.Sub + ")"
			}
			if text != Unknown && text != "" {
				cells = append(cells, text)
			}
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	return rows
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// blockTexts returns the sentences, lists and facts of blocks, those of folded parts included.
func blockTexts(bs []Block) (out []string) {
	for _, b := range bs {
		if b.Heading != "" {
			out = append(out, "# "+b.Heading)
		}
		if b.Text != "" {
			out = append(out, b.Text)
		}
		out = append(out, b.List...)
		for _, f := range b.Facts {
			out = append(out, f.Name+": "+strings.ReplaceAll(f.Value, "\u00a0", " "))
		}
		if b.Fold != nil {
			out = append(out, "> "+b.Fold.Title)
			out = append(out, blockTexts(b.Fold.Blocks)...)
		}
	}
	return out
}

// TestWhatIsMissing: the sentence of each section for which there is no document, and for which the document has
// nothing.
func TestWhatIsMissing(t *testing.T) {
	of := func(in Input) (out []string) {
		for _, s := range Sections(in) {
			if s.Missing != "" {
				out = append(out, s.ID+": "+s.Missing)
			}
		}
		return out
	}
	const (
		noVerdict = "verdict: No validation.json: run `blis-train validate --fit fit.json OUT` to test the coefficients on held-out steps and by replay."
		noAudit   = "audit: No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		noFit     = "coefficients: No fit.json: run `blis-train fit OUT` to make coefficients."
		noReplay  = "replay: No validation.json: run `blis-train validate --fit fit.json OUT` to replay the runs."
		noInspect = "data: No inspect.json: run `blis-train inspect OUT -o OUT` for losses, clocks, saturation and coverage. The tables of the other stages follow."
	)
	sameLines(t, "nothing", of(Input{}), []string{noVerdict, "data: No inspect.json, extract.json or fit.json: run `blis-train inspect OUT -o OUT` for the data-quality report.", noAudit, noFit,
		"fit: No fit.json: run `blis-train fit OUT`.", noReplay, "provenance: No result was given."})
	sameLines(t, "a fit of steps", of(Input{Fit: &result.Fit{}}), []string{noVerdict, noInspect, noAudit, noReplay})
	sameLines(t, "a fit of requests", of(Input{Fit: &result.Fit{Requests: &result.RequestLevel{}}}), []string{noVerdict, noInspect,
		"audit: No steps were recorded: the coefficients were fitted to requests or load levels, and there is no step time to audit.", noReplay})
	sameLines(t, "an inspection", of(Input{Inspect: &result.Inspect{}}), []string{noVerdict, noAudit, noFit, "fit: No fit.json: run `blis-train fit OUT`.", noReplay})
	v := &result.Validation{}
	v.Options.StepsOnly = true
	sameLines(t, "steps alone", of(Input{Validation: v}), []string{"data: No inspect.json, extract.json or fit.json: run `blis-train inspect OUT -o OUT` for the data-quality report.", noAudit, noFit,
		"replay: Validated with --steps-only: nothing was replayed."})
	v.Options.StepsOnly = false
	if got := of(Input{Validation: v}); len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

// TestRowsOfDelays: the errors of a delay over all rows, of those that queued or not, of long ones, and run by run.
func TestRowsOfDelays(t *testing.T) {
	f := &result.Fit{Alpha: []result.Model{
		{Name: "queue", TargetErrors: &result.TargetErrors{Rows: 1234, MAPE: ptr(0.11), MedianAPE: ptr(0.12), MAPEConst: ptr(0.13), MAPEFloor: ptr(0.14), WAPE: ptr(0.15), MAPEWindow10s: ptr(0.16), ConstWindow: ptr(0.17),
			Regimes: []result.RegimeErrors{{Regime: "idle", Rows: 5, MAPE: ptr(0.21), MAPEConst: ptr(0.22), MAPEFloor: ptr(0.23), WAPE: ptr(0.24)}, {Regime: "waiting", Rows: 6, MAPE: ptr(0.31)}},
			Long:    &result.RegimeErrors{Regime: "long", Rows: 7, WAPE: ptr(0.41)}},
			AlphaRuns: []result.AlphaRun{{Run: "r1", Errors: &result.TargetErrors{Rows: 8, MAPE: ptr(0.51)}}, {Run: "none"}}},
		{Name: "overhead", Interval: &result.IntervalErrors{Rows: 9, InsideShare: ptr(0.61), InformativeRows: 10, MedianWidthUs: ptr(2500.0), MedianPredUs: ptr(1750.0), ExactWAPE: ptr(0.62)}},
		{Name: "unknown"},
	}}
	bs := alphaTables(f)
	if len(bs) != 2 {
		t.Fatalf("got %d tables", len(bs))
	}
	sameLines(t, "all", texts(bs[0].Table), []string{
		"queue | 1,234 | 11.0 % | 12.0 % | 13.0 % | 14.0 % | 15.0 % | 16.0 % | 17.0 %",
		"queue, served at once | 5 | 21.0 % | 22.0 % | 23.0 % | 24.0 %", "queue, queued | 6 | 31.0 %", "queue, a second or longer | 7 | 41.0 %",
		"overhead | 9 | 61.0 % | 10 | 2.5 | 1.75 | 62.0 %",
	})
	sameLines(t, "by run", texts(bs[1].Table), []string{"r1 | queue | 8 | 51.0 %"})
	// Without frozen coefficients the legend of the cross-validation has one key less.
	f.Beta.Loco = []result.Loco{{Config: "k", MAPE: ptr(0.5)}, {Label: "none"}}
	if fig := locoFigure(f); len(fig.Legend) != 2 || len(fig.Panels) == 0 {
		t.Errorf("got %d keys", len(fig.Legend))
	}
	f.Beta.Loco[0].MAPEFrozen10 = ptr(0.6)
	if fig := locoFigure(f); len(fig.Legend) != 3 {
		t.Errorf("got %d keys", len(fig.Legend))
	}
	sameLines(t, "loco", texts(locoTable(f)), []string{"k | 0 | 50.0 % | 60.0 %", "none | 0"})
}

// TestAuditOfAnInspection: without a fit, audits and lags are those of the inspection.
func TestAuditOfAnInspection(t *testing.T) {
	a := &result.TargetAudit{Run: "a", DurationUsP50: ptr(1100.0), CadenceUsP50: ptr(2200.0), PhysicalFloorUs: ptr(3300.0), ArrivedToQueuedUs: result.Quantiles{P50: ptr(4400.0), P90: ptr(5500.0)},
		QueuedToScheduledUs: result.Quantiles{P50: ptr(6600.0), P90: ptr(7700.0)}, Verdict: "fine"}
	in := Input{Inspect: &result.Inspect{Runs: []result.InspectRun{{ID: "a", Audit: a}, {ID: "b"}}}}
	s := auditSection(in, nil)
	sameLines(t, "audit", blockTexts(s.Blocks), []string{"> For experts: medians of the stamps and evidence of the lag, run by run",
		"No lag evidence was recorded for 1 run: it needs intervals with more than 64 prefill tokens."})
	sameLines(t, "medians", texts(s.Blocks[0].Fold.Blocks[0].Table), []string{"a | 1.1 | 2.2 | 3.3 | 4.4 | 5.5 | 6.6 | 7.7 | fine"})
	in.Inspect.Runs[0].LagEvidence = []result.LagEvidence{{Run: "a", Lag: 1, HoldoutMAPEPrefill: ptr(0.05), N: 85, Verdict: "measured"}, {Run: "a", Lag: 2, N: 86}}
	in.Inspect.Runs[0].Lag = &result.RunLag{Lag: 1, Measured: true}
	in.Inspect.Runs[1].LagEvidence = []result.LagEvidence{{Run: "b", Lag: 0, HoldoutMAPEPrefill: ptr(0.07), N: 87}}
	in.Inspect.Runs[1].Lag = &result.RunLag{}
	s = auditSection(in, nil)
	if len(s.Blocks) != 1 {
		t.Fatalf("got %d blocks", len(s.Blocks))
	}
	sameLines(t, "lags", texts(s.Blocks[0].Fold.Blocks[1].Table), []string{"a | 1 | 5.0 % | 85 | measured | used, measured", "a | 2 | 86", "b | 0 | 7.0 % | 87 | used, assumed"})
	// An error that is unknown or 0, and a lag beyond the three that are tried, are not drawn.
	in.Inspect.Runs[0].LagEvidence = append(in.Inspect.Runs[0].LagEvidence, result.LagEvidence{Run: "a", Lag: 3, HoldoutMAPEPrefill: ptr(0.1)}, result.LagEvidence{Run: "a", Lag: 0, HoldoutMAPEPrefill: ptr(0.0)})
	drawn := string(lagFigure(in).SVG())
	for tip, want := range map[string]int{"a: lag 1 5.0\u00a0%, 85 intervals, used": 1, "b: lag 0 7.0\u00a0%, 87 intervals, used": 1, "lag 3": 0, "a: lag 0": 0, "a: lag 2": 0} {
		if got := strings.Count(drawn, tip); got != want {
			t.Errorf("%s: got %d marks, want %d", tip, got, want)
		}
	}
}

// TestWordsOfAModel: how a model was selected and how well its terms are known, in the words that experts read.
func TestWordsOfAModel(t *testing.T) {
	m := result.Model{Name: "beta", Target: "cadence", Lambda: ptr(0.0031), GammaEMA: ptr(0.21), GammaIdentified: ptr(false), DFEff: ptr(6.74), ConditionNumber: ptr(812.4), Coefficients: make([]result.Coefficient, 9),
		Certificate: &result.Certificate{MaxActiveGradient: 2.14e-12}, FoldFingerprints: []string{"a", "b", "a"},
		Candidates:  []result.Candidate{{Name: "bounded", Score: ptr(0.0004)}, {Name: "few-terms", Score: ptr(0.0009), Chosen: true}, {Name: "unbounded"}},
		Reweighting: &result.Reweighting{Passes: 6, BiasBefore: ptr(-0.04), BiasAfter: ptr(0.01)}}
	want := []string{"Target: cadence", "Penalty λ: 0.0031", "Preemption memory γ: 0.21, the default: not identified", "Effective degrees of freedom: 6.74 of 9 terms", "Condition number: 812",
		"Optimality certificate: BROKEN (largest active gradient 2.14e-12)", "Folds: 3, but only 2 distinct: NOT a cross-validation", "Forms compared: bounded 2.0 %, few-terms 3.0 % (chosen)",
		"Reweighting: 6 passes, not kept; bias −4.0 % before, +1.0 % after"}
	sameLines(t, "facts", blockTexts(expertBlocks(m)), want)
	m.GammaIdentified, m.DFEff, m.Lambda, m.Certificate.OK, m.Candidates, m.Reweighting.Kept, m.FoldFingerprints = ptr(true), nil, nil, true, nil, true, []string{"a", "b"}
	sameLines(t, "facts", blockTexts(expertBlocks(m)), []string{want[0], "Preemption memory γ: 0.21", want[4], "Optimality certificate: holds (largest active gradient 2.14e-12)",
		"Folds: 2, all with coefficients of their own", "Reweighting: 6 passes, kept; bias −4.0 % before, +1.0 % after"})

	f := &result.Fit{Recipes: []result.RecipeScore{{Spec: "1.1", Prior: "zero", RelErr: ptr(0.061), HeldOut: "blocks"},
		{Spec: "1.2", Prior: "library", RelErr: ptr(0.032), HeldOut: "configurations", Chosen: true, Uncalibrated: ptr(0.093)}}}
	sameLines(t, "recipes", blockTexts(recipeBlocks(f)), []string{"Recipes, compared by cross-validation on the training part:", "spec 1.1 without a prior: 6.1\u00a0% relative error on blocks held out",
		"spec 1.2 with the library's prior: 3.2\u00a0% relative error on configurations held out, chosen", "uncalibrated, the library alone: 9.3\u00a0% on the same steps, which it never saw"})

	var us = func(value float64, ci ...float64) result.Coefficient {
		c := result.Coefficient{Coefficient: coeff.Coefficient{Name: "t", Value: value, Unit: "us", Identified: coeff.Within}}
		if len(ci) == 2 {
			c.CI95 = &[2]float64{ci[0], ci[1]}
		}
		return c
	}
	for _, c := range []struct {
		of   result.Coefficient
		want string
	}{
		{us(5, 1, 30), coeff.Within}, {us(5, 1, 30.1), "loosely known"}, {us(5, 0, 3), "loosely known"}, {us(-5, -30, -1), coeff.Within}, {us(-5, -30.1, -1), "loosely known"}, {us(-5, -3, 0), "loosely known"},
		{us(1, -1, 2), "loosely known"}, {us(1), coeff.Within},
	} {
		if got := identification(&c.of); got != c.want {
			t.Errorf("%v: got %s, want %s", c.of.CI95, got, c.want)
		}
	}
	prior := us(1, -1, 2)
	prior.Identified = "prior-only"
	prior.NotLearned = true
	if got := identifiedCell(prior); got != (Cell{Text: "prior-only", Sub: "not learned", Class: "nb na"}) {
		t.Errorf("got %+v", got)
	}
	if got := identifiedCell(us(1)); got != (Cell{Text: coeff.Within, Class: "nb"}) {
		t.Errorf("got %+v", got)
	}
	term := us(1500, 1200, 1900)
	term.Estimate, term.FoldSpread, term.CI95Given, term.Share, term.ImpliedUtilisation = ptr(1600.0), &[2]float64{1300, 1400}, "prior", ptr(0.2), ptr(1.01)
	term.PriorShare, term.DF, term.VIF, term.Range = ptr(0.3), ptr(0.4), ptr(5.6), &[2]float64{0, 0.031}
	m = result.Model{Name: "beta", Coefficients: []result.Coefficient{term, us(0)}, BoundHits: []result.BoundHit{{Name: "none"}, {Name: "t", Rows: 3, Share: 0.004}}}
	sameLines(t, "terms", texts(coefficientTable(m)), []string{"1 | t | 1.6 | 1.2 .. 1.9 (given the prior) | 1.3 .. 1.4 | 1.5 | ms | 20.0 % | ▲ 1.01 | within", "2 | t | 0 | ms | within"})
	sameLines(t, "for experts", texts(expertTable(m)), []string{"t | 30.0 % | 0.4 | 5.6 | 0 .. 0.031", "t"})
	sameLines(t, "bounds", texts(boundTable(m)), []string{"t | 3 | 0.4 %"})
	if rows := coefficientTable(m).Rows; rows[0].Class != "" || rows[1].Class != "dim" || rows[0].Cells[9].Class != "n ko" {
		t.Errorf("got %+v", rows)
	}
	if got := utilisationCell(ptr(1.0)); got.Text != "1" || got.Class != "n" {
		t.Errorf("got %+v", got)
	}
	m.BoundHits = m.BoundHits[:1]
	if boundTable(m) != nil {
		t.Error("no row at its bound: got a table")
	}
	m.Name = "queue"
	sameLines(t, "a delay", texts(coefficientTable(m))[:1], []string{"1 | t | 1.6 | 1.2 .. 1.9 (given the prior) | 1.3 .. 1.4 | 1.5 | ms | 20.0 % | within"})
	f = &result.Fit{Beta: result.Model{Name: "beta", Coefficients: make([]result.Coefficient, 4), Holdout: &result.Errors{MAPE: ptr(0.1), WAPE: ptr(0.2), Bias: ptr(0.3), P95APE: ptr(0.4)}, LocoMedian: ptr(0.5), LocoWorst: ptr(0.6)},
		Models: []result.Model{{Name: "blackbox"}}}
	sameLines(t, "models", texts(alternativeBlocks(f)[0].Table), []string{"physics (this artifact) | 4 | 10.0 % | 20.0 % | 30.0 % | 40.0 % | 50.0 % | 60.0 %", "blackbox | 0"})
	// The bar of an interval is 102 wide: from 0 to twice the value or, of one that contains 0 or has a value below
	// it, from -2 to +2 times the value with a mark at 0.
	for _, c := range []struct {
		of          result.Coefficient
		left, right float64
		lines       int
	}{{us(10, 5, 15), 4 + 102*0.25, 4 + 102*0.75, 2}, {us(10, 0, 15), 4, 4 + 102*0.75, 2}, {us(10, -10, 20), 4 + 102*0.25, 106, 3}, {us(-10, -15, -5), 4 + 102*0.125, 4 + 102*0.375, 3}} {
		bar := intervalBar(c.of)
		rect := fmt.Sprintf(`<rect x="%s" y="2.5" width="%s" height="9"`, trimmed(fmt.Sprintf("%.1f", c.left)), trimmed(fmt.Sprintf("%.1f", c.right-c.left)))
		if !strings.Contains(bar, rect) || strings.Count(bar, "<path") != c.lines {
			t.Errorf("%v: got %s, want %s and %d lines", *c.of.CI95, bar, rect, c.lines)
		}
	}
	if intervalBar(us(0, 1, 2)) != "" || intervalBar(us(1)) != "" {
		t.Error("got a bar without a value or an interval")
	}
}

// TestRowsOfReplays: what each comparison has, how its replay was set up, and how it ended.
func TestRowsOfReplays(t *testing.T) {
	metric := func(base float64) *result.Metric {
		return &result.Metric{KSD: base + 0.001, NReal: 1200, DAtQuantile: base + 0.002, PAsymptotic: base + 0.003, MedianRelErr: base + 0.004, MedianRelErrPaired: ptr(base + 0.005), PairedErr: &result.Estimate{Value: -base - 0.006},
			WassersteinMs: 3.14, RealVsRealD: ptr(base + 0.007), BeyondD: ptr(base + 0.008), ChanceBeyondD: ptr(base + 0.009), RealMs: result.SampleStats{P50: 1, P90: 2, P99: 3, Mean: 4}, SimMs: result.SampleStats{P50: 5, P90: 6, P99: 7, Mean: 8}}
	}
	v := &result.Validation{Runs: []result.ValidationRun{
		{ID: "late", Phase: "2", Split: result.Split{Kind: result.SplitInSample}, Requests: 44, Metrics: &result.Metrics{E2E: metric(0.2)}, Load: "closed", Saturated: true, SaturationHits: []string{"x", "y"},
			Replayed: 55, Excluded: map[string]int{"failed": 3}, Replay: &result.ReplayQuality{KnownBatchesShare: ptr(0.91), IdenticalBatchesShare: ptr(0.82), Steps: 1234, ClippedPredictions: 5, Notes: []string{"m", "n"}}},
		{ID: "good", Split: result.Split{Kind: result.SplitHoldout, Test: 0.2}, Requests: 33, Metrics: &result.Metrics{TTFT: metric(0.1), ITLGap: metric(0.3)}, Load: "open",
			MetricsNoise: &result.Metrics{TTFT: metric(0.5)}, MetricsDrift: &result.Metrics{TTFT: metric(0.6)}},
		{ID: "steps"},
	}}
	sameLines(t, "compared", texts(comparedTable(v)), []string{"good | hold-out, last 20 % | 33 | 0.101 | 10.5 %", "late · 2 | in-sample | 44 | 0.201 | 20.5 %"})
	if rows := comparedTable(v).Rows; rows[0].Class != "" || rows[1].Class != "dim" {
		t.Errorf("got %+v", rows)
	}
	bs := metricTables(v)
	if len(bs) != 2 || bs[0].Table.Closed || !bs[1].Table.Closed {
		t.Fatalf("got %d tables", len(bs))
	}
	sameLines(t, "gated", texts(bs[0].Table), []string{
		"good | hold-out, last 20 % | TTFT | 1,200 | 0.101 | 0.501 | 0.601 | 0.107 | 0.108 | 0.109 | 10.2 % | 0.1 | 10.4 % | 50.4 % | 60.4 % | 10.5 % | −10.6 % | 3.14",
		"good | hold-out, last 20 % | ITL gaps | 1,200 | 0.301 | 0.307 | 0.308 | 0.309 | 30.2 % | 0.3 | 30.4 % | 30.5 % | −30.6 % | 3.14",
	})
	if bs[0].Table.Rows[0].Class != "" || bs[0].Table.Rows[1].Class != "dim" {
		t.Errorf("got %+v", bs[0].Table.Rows)
	}
	sameLines(t, "others", texts(bs[1].Table), []string{"late · 2 | in-sample | E2E | 1,200 | 0.201 | 0.207 | 0.208 | 0.209 | 20.2 % | 0.2 | 20.4 % | 20.5 % | −20.6 % | 3.14"})
	sameLines(t, "quantiles", texts(quantileTable(v)), []string{"late · 2 · in-sample | E2E | 1 | 5 | 2 | 6 | 3 | 7 | 4 | 8", "good · last 20 % | TTFT | 1 | 5 | 2 | 6 | 3 | 7 | 4 | 8"})
	sameLines(t, "replays", texts(replayTable(v)), []string{"late · 2 | in-sample | closed | yes (x, y) | no | 55 | 44 | failed 3 | 91.0 % | 82.0 % | 1,234 | 5 | m; n",
		"good | hold-out, last 20 % | open | no | yes | 0 | 33 | none | 0 | 0", "steps | no | no | 0 | 0 | none | 0 | 0"})
	for want, s := range map[string]result.Split{"all, cross-fitted": {Kind: result.SplitCrossFitted}, "unseen run": {Kind: result.SplitTestRun}, "load levels, held out": {Kind: result.SplitLevels}, "x": {Kind: "x"}} {
		if got := splitWords(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := overheadWords(result.ValidationOptions{OverheadUs: ptr(1750.0)}); got != "constant 1.75 ms" {
		t.Errorf("got %q", got)
	}
	if got := overheadWords(result.ValidationOptions{}); got != "the artifact's overhead coefficients" {
		t.Errorf("got %q", got)
	}
}

// TestReplaysDrawn: eight comparisons have curves, those that gate first, then by the largest distance.
func TestReplaysDrawn(t *testing.T) {
	v := &result.Validation{}
	for i := range 9 {
		v.Runs = append(v.Runs, result.ValidationRun{ID: fmt.Sprint(i), Saturated: i == 8, Metrics: &result.Metrics{ITL: &result.Metric{KSD: float64(i)}}, Figures: &result.RunFigures{ECDF: make([]result.Curve, 1)}})
	}
	v.Runs = append(v.Runs, result.ValidationRun{ID: "no curves", Figures: &result.RunFigures{}}, result.ValidationRun{ID: "no figures"})
	order := func() (ids, more string) {
		runs, more := replayRuns(Input{Validation: v})
		for _, r := range runs {
			ids += r.ID
		}
		return ids, more
	}
	if ids, more := order(); ids != "76543210" || more != "8 of 9 comparisons: those that gate first, then the largest plain KS; the table holds all." {
		t.Errorf("got %s, %q", ids, more)
	}
	v.Runs = v.Runs[1:]
	if ids, more := order(); ids != "76543218" || more != "" {
		t.Errorf("got %s, %q", ids, more)
	}
	// Times over more than a factor of 30 are drawn on a logarithmic axis.
	for want, s := range map[string]Span{"TTFT (ms)": {Lo: 1, Hi: 30, Ok: true}, "TTFT (ms, logarithmic)": {Lo: 1, Hi: 30.1, Ok: true}} {
		if got := timeAxis("TTFT", s); got.Label != want {
			t.Errorf("got %s, want %s", got.Label, want)
		}
	}
	if got := timeAxis("TTFT", Span{Lo: 0, Hi: 30, Ok: true}); got.Label != "TTFT (ms)" {
		t.Errorf("got %s", got.Label)
	}
}

// TestTablesOfGates: each gate is in the table of its result; passed ones are folded away once there are more than 40.
func TestTablesOfGates(t *testing.T) {
	of := func(name, scope string, value float64, required bool, purposes ...string) result.Gate {
		g := gateOf(name, scope, "<", value, 0.15)
		g.Required = required
		g.Purposes = purposes
		g.Source = "why"
		if value < 0 {
			g.Value, g.Pass, g.Note = nil, nil, "note of "+scope
		}
		return g
	}
	v := &result.Validation{For: "replay", Verdict: coeff.VerdictInsufficient, Gates: []result.Gate{of("beta_mape", "ok", 0.12, true), of("bias", "open", -1, true), of("ks_itl", "bad", 0.3, true, "replay"), of("ks_ttft", "elsewhere", 0.4, true, "waits"), of("unheard", "rest", -1, false)}}
	tables := func() map[string][]string {
		out := map[string][]string{}
		for _, b := range gateTables(v) {
			out[b.Table.ID] = texts(b.Table)
		}
		return out
	}
	got := tables()
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"gates", "gates-open", "gates-others", "gates-rest"}) {
		t.Errorf("got %v", keys)
	}
	sameLines(t, "judged", got["gates"], []string{"FAIL | ks_itl (" + gate.Named("ks_itl").What + ") | 0.300 | < 0.15 (why) | bad", "pass | beta_mape (" + gate.Named("beta_mape").What + ") | 12.0 % | < 15 % (why) | ok"})
	sameLines(t, "others", got["gates-others"], []string{"FAIL | ks_ttft (" + gate.Named("ks_ttft").What + ") | 0.400 | < 0.15 (why) | elsewhere"})
	sameLines(t, "open", got["gates-open"], []string{"no data | bias (" + gate.Named("bias").What + ") | < 15 % (why) | open (note of open)"})
	sameLines(t, "rest", got["gates-rest"], []string{"not required | unheard | < 0.15 (why) | rest (note of rest)"})
	for i := range 37 {
		v.Gates = append(v.Gates, of("bias", fmt.Sprint(i), 0.01, true))
	}
	if got := tables(); len(got["gates"]) != 39 || len(got["gates-passed"]) != 0 {
		t.Errorf("40 with a result: got %d and %d", len(got["gates"]), len(got["gates-passed"]))
	}
	v.Gates = append(v.Gates, of("bias", "one more", 0.01, true))
	if got := tables(); len(got["gates"]) != 1 || len(got["gates-passed"]) != 39 {
		t.Errorf("41 with a result: got %d and %d", len(got["gates"]), len(got["gates-passed"]))
	}
	for _, b := range gateTables(v) {
		if want := b.Table.ID != "gates" && b.Table.ID != "gates-open"; b.Table.Closed != want {
			t.Errorf("%s: got folded %v", b.Table.ID, b.Table.Closed)
		}
		if b.Table.ID == "gates" && b.Table.Caption != "Gates that failed" {
			t.Errorf("got %s", b.Table.Caption)
		}
	}
	v.Verdict = coeff.VerdictFail
	for _, b := range gateTables(v) {
		if b.Table.ID == "gates-open" && !b.Table.Closed {
			t.Error("failed: the gates without data are not folded")
		}
	}
	g := of("bias", "c", 0.3, true)
	if gateBarKey(g) != "2" || gateBarKey(of("bias", "c", -1, true)) != "" {
		t.Errorf("got %s", gateBarKey(g))
	}
	// The bar of a gate is 110 wide and ends at twice the threshold.
	for value, want := range map[float64]string{0.15: `width="55"`, 0.075: `width="27.5"`, 0.4: `width="110"`} {
		if bar := gateBar(of("bias", "c", value, true)); strings.Count(bar, want) != 1+strings.Count(want, "110")*2 {
			t.Errorf("%g: got %s", value, bar)
		}
	}
	g.Threshold = 0
	if gateBarKey(g) != "" || gateBar(g) != "" {
		t.Error("a threshold of 0: got a bar")
	}
}

// TestCardsOfTheVerdict: the figures at the top, with what they are compared with.
func TestCardsOfTheVerdict(t *testing.T) {
	in := Input{Fit: &result.Fit{Beta: result.Model{Holdout: &result.Errors{MAPE: ptr(0.051), MAPEConst: ptr(0.22), MAPEFloor: ptr(0.033), Skill: ptr(0.84)}, LocoWorst: ptr(0.12), LocoMedian: ptr(0.055)}},
		Validation: &result.Validation{Gates: []result.Gate{gateOf("beta_mape", "c", "<", 0.2, 0.15), gateOf("bias", "c", "<", 0.04, 0.03), gateOf("beta_max_error", "c", "<", 2, 3), gateOf("paired_err_ttft", "a", "<", 0.03, 0.1),
			gateOf("paired_err_ttft", "b", "<", 0.08, 0.1), gateOf("median_rel_err_ttft", "b", "<", 0.5, 0.1), gateOf("median_rel_err_itl", "l", "<", 0.31, 0.2)}}}
	show := func() (out []string) {
		for _, b := range cardBlocks(in) {
			for _, c := range b.Cards {
				out = append(out, strings.ReplaceAll(strings.TrimRight(c.Name+" | "+c.Value+" | "+c.Sub+" | "+c.Class, " |"), "\u00a0", " "))
			}
		}
		return out
	}
	what := gate.Named("bias").What
	sameLines(t, "all", show(), []string{"Step time, held-out steps | 5.1 % | MAPE; best constant 22.0 %, noise floor 3.3 % | bad", "Skill | 0.84 | 0 = best constant, 1 = noise floor", "Unseen configuration, worst | 12.0 % | MAPE; median 5.5 %",
		strings.ToUpper(what[:1]) + what[1:] + " | 4.0 % | c; must be < 3 % | bad", "Replay, signed error of TTFT | 8.0 % | b; must be < 10 % | good", "Load levels, median error of ITL | 31.0 % | l; must be < 20 % | bad"})
	in.Validation.Gates[0].Pass = nil
	in.Validation.Gates = in.Validation.Gates[:1]
	in.Fit.Beta.LocoWorst = nil
	sameLines(t, "few", show(), []string{"Step time, held-out steps | 5.1 % | MAPE; best constant 22.0 %, noise floor 3.3 % | warn", "Skill | 0.84 | 0 = best constant, 1 = noise floor"})
	in.Fit.Beta.Holdout = nil
	sameLines(t, "none", show(), nil)
}

// TestCausesOnThePage: each cause with its term, regime and figure; after eight the others are counted.
func TestCausesOnThePage(t *testing.T) {
	in := Input{Inspect: &result.Inspect{}, Validation: &result.Validation{Diagnoses: []result.Diagnosis{
		{Scope: "c", Gates: []string{"bias", "ks_itl"}, Cause: result.CauseModelError, Term: "kv_cache_read", Regime: "mixed", Sentence: "c: it is wrong", Figure: "pred_vs_measured"},
		{Scope: "d", Cause: "unheard", Sentence: "x", Figure: "saturation"}, {Scope: "e", Cause: result.CauseLag, Sentence: "y", Figure: "drift"}}}}
	bs := causeBlocks(in, []*Figure{{ID: "pred-vs-measured", Title: "of the fit"}, {ID: "test-pred-vs-measured", Title: "of the validation"}})
	want := []cause{{"The model is wrong: term kv_cache_read, regime mixed", "c", "It is wrong.", "bias, ks_itl", "fig-test-pred-vs-measured", "of the validation"},
		{"unheard", "d", "X.", "", "saturation", "the saturation checks"}, {"Steps are joined to the wrong batches", "e", "Y.", "", "", ""}}
	if len(bs) != 2 || bs[0].Heading != "Why gates failed" || !slices.Equal(bs[1].Causes, want) {
		t.Errorf("got %+v", bs)
	}
	in.Inspect = nil
	if got := causeBlocks(in, nil)[1].Causes; got[1].Anchor != "" || got[0].Anchor != "" {
		t.Errorf("no figures: got %+v", got)
	}
	for i := range 5 {
		in.Validation.Diagnoses = append(in.Validation.Diagnoses, result.Diagnosis{Sentence: fmt.Sprint(i)})
	}
	if got := causeBlocks(in, nil); len(got) != 2 || len(got[1].Causes) != 8 {
		t.Errorf("eight: got %+v", got)
	}
	in.Validation.Diagnoses = append(in.Validation.Diagnoses, result.Diagnosis{Sentence: "ninth"}, result.Diagnosis{Sentence: "tenth"})
	if got := causeBlocks(in, nil); len(got) != 3 || len(got[1].Causes) != 8 || got[2].Text != "And 2 more in validation.json, diagnoses." {
		t.Errorf("ten: got %+v", got)
	}
	// Required gates without a result are listed where the verdict is a failure, which the other gates decide.
	open := gateOf("ks_ttft", "run", "<", 0, 0.15)
	open.Pass, open.Note = nil, "few"
	in.Validation = &result.Validation{Verdict: coeff.VerdictFail, Missing: []string{"x"}, Gates: []result.Gate{open}}
	sameLines(t, "a failure", blockTexts(verdictSection(in, figureSet{}).Blocks), []string{"# Gates without enough data", "ks_ttft of run: few"})
	in.Validation.Verdict = coeff.VerdictInsufficient
	sameLines(t, "too few data", blockTexts(verdictSection(in, figureSet{}).Blocks), nil)
	in.Validation.Verdict, in.Validation.Missing = coeff.VerdictFail, nil
	sameLines(t, "nothing is missing", blockTexts(verdictSection(in, figureSet{}).Blocks), nil)
}

// TestNextForEachCause: what each cause asks for, and what follows from a failure without one.
func TestNextForEachCause(t *testing.T) {
	of := func(verdict string, ds ...result.Diagnosis) string {
		return strings.Join(Next(Input{Validation: &result.Validation{Verdict: verdict, Diagnoses: ds}}), "\n")
	}
	const compare = "Compare run.yaml with the server's log"
	for _, c := range []struct{ got, want string }{
		{of("fail", result.Diagnosis{Cause: result.CauseLag, Scope: "a"}), "Fit a again: its steps show another lag than the one used."},
		{of("fail", result.Diagnosis{Cause: result.CauseHardware, Scope: "a"}, result.Diagnosis{Cause: result.CauseScheduler, Scope: "b"}), compare + " for a, b: device, KV blocks, scheduler limits."},
		{of("fail", result.Diagnosis{Cause: result.CauseSpeed, Scope: "a"}), "Compare the device, its clock and power limit, and the release of vLLM of a with those that the coefficients were fitted on, and fit what differs by itself."},
		{of("fail", result.Diagnosis{Cause: result.CauseUnseenRegime, Scope: "a"}), "Record loads like that of the failing steps, a: the fit contains none."},
		{of("fail", result.Diagnosis{Cause: result.CauseUnseenRegime, Regime: "mixed"}), "Record loads like that of the failing steps, mixed steps: the fit contains none."},
		{of("fail", result.Diagnosis{Cause: result.CauseUnseenRegime, Term: "t"}), "Record loads like that of the failing steps, t: the fit contains none."},
		{of("fail", result.Diagnosis{Cause: result.CauseMachineDrift, Scope: "a, phase 2"}), "The machine changed speed during a, phase 2: repeat the recording on a quiet machine."},
		{of("fail"), compare + " (device, KV blocks, scheduler limits), and record the loads with the largest errors again."},
		{of("insufficient"), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	// Batches are reproduced from nine of ten on, in every run that was compared.
	for _, c := range []struct {
		shares []*float64
		want   bool
	}{{nil, false}, {[]*float64{nil}, false}, {[]*float64{ptr(0.9), nil}, true}, {[]*float64{ptr(0.9), ptr(0.899)}, false}} {
		v := &result.Validation{Runs: []result.ValidationRun{{}}}
		for _, s := range c.shares {
			v.Runs = append(v.Runs, result.ValidationRun{Replay: &result.ReplayQuality{IdenticalBatchesShare: s}})
		}
		if got := reproducesBatches(v); got != c.want {
			t.Errorf("got %v of %v", got, c.shares)
		}
	}
	// A replay that cannot be judged is named unless the verdict is that data are missing.
	v := &result.Validation{Verdict: coeff.VerdictPass, Runs: []result.ValidationRun{{ID: "a"}, {ID: "r", Phase: "2", Undecided: "nothing states the cache"}}}
	if got := Next(Input{Validation: v}); len(got) != 2 || got[0] != "The replay of r 2 cannot be validated: nothing states the cache." {
		t.Errorf("got %q", got)
	}
	v.Verdict = coeff.VerdictInsufficient
	if got := Next(Input{Validation: v}); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	if Next(Input{}) != nil {
		t.Error("nothing: got steps")
	}
	// No machine ran a recording that was composed.
	f := &result.Fit{Configs: []result.FitConfig{{Runs: []string{"made"}, Deployment: deploy.Deployment{Provenance: "composed"}}, {Runs: []string{"real", "other"}}},
		Warnings: []trace.Finding{trace.Findingf("machine_drift", "made: slower"), trace.Findingf("lag_assumed", "other: x"), trace.Findingf("machine_drift", "no run")},
		Beta:     result.Model{Warnings: []trace.Finding{trace.Findingf("machine_drift", "real: faster"), trace.Findingf("machine_drift", "real: slower")}}}
	if got := driftedRuns(f); !slices.Equal(got, []string{"real"}) {
		t.Errorf("got %q", got)
	}
}

// TestNextForWaits: how many times as long a recording with enough windows of queueing delays is.
func TestNextForWaits(t *testing.T) {
	undecided := func(scope string) result.PurposeVerdict {
		return result.PurposeVerdict{PurposeVerdict: coeff.PurposeVerdict{Purpose: coeff.PurposeWaits, Scope: scope, Verdict: coeff.VerdictInsufficient}}
	}
	waits := func(scope string, windows int) result.ConfigErrors {
		return result.ConfigErrors{Scope: scope, Alpha: &result.AlphaErrors{Admission: &result.TargetErrors{Windows: windows}}}
	}
	v := &result.Validation{Configs: []result.ConfigErrors{waits("a", 6), waits("b", 4), {Scope: "c"}, waits("decided", 1)}, Purposes: []result.PurposeVerdict{undecided("a"), undecided("b"), undecided("c")}}
	most := gate.FewestValues
	for windows, want := range map[int]string{
		4:        fmt.Sprintf("Record about %d times as long to decide waits (4 of %d held-out windows).", int(math.Ceil(float64(most)/4)), most),
		0:        fmt.Sprintf("Record about %d times as long to decide waits (1 of %d held-out windows).", most, most),
		most:     fmt.Sprintf("Record about %d times as long to decide waits (6 of %d held-out windows).", int(math.Ceil(float64(most)/6)), most),
		most + 1: fmt.Sprintf("Record about %d times as long to decide waits (6 of %d held-out windows).", int(math.Ceil(float64(most)/6)), most),
	} {
		v.Configs[1].Alpha.Admission.Windows = windows
		if got := NextForWaits(v); got != want {
			t.Errorf("%d: got %q, want %q", windows, got, want)
		}
	}
	// The gates that only waits need are covered by it.
	open := gateOf("admission_window_mape", "a", "<", 0, 0.25)
	open.Pass, open.Note, open.Purposes = nil, gate.InsufficientData, []string{coeff.PurposeWaits}
	v.Verdict, v.Gates = coeff.VerdictPass, []result.Gate{open}
	if got := Next(Input{Validation: v}); len(got) != 2 || !strings.HasPrefix(got[1], "Record about") {
		t.Errorf("got %q", got)
	}
	v.Gates[0].Purposes = []string{coeff.PurposeWaits, coeff.PurposeReplay}
	if got := Next(Input{Validation: v}); len(got) != 3 || !strings.HasPrefix(got[2], "Record longer: 1 gate has no verdict") {
		t.Errorf("got %q", got)
	}
	v.Purposes = nil
	if got := NextForWaits(v); got != "" {
		t.Errorf("decided: got %q", got)
	}
}

// TestOptionsAndInputs: how the documents were made, and which files they were made from.
func TestOptionsAndInputs(t *testing.T) {
	o := result.FitOptions{Spec: "1.1", Recipe: "relative", BetaTarget: "cadence", Objective: "cross", Split: 0.8, Seed: 7, Bootstraps: 500, Prior: "zero"}
	facts := []string{"Spec: 1.1", "Recipe: relative", "Beta target: cadence", "Objective: cross", "Training share: 80 %", "Seed: 7", "Bootstrap samples: 500", "Prior: zero"}
	sameLines(t, "options", blockTexts([]Block{{Facts: fitOptions(o)}}), facts)
	o.RefitAll, o.Without = true, []string{"a"}
	sameLines(t, "all options", blockTexts([]Block{{Facts: fitOptions(o)}}), append(facts, "Refit: on all rows, hold-out included", "Without: a"))
	sameLines(t, "of a validation", blockTexts([]Block{{Facts: validationOptions(result.ValidationOptions{Latency: "physics", Split: 0.75, Seed: 9})}}),
		[]string{"Replay latency model: physics", "Replay overhead: the artifact's overhead coefficients", "Replay split: 75 %", "Replay seed: 9"})
	a, b := result.Input{Name: "a", Bytes: 1234, SHA256: "x"}, result.Input{Name: "b", Bytes: 5, SHA256: "y"}
	docs := []document{{"one.json", result.Header{Inputs: []result.Input{a, b, a}}}, {"two.json", result.Header{Inputs: []result.Input{a}}}}
	sameLines(t, "inputs", texts(inputTable(docs)), []string{"a | 1,234 | x | one.json, two.json", "b | 5 | y | one.json"})
	in := Input{Fit: &result.Fit{Header: result.Header{ToolVersion: "v1", SchemaVersion: "3", Command: "fit", Inputs: []result.Input{a}}}, Extract: &result.Extract{Header: result.Header{ToolVersion: "v0", SchemaVersion: "2"}}}
	s := provenanceSection(in)
	sameLines(t, "documents", texts(s.Blocks[0].Table), []string{"extract.json | blis-train v0 | 2 | 0", "fit.json | blis-train v1 | 3 | 1 | fit"})
	sameLines(t, "commands", s.Blocks[4].Code, []string{"blis-train fit", "blis-train check coefficients.yaml --data PARENT --refit   # exit 3: other bytes"})
}

// TestListsAreCut: how many are named, and the line that counts the others.
func TestListsAreCut(t *testing.T) {
	eight := map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 6, "h": 8000, "zero": 0}
	if got := Reasons(eight); got != "h 8,000, f 6, g 6, e 5, d 4, c 3, b 2, a 1" {
		t.Errorf("got %q", got)
	}
	eight["i"], eight["j"] = -1, -2
	if got := Reasons(eight); got != "h 8,000, f 6, g 6, e 5, d 4, c 3, b 2, a 1, and 2 other reasons" {
		t.Errorf("got %q", got)
	}
	lines := []string{"a", "b", "c"}
	if got := FirstOf(lines, 3, "x"); !slices.Equal(got, lines) {
		t.Errorf("got %q", got)
	}
	if got := FirstOf(lines, 1, "x"); !slices.Equal(got, []string{"a", "and 2 more in x"}) {
		t.Errorf("got %q", got)
	}
	if got := listOf(lines, 3) + ", " + listOf(lines, 2); got != "a, b, c, a, b and 1 more" {
		t.Errorf("got %q", got)
	}
	if got := sentence("éa.") + sentence("b") + sentence(""); got != "Éa.B." {
		t.Errorf("got %q", got)
	}
	var fs []trace.Finding
	for i := range 8 {
		fs = append(fs, trace.Findingf("x", "%d", i/2*2))
	}
	fs = append(fs, trace.Findingf("y", "other"))
	g := groupFindings(fs, []trace.Finding{trace.Findingf("x", "5"), trace.Findingf("x", "6"), trace.Findingf("x", "7"), trace.Findingf("x", "0")})
	if len(g) != 2 || g[0].Count != 12 || g[0].More != 1 || strings.Join(g[0].Messages, "") != "02465" || g[1].Count != 1 || g[1].More != 0 {
		t.Errorf("got %+v", g)
	}
	bs := FindingBlocks("Found", fs)
	if len(bs) != 1 || bs[0].Fold.Title != "Found (9)" || FindingBlocks("Found") != nil {
		t.Errorf("got %+v", bs)
	}
	var codes []trace.Finding
	for i := range 41 {
		codes = append(codes, trace.Findingf(trace.Code(fmt.Sprint(i)), "x"))
	}
	if got := groupFindings(codes); len(got) != 40 {
		t.Errorf("got %d", len(got))
	}
	if got := FindingBlocks("Found", codes)[0].Fold.Title; got != "Found (41)" {
		t.Errorf("got the title %s", got)
	}
	table := NewTable("id", "caption", "# N [s] ? why", "name")
	if want := []Column{{Head: "N", Unit: "s", Help: "why", Num: true}, {Head: "name"}}; !slices.Equal(table.Cols, want) {
		t.Errorf("got %+v", table.Cols)
	}
	for i := range 150 {
		table.Grow(func() Row { return Row{Cells: []Cell{Count(i), Plain("x")}} })
	}
	if Capped(table, "how", "where"); table.More != "" || len(table.Rows) != 150 {
		t.Errorf("got %d, %q", len(table.Rows), table.More)
	}
	table.Grow(func() Row { t.Error("a full table got a row"); return Row{} })
	if Capped(table, "how", "where"); table.More != "150 of 151 rows shown, how; all of them are in where." || len(table.Rows) != 150 {
		t.Errorf("got %d, %q", len(table.Rows), table.More)
	}
	if n := table.First(148); n != 2 || len(table.Rows) != 148 || table.First(148) != 0 {
		t.Errorf("got %d of %d", n, len(table.Rows))
	}
	if c := ZeroDim(0); c.Class != "n dim" || c.Text != "0" || ZeroDim(1200).Text != "1,200" || ZeroDim(1).Class != "n" {
		t.Errorf("got %+v", c)
	}
	if c := millis(ptr(1250.0)); c.Text != "1.25" || c.Key != "1250" || c.Class != "n" {
		t.Errorf("got %+v", c)
	}
}

// TestRowsOfRuns: what each inspected run has, whether it can be used, and why not.
func TestRowsOfRuns(t *testing.T) {
	i := &result.Inspect{Runs: []result.InspectRun{
		{ID: "a", Model: "m", Hardware: "h", TP: 2, SpanS: ptr(302.4), Requests: result.InspectRequests{Total: 1200, Failed: 3, Aborted: 4, Preempted: 5, APIUnlinked: 6, CoreMissing: 7}, Losses: result.InspectLosses{RecordedStepShare: ptr(0.98), DroppedSpanEvents: 8, RecordsDropped: ptr(9), MissingSteps: 10, AdjacentShare: ptr(0.97), OrphanSnapshots: 11},
			Steps: result.StepQuality{KnownShare: ptr(0.96), Contradictions: 12}, Clocks: result.InspectClocks{Engines: 13, OffsetS: ptr(14.5), OffsetSpreadMs: ptr(0.25), NegativeIntervals: 15},
			Saturation: []result.SaturationCheck{{Name: "ttft_drift", Value: ptr(2.5), Threshold: 2, Hit: true}}},
		{ID: "b", Unfit: true, Reason: "no steps", Points: 3, Saturated: true, Saturation: []result.SaturationCheck{{Name: "ttft_drift", Threshold: 2}, {Name: "e2e_p99_over_p50", Value: ptr(4.0), Threshold: 10}}},
		{ID: "c", Saturated: true, Points: 1},
	}}
	sameLines(t, "runs", texts(inspectTable(i)), []string{"a | fit | m · h · tp2 | 302 | 1,200 | 3 | 4 | 5 | 98.0 % | 96.0 %", "b | unfit |  ·  · tp0 | 3 load levels | 0 | 0 | 0", "c | saturated |  ·  · tp0 | 1 load level | 0 | 0 | 0"})
	sameLines(t, "losses", texts(lossTable(i)), []string{"a | 6 | 7 | 12 | 8 | 9", "b | 0 | 0 | 0 | 0", "c | 0 | 0 | 0 | 0"})
	sameLines(t, "clocks", texts(clockTable(i)), []string{"a | 13 | 14.5 | 0.25 | 15 | 10 | 97.0 % | 11", "b | 0 | 0 | 0 | 0", "c | 0 | 0 | 0 | 0"})
	s := saturationTable(i)
	sameLines(t, "saturation", texts(s), []string{"a | no | ▲ 2.5", "b | yes | 4", "c | yes"})
	if s.Cols[2].Head != "TTFT drift" || s.Cols[2].Unit != "≤ 2" || s.Cols[3].Head != "E2E P99 over P50" || s.Rows[0].Cells[2].Class != "n ko" || s.Rows[1].Cells[3].Class != "n" {
		t.Errorf("got %+v", s)
	}
	sameLines(t, "unfit", blockTexts(unfitBlocks(i)), []string{"# Runs that cannot be used", "b: no steps"})
	i.Runs[1].Unfit = false
	if unfitBlocks(i) != nil || saturationTable(&result.Inspect{Runs: make([]result.InspectRun, 1)}) != nil {
		t.Error("none: got blocks")
	}
	f := &result.Fit{Configs: []result.FitConfig{{Key: "k", Label: "label"}}, Runs: []result.FitRun{{ID: "a", Config: "k", Used: true, Steps: result.StepQuality{Recorded: 3000, KnownShare: ptr(0.9), FromSnapshots: 11, Reconstructed: 12, Contradictions: 13}}, {ID: "b", Config: "z", Reason: "saturated"}}}
	f.Beta.Name = "beta"
	f.Beta.Rows = result.RowCounts{Read: 21, Kept: 20, Holdout: 19, Dropped: map[string]int{"gap": 1}, ByRun: []result.RunRows{{Run: "a", Read: 14, Kept: 15, Dropped: map[string]int{"warm_up": 16}}}}
	f.Alpha = []result.Model{{Name: "queue", Rows: result.RowCounts{Read: 5, Kept: 4, Holdout: 3}}}
	sameLines(t, "fitted", texts(fitRunTable(f)), []string{"a | yes | 14 | 15 | warm_up 16 | label | 3,000 | 90.0 % | 11 | 12 | 13", "b | no (saturated) | 0 | 0 | none | z | 0 | 0 | 0 | 0"})
	sameLines(t, "rows", texts(rowTable(f)), []string{"beta | 21 | 20 | 19 | gap 1", "queue | 5 | 4 | 3 | none"})
	e := &result.Extract{Totals: result.ExtractTotals{Records: result.Records{Read: 1000, Kept: 998, Dropped: map[string]int64{"x": 2}}, BytesRead: 4096}, Runs: []result.ExtractRun{{ID: "a", Files: []result.ExtractFile{{Input: result.Input{Bytes: 1000}}, {Input: result.Input{Bytes: 234}}},
		Records: result.Records{Read: 31, Kept: 32, BadFrac: 0.33, Dropped: map[string]int64{"y": 34}}, Steps: result.ExtractSteps{StepTotals: result.StepTotals{Summaries: 35, Missing: 36}}, Requests: result.ExtractRequests{Engine: 30, Stock: 7, APILinked: 38},
		Losses: result.Losses{DroppedSpanEvents: 39, TruncatedMessages: 40, DuplicateSpans: 41}, Examples: []result.Example{{Reason: "y", Place: "f:1", What: "bad"}}}}}
	bs := recordBlocks(e)
	if len(bs) != 3 || bs[0].Text != "1,000 records read from 4,096 bytes: 998 kept, dropped: x 2." {
		t.Fatalf("got %+v", bs)
	}
	sameLines(t, "records", texts(bs[1].Table), []string{"a | 2 | 1,234 | 31 | 32 | y 34 | 33.0 % | 35 | 36 | 37 | 38 | 39 | 40 | 41"})
	sameLines(t, "examples", texts(bs[2].Table), []string{"a | y | f:1 | bad"})
}

// TestFitToRequests: which directions the data decided, what was fitted, and how far off each load level is.
func TestFitToRequests(t *testing.T) {
	r := fromLevels()
	bs := learnedBlocks(&result.Fit{Requests: r})
	sameLines(t, "facts", blockTexts(bs), []string{"# Fitted to requests, without step times", "Recorded: requests, points", "Loads: 2, of 127 requests", "Prior: library", "Decided: 1 of 2 directions", "Objective: 0.031", "of which noise: 0.0042",
		"Prompts in the prefix cache: " + r.CachedShare.String() + ": nothing states it"})
	sameLines(t, "directions", texts(bs[2].Table), []string{"beta/bias, beta/kv_cache_read | 97.0 % | data", "overhead/bias | 12.0 % | prior | requests that find an idle server"})
	sameLines(t, "levels", texts(bs[3].Table), []string{"c1 | 50 | 45 | −10.0 % | 8 | 8.8 | +10.0 %", "c8 | 90 | 12 | 11.5 | −4.2 %", "c64 | 40"})
	sameLines(t, "loads", texts(bs[4].Table), []string{"a | requests | 120", "b | points | 7"})
	r.Levels[0].TTFTMs = ptr(0.0)
	sameLines(t, "levels", texts(levelTable(r.Levels))[:1], []string{"c1 | 0 | 45 | 8 | 8.8 | +10.0 %"})
}

// TestFiguresAreCut: how many panels, rows and names a figure shows, and the note that counts the others.
func TestFiguresAreCut(t *testing.T) {
	check := func(what string, f *Figure, panels int, more string) {
		t.Helper()
		if f == nil || len(f.Panels) != panels || f.More != more {
			t.Errorf("%s: got %+v, want %d panels and %q", what, f, panels, more)
		}
	}
	var runs []result.InspectRun
	for i := range 16 {
		runs = append(runs, result.InspectRun{ID: fmt.Sprint(i), Series: &result.LoadSeries{BinS: 2, Running: []*float64{ptr(1.0)}}})
	}
	runs = append(runs, result.InspectRun{Series: &result.LoadSeries{}}, result.InspectRun{})
	check("16 runs", loadFigure(Input{Inspect: &result.Inspect{Runs: runs}}), 15, "The first 15 of 16 runs.")
	check("15 runs", loadFigure(Input{Inspect: &result.Inspect{Runs: runs[1:]}}), 15, "")
	f := &result.FitFigures{}
	for i := range 13 {
		r := fmt.Sprint(i)
		f.Residuals = append(f.Residuals, result.ResidualBand{Against: "batch", Regime: r, X: 1, N: 9}, result.ResidualBand{Against: "batch", Regime: r, X: 2, N: 9})
		f.Contributions = append(f.Contributions, result.Contribution{Regime: r, Name: "t", MeanUs: 1000})
	}
	check("residuals", residualFigure(f), 12, "12 of 13 panels shown.")
	check("terms", contributionFigure(f), 12, "12 of 13 regimes shown.")
	f.Residuals, f.Contributions = f.Residuals[2:], f.Contributions[1:]
	check("terms", contributionFigure(f), 12, "")
	check("residuals", residualFigure(f), 12, "")
	if residualFigure(&result.FitFigures{}) != nil || loadFigure(Input{}) != nil || predictedFigure(&result.FitFigures{}) != nil {
		t.Error("nothing: got a figure")
	}
	// Unknown values leave a gap between the known ones, which stand in the middle of their bins.
	xy := seriesPoints([]*float64{nil, ptr(5.0), nil, ptr(7.0)}, 2)
	if len(xy) != 3 || xy[0] != [2]float64{3, 5} || !math.IsNaN(xy[1][0]) || xy[2] != [2]float64{7, 7} {
		t.Errorf("got %v", xy)
	}
	// The bias figure names four runs at most, whose blocks are beyond ±10 % and apart.
	names := func(blocks ...result.DriftBlock) (out string) {
		for _, b := range farthestBlocks(blocks) {
			out += b.Run
		}
		return out
	}
	if got := names(result.DriftBlock{Run: "a", Block: 1, Bias: 0.11}, result.DriftBlock{Run: "b", Block: 2, Bias: -0.12}, result.DriftBlock{Run: "c", Block: 3, Bias: 0.13}, result.DriftBlock{Run: "d", Block: 4, Bias: 0.14}, result.DriftBlock{Run: "e", Block: 5, Bias: 0.15}); got != "edcb" {
		t.Errorf("got %s", got)
	}
	if got := names(result.DriftBlock{Run: "a", Block: 1, Bias: 0.3}, result.DriftBlock{Run: "b", Block: 1, Bias: 0.251}, result.DriftBlock{Run: "c", Block: 1, Bias: 0.249}, result.DriftBlock{Run: "d", Block: 2, Bias: 0.1}); got != "ac" {
		t.Errorf("got %s", got)
	}
	// Of 61 runs the last is not drawn, and so has no name either.
	var drift []result.DriftBlock
	for i := range 61 {
		drift = append(drift, result.DriftBlock{Run: fmt.Sprintf("run-%d", i), Block: i % 7, Bias: 0.12 + 0.01*float64(i)})
	}
	svg := string(biasFigure(&result.Fit{Beta: result.Model{Drift: drift}}).SVG())
	if !strings.Contains(svg, "run-59<") || strings.Contains(svg, "run-60<") {
		t.Error("the bias figure names a run that it does not draw, or not the worst that it draws")
	}
	// A term that takes time off has a bar as wide as that time, to the left of where the one above it ends.
	var widths []float64
	for _, m := range waterfallPanel([]result.Contribution{{Regime: "decode", Name: "work", MeanUs: 4000}, {Regime: "decode", Name: "less", MeanUs: -2000}}, "decode").Marks {
		if m.kind == markRect {
			widths = append(widths, m.pts[1].X-m.pts[0].X)
		}
	}
	if len(widths) != 3 || math.Abs(2*widths[1]-widths[0]) > 1e-9 || math.Abs(widths[2]-widths[1]) > 1e-9 {
		t.Errorf("got bars %v wide, want the second and the sum half of the first", widths)
	}
	for _, n := range []int{40, 41} {
		m := result.Model{NullDirections: make([]string, n)}
		if got := modelBlocks(m); len(got) < 2 || len(got[1].List) != 40 {
			t.Errorf("%d: got %+v", n, got)
		}
	}
	var cells []result.Cell
	for i := range 31 {
		cells = append(cells, result.Cell{Run: fmt.Sprint(i), Errors: result.Errors{MAPE: ptr(float64(i))}}, result.Cell{Run: fmt.Sprint(i), Errors: result.Errors{MAPE: ptr(0.0)}})
	}
	rows, more := worstRuns(cells)
	if len(rows) != 30 || rows[0] != fmt.Sprint(30) || rows[29] != "1" || more != fmt.Sprintf("The %d worst of %d runs.", 30, 31) {
		t.Errorf("got %v, %q", rows, more)
	}
	if rows, more := worstRuns(cells[2:]); len(rows) != 30 || rows[0] != "1" || more != "" {
		t.Errorf("got %v, %q", rows, more)
	}
	in := &result.Fit{}
	for i := range 31 {
		in.Beta.Loco = append(in.Beta.Loco, result.Loco{Config: fmt.Sprint(i), MAPE: ptr(0.1)})
	}
	if got := locoFigure(in).More; got != fmt.Sprintf("The %d worst of %d configurations.", 30, 31) {
		t.Errorf("got %q", got)
	}
	in.Beta.Loco = in.Beta.Loco[1:]
	if got := locoFigure(in).More; got != "" {
		t.Errorf("got %q", got)
	}
}

// TestPrintableText: what is replaced, and the characters next to it that are not.
func TestPrintableText(t *testing.T) {
	for text, want := range map[string]string{"a\tb\nc": "a b c", "\x1f\x20\x7e\x7f\u0080": "\ufffd\x20\x7e\ufffd\u0080", "\u2029\u202a\u202e\u202f": "\u2029\ufffd\ufffd\u202f", "\u2065\u2066\u2069\u206a": "\u2065\ufffd\ufffd\u206a",
		"\ufffc\ufffe\uffff\U00010000": "\ufffc\ufffd\ufffd\U00010000"} {
		if got := printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestOrderOfManyReplays: beyond the rows that one table has, those with the largest distances are on the page.
func TestOrderOfManyReplays(t *testing.T) {
	v := &result.Validation{}
	for i := range 150 / 3 {
		v.Runs = append(v.Runs, result.ValidationRun{ID: fmt.Sprint(i), Load: "closed", Metrics: &result.Metrics{TTFT: &result.Metric{KSD: float64(i)}}})
	}
	first := func() (string, int) {
		b := metricTables(v)[0].Table
		return b.Rows[0].Cells[0].Text, len(b.Rows)
	}
	if id, n := first(); id != "0" || n != 50 {
		t.Errorf("got %s of %d, want the order of the file", id, n)
	}
	v.Runs = append(v.Runs, result.ValidationRun{ID: "last", Load: "closed"})
	if id, n := first(); id != "49" || n != 50 {
		t.Errorf("got %s of %d, want the largest distance", id, n)
	}
}

// TestWidthOfNames: names get what they need, from 60 to 330 and somewhat less than half of the drawing.
func TestWidthOfNames(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) } // 6.71 each
	for _, c := range []struct {
		width float64
		names []string
		left  float64
		fits  bool
	}{
		{720, nil, 60, true}, {720, []string{a(6)}, 60, true}, {720, []string{a(10), a(40), a(20)}, 284.4, true}, {720, []string{a(46)}, 324.66, true}, {720, []string{a(47)}, 330, false},
		{400, []string{a(25)}, 183.75, true}, {400, []string{a(26)}, 184, false}, {720, []string{a(200), a(1)}, 330, false}, {720, []string{strings.Repeat("\u2014", 54)}, 330, false},
	} {
		if left, fits := nameWidth(c.width, c.names); math.Abs(left-c.left) > 1e-9 || fits != c.fits {
			t.Errorf("%g, %q: got %g, %v, want %g, %v", c.width, c.names, left, fits, c.left, c.fits)
		}
	}
}

// TestAuditsOfBothStages: those of the fit are shown, those of the inspection if the fit has none.
func TestAuditsOfBothStages(t *testing.T) {
	lag := func(run string) []result.LagEvidence { return []result.LagEvidence{{Run: run}} }
	inspect := &result.Inspect{Runs: []result.InspectRun{{ID: "a", Audit: &result.TargetAudit{Run: "inspected"}, LagEvidence: lag("inspected"), Lag: &result.RunLag{Lag: 2}}, {ID: "b"}}}
	full := &result.Fit{Beta: result.Model{TargetAudit: []result.TargetAudit{{Run: "fitted"}}, LagEvidence: lag("fitted"), PipelineLag: map[string]result.RunLag{"c": {Lag: 1}}}}
	for _, c := range []struct {
		in    Input
		audit string
		lags  int
	}{{Input{Fit: full, Inspect: inspect}, "fitted", 0}, {Input{Fit: &result.Fit{}, Inspect: inspect}, "inspected", 2}, {Input{Inspect: inspect}, "inspected", 2}, {Input{Fit: full}, "fitted", 0}} {
		audits := auditsOf(c.in)
		evidence, used := lagsOf(c.in)
		if len(audits) != 1 || audits[0].Run != c.audit || len(evidence) != 1 || evidence[0].Run != c.audit || used["a"].Lag != c.lags || len(used) != 1 {
			t.Errorf("got %+v, %+v, %v, want those %s", audits, evidence, used, c.audit)
		}
	}
	if audits := auditsOf(Input{}); audits != nil {
		t.Errorf("got %v", audits)
	}
}
