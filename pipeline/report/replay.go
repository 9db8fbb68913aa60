package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func replay(in Input, figs []*Figure) PageSection {
	s := PageSection{ID: "replay", Nav: "Replay", Title: "Replay: do requests feel it?",
		Lead: "The recorded arrivals, run through the simulator with these coefficients, against what the real server did. Only the plain " +
			"replay gates; noise and drift-corrected tell the model's error from the machine's."}
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to replay the runs."
		return s
	}
	if in.Validation.Options.StepsOnly {
		s.Missing = "Validated with --steps-only: nothing was replayed."
		return s
	}
	s.Blocks = append(s.Blocks, Tables(comparedTable(in.Validation))...)
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	s.Blocks = append(s.Blocks, folded("For experts: every statistic of every comparison, quantiles, how each replay was run",
		metricTables(in.Validation), Tables(quantileTable(in.Validation)), Tables(replayTable(in.Validation)))...)
	var lists [][]trace.Finding
	for _, r := range in.Validation.Runs {
		lists = append(lists, r.Findings)
	}
	s.Blocks = append(s.Blocks, FindingBlocks("Findings of the replays", lists...)...)
	return s
}

// comparedTable is one row per run, phase and split: KS distance and median error of
// each metric, what gates first.
func comparedTable(v *result.Validation) *Table {
	t := &Table{ID: "compared", Caption: "Requests, real against simulated",
		Note: "KS D is the largest gap between the distributions of the recorded and the simulated requests, 0 to 1; the error beside it " +
			"is the median over requests of |simulated − real| / real. Grey rows gate nothing: closed loops, saturated runs, too few requests."}
	t.Cols = []Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Requests", Num: true}}
	for _, n := range metricNames {
		t.Cols = append(t.Cols, Column{Head: strings.ToUpper(n), Unit: "KS D", Num: true}, Column{Head: "error", Num: true})
	}
	runs := slices.Clone(v.Runs)
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(result.ReplayRank(&a), result.ReplayRank(&b)) })
	for _, r := range runs {
		if r.Metrics == nil {
			continue
		}
		row := Row{Cells: []Cell{Name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"},
			Count(r.Requests)}}
		if result.ReplayRank(&r) > 0 {
			row.Class = "dim"
		}
		for _, n := range metricNames {
			if m := metric(r.Metrics, n); m != nil {
				row.Cells = append(row.Cells, ksCell(&m.KSD), Percent(m.MedianRelErrPaired))
			} else {
				row.Cells = append(row.Cells, Number(nil), Number(nil))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return Capped(t, "what gates first", "validation.json, runs")
}

// metricTables are one row per run, phase and metric: first the comparisons
// that can gate, then, folded, closed loops, saturated runs and too few requests.
func metricTables(v *result.Validation) []Block {
	first := &Table{ID: "metrics", Caption: "Distributions, real against simulated", Cols: metricCols(),
		Note: "KS D is the largest gap between the two distributions; real vs real is D between the two halves of the real run, which no " +
			"model can beat by much. Below the critical D at 5 %, a gap of this size can be chance."}
	rest := &Table{ID: "metrics-rest", Caption: "Comparisons that cannot gate: closed loops, saturated runs, too few requests",
		Cols: metricCols()}
	runs := slices.Clone(v.Runs)
	if len(runs)*len(metricNames) > maxRows {
		slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(result.LargestKS(&b), result.LargestKS(&a)) })
	}
	for _, r := range runs {
		t := first
		if result.ReplayRank(&r) > 0 {
			t = rest
		}
		for _, n := range append(slices.Clone(metricNames), "itl_gap") {
			if m := metricOf(r.Metrics, n); m != nil {
				t.Grow(func() Row { return metricRow(r, n, m) })
			}
		}
	}
	rest.Closed = first.Total > 0
	out := Tables(Capped(first, "the largest plain KS first", "validation.json, runs"))
	return append(out, Tables(Capped(rest, "the largest plain KS first", "validation.json, runs"))...)
}

