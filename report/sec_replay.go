package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func replaySection(in Input, figs []*figure) section {
	s := section{ID: "replay", Nav: "Replay", Title: "Replay: do requests feel it?",
		Lead: "The recorded arrivals, run through the simulator with these coefficients, against what the real server did. Only the plain replay gates; noise and drift-corrected tell the model's error from the machine's."}
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to replay the runs."
		return s
	}
	if in.Validation.Options.StepsOnly {
		s.Missing = "Validated with --steps-only: nothing was replayed."
		return s
	}
	s.Blocks = append(s.Blocks, metricTables(in.Validation)...)
	s.Blocks = append(s.Blocks, figureBlocks(figs)...)
	s.Blocks = append(s.Blocks, tables(quantileTable(in.Validation))...)
	s.Blocks = append(s.Blocks, tables(replayTable(in.Validation))...)
	var lists [][]trace.Finding
	for _, r := range in.Validation.Runs {
		lists = append(lists, r.Findings)
	}
	s.Blocks = append(s.Blocks, findingBlocks("Findings of the replays", lists...)...)
	return s
}

func splitWords(s result.Split) string {
	switch s.Kind {
	case result.SplitHoldout:
		return "hold-out, last " + thresholdPct(s.Test)
	case result.SplitInSample:
		return "in-sample"
	case result.SplitTestRun:
		return "unseen run"
	}
	return s.Kind
}

// metricTables are one row per run, phase and metric: first the comparisons
// that can gate, then, folded, closed loops, saturated runs and too few requests.
func metricTables(v *result.Validation) []block {
	first := &table{ID: "metrics", Caption: "Distributions, real against simulated", Cols: metricCols(),
		Note: "KS D is the largest gap between the two distributions; real vs real is D between the two halves of the real run, which no model can beat by much. Below the critical D at 5 %, a gap of this size can be chance."}
	rest := &table{ID: "metrics-rest", Caption: "Comparisons that cannot gate: closed loops, saturated runs, too few requests", Cols: metricCols()}
	runs := slices.Clone(v.Runs)
	if len(runs)*len(metricNames) > maxRows {
		slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(largestKS(b), largestKS(a)) })
	}
	for _, r := range runs {
		t := first
		if replayRank(r) > 0 {
			t = rest
		}
		for _, n := range append(slices.Clone(metricNames), "itl_gap") {
			if m := anyMetric(r.Metrics, n); m != nil {
				t.grow(func() row { return metricRow(r, n, m) })
			}
		}
	}
	rest.Closed = first.total > 0
	out := tables(capped(first, "the largest plain KS first", "validation.json, runs"))
	return append(out, tables(capped(rest, "the largest plain KS first", "validation.json, runs"))...)
}

func metricCols() []column {
	return []column{{Head: "Run"}, {Head: "Compared"}, {Head: "Metric"}, {Head: "Requests", Num: true},
		{Head: "KS D", Num: true}, {Head: "D with noise", Num: true}, {Head: "D drift-corrected", Num: true},
		{Head: "D real vs real", Num: true}, {Head: "critical D", Num: true, Help: "1.3581·sqrt((n+m)/(nm))"},
		{Head: "D at quantile", Num: true}, {Head: "p", Num: true, Help: "asymptotic p-value of the plain replay"}, {Head: "n effective", Num: true, Help: "requests are autocorrelated"},
		{Head: "Median error", Num: true}, {Head: "with noise", Num: true}, {Head: "drift-corrected", Num: true}, {Head: "paired", Num: true, Help: "median over requests of |simulated − real| / real"},
		{Head: "Wasserstein", Unit: "ms", Num: true}}
}

func anyMetric(m *result.Metrics, name string) *result.Metric {
	if name == "itl_gap" && m != nil {
		return m.ITLGap
	}
	return metric(m, name)
}

func metricRow(r result.ValidationRun, n string, m *result.Metric) row {
	noise, drift := anyMetric(r.MetricsNoise, n), anyMetric(r.MetricsDrift, n)
	pick := func(m *result.Metric, get func(*result.Metric) float64) *float64 {
		if m == nil {
			return nil
		}
		v := get(m)
		return &v
	}
	ks := func(m *result.Metric) float64 { return m.KSD }
	med := func(m *result.Metric) float64 { return m.MedianRelErr }
	title := strings.Replace(strings.ToUpper(n), "_GAP", " gaps", 1)
	out := row{Cells: []cell{
		name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, {Text: title, Class: "nb"}, count(m.NReal),
		ksCell(&m.KSD), ksCell(pick(noise, ks)), ksCell(pick(drift, ks)), ksCell(m.RealVsRealD), ksCell(r.CriticalD),
		percentOf(m.DAtQuantile), shown(&m.PAsymptotic, brief), shown(&m.NEffective, brief),
		percentOf(m.MedianRelErr), percent(pick(noise, med)), percent(pick(drift, med)), percent(m.MedianRelErrPaired),
		num(m.WassersteinMs),
	}}
	if n == "itl_gap" {
		out.Class = "dim"
	}
	return out
}

func ksCell(v *float64) cell { return shown(v, share3) }

// quantileTable shows the times themselves.
func quantileTable(v *result.Validation) *table {
	t := &table{ID: "quantiles", Caption: "Times, real and simulated (plain), ms", Closed: true,
		Cols: []column{{Head: "Run"}, {Head: "Metric"}, {Head: "P50 real", Num: true}, {Head: "simulated", Num: true}, {Head: "P90 real", Num: true}, {Head: "simulated", Num: true},
			{Head: "P99 real", Num: true}, {Head: "simulated", Num: true}, {Head: "mean real", Num: true}, {Head: "simulated", Num: true}}}
	for _, r := range v.Runs {
		for _, n := range metricNames {
			if m := metric(r.Metrics, n); m != nil {
				t.Rows = append(t.Rows, row{Cells: []cell{
					name(runTitle(r)), text(strings.ToUpper(n)), num(m.RealMs.P50), num(m.SimMs.P50), num(m.RealMs.P90), num(m.SimMs.P90),
					num(m.RealMs.P99), num(m.SimMs.P99), num(m.RealMs.Mean), num(m.SimMs.Mean)}})
			}
		}
	}
	return capped(t, "in the order of the file", "validation.json, runs")
}

// replayTable says how the replay was set up and how far it ran the recorded schedule.
func replayTable(v *result.Validation) *table {
	t := &table{ID: "replays", Caption: "How each replay was run",
		Cols: []column{{Head: "Run"}, {Head: "Compared"}, {Head: "Load"}, {Head: "Saturated"}, {Head: "Enough requests"}, {Head: "Replayed", Num: true}, {Head: "Compared", Num: true}, {Head: "Left out, by reason"},
			{Head: "Batches known", Num: true, Help: "recorded steps whose batch is known"}, {Head: "Batches identical", Num: true, Help: "simulated batches that also occur in the recording"}, {Head: "Steps", Num: true}, {Head: "Clipped", Num: true}, {Head: "Notes"}}}
	for _, r := range v.Runs {
		q := r.Replay
		if q == nil {
			q = &result.ReplayQuality{}
		}
		saturated := cell{Text: "no", Class: "dim"}
		if r.Saturated {
			saturated = cell{Text: "yes", Class: "ko", Sub: strings.Join(r.SaturationHits, ", ")}
		}
		enough := cell{Text: "yes", Class: "dim"}
		if !r.Sufficient {
			enough = cell{Text: "no", Class: "na"}
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, text(r.Load), saturated, enough, count(r.Replayed), count(r.Requests), words(reasons(r.Excluded)),
			percent(q.KnownBatchesShare), percent(q.IdenticalBatchesShare), count(q.Steps), zeroDim(q.ClippedPredictions), words(strings.Join(q.Notes, "; ")),
		}})
	}
	return capped(t, "in the order of the file", "validation.json, runs")
}

// overheadWords says where the delay before the engine came from.
func overheadWords(o result.ValidationOptions) string {
	if o.OverheadUs != nil {
		return fmt.Sprintf("constant %s ms", short(*o.OverheadUs/1000))
	}
	return "the artifact's overhead coefficients"
}