func metricCols() []Column {
	return []Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Metric"}, {Head: "Requests", Num: true},
		{Head: "KS D", Num: true}, {Head: "D with noise", Num: true}, {Head: "D drift-corrected", Num: true},
		{Head: "D real vs real", Num: true}, {Head: "critical D", Num: true, Help: "1.3581·sqrt((n+m)/(nm))"},
		{Head: "D at quantile", Num: true}, {Head: "p", Num: true, Help: "asymptotic p-value of the plain replay"},
		{Head: "n effective", Num: true, Help: "requests are autocorrelated"},
		{Head: "Median error", Num: true}, {Head: "with noise", Num: true}, {Head: "drift-corrected", Num: true},
		{Head: "paired", Num: true, Help: "median over requests of |simulated − real| / real"},
		{Head: "Wasserstein", Unit: "ms", Num: true}}
}

func metricRow(r result.ValidationRun, n string, m *result.Metric) Row {
	noise, drift := metricOf(r.MetricsNoise, n), metricOf(r.MetricsDrift, n)
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
	out := Row{Cells: []Cell{
		Name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, {Text: title, Class: "nb"}, Count(m.NReal),
		ksCell(&m.KSD), ksCell(pick(noise, ks)), ksCell(pick(drift, ks)), ksCell(m.RealVsRealD), ksCell(r.CriticalD),
		PercentOf(m.DAtQuantile), Shown(&m.PAsymptotic, brief), Shown(&m.NEffective, brief),
		PercentOf(m.MedianRelErr), Percent(pick(noise, med)), Percent(pick(drift, med)), Percent(m.MedianRelErrPaired),
		Num(m.WassersteinMs),
	}}
	if n == "itl_gap" {
		out.Class = "dim"
	}
	return out
}

func ksCell(v *float64) Cell { return Shown(v, statistic) }

// quantileTable shows the times themselves.
func quantileTable(v *result.Validation) *Table {
	t := &Table{ID: "quantiles", Caption: "Times, real and simulated (plain), ms", Closed: true,
		Cols: []Column{{Head: "Run"}, {Head: "Metric"}, {Head: "P50 real", Num: true}, {Head: "simulated", Num: true},
			{Head: "P90 real", Num: true}, {Head: "simulated", Num: true},
			{Head: "P99 real", Num: true}, {Head: "simulated", Num: true}, {Head: "mean real", Num: true}, {Head: "simulated", Num: true}}}
	for _, r := range v.Runs {
		for _, n := range metricNames {
			if m := metric(r.Metrics, n); m != nil {
				t.Rows = append(t.Rows, Row{Cells: []Cell{
					Name(runTitle(r)), Plain(strings.ToUpper(n)), Num(m.RealMs.P50), Num(m.SimMs.P50), Num(m.RealMs.P90),
					Num(m.SimMs.P90),
					Num(m.RealMs.P99), Num(m.SimMs.P99), Num(m.RealMs.Mean), Num(m.SimMs.Mean)}})
			}
		}
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// replayTable says how the replay was set up and how far it ran the recorded schedule.
func replayTable(v *result.Validation) *Table {
	t := &Table{ID: "replays", Caption: "How each replay was run",
		Cols: []Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Load"}, {Head: "Saturated"}, {Head: "Enough requests"},
			{Head: "Replayed", Num: true}, {Head: "Compared", Num: true}, {Head: "Left out, by reason"},
			{Head: "Batches known", Num: true, Help: "recorded steps whose batch is known"},
			{Head: "Batches identical", Num: true, Help: "simulated batches that also occur in the recording"}, {Head: "Steps", Num: true},
			{Head: "Clipped", Num: true}, {Head: "Notes"}}}
	for _, r := range v.Runs {
		q := r.Replay
		if q == nil {
			q = &result.ReplayQuality{}
		}
		saturated := Cell{Text: "no", Class: "dim"}
		if r.Saturated {
			saturated = Cell{Text: "yes", Class: "ko", Sub: strings.Join(r.SaturationHits, ", ")}
		}
		enough := Cell{Text: "yes", Class: "dim"}
		if !r.Sufficient {
			enough = Cell{Text: "no", Class: "na"}
		}
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, Plain(r.Load), saturated, enough,
			Count(r.Replayed), Count(r.Requests), Prose(Reasons(r.Excluded)),
			Percent(q.KnownBatchesShare), Percent(q.IdenticalBatchesShare), Count(q.Steps), ZeroDim(q.ClippedPredictions),
			Prose(strings.Join(q.Notes, "; ")),
		}})
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// overheadWords says where the delay before the engine came from.
func overheadWords(o result.ValidationOptions) string {
	if o.OverheadUs != nil {
		return fmt.Sprintf("constant %s ms", Short(*o.OverheadUs/1000))
	}
	return "the artifact's overhead coefficients"
}
