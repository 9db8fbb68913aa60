package sections

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func Replay(in input.Input, figs []*draw.Figure) page.Section {
	s := page.Section{ID: "replay", Nav: "Replay", Title: "Replay: do requests feel it?",
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
	s.Blocks = append(s.Blocks, page.Tables(comparedTable(in.Validation))...)
	s.Blocks = append(s.Blocks, page.FigureBlocks(figs)...)
	s.Blocks = append(s.Blocks, page.Folded("For experts: every statistic of every comparison, quantiles, how each replay was run",
		metricTables(in.Validation), page.Tables(quantileTable(in.Validation)), page.Tables(replayTable(in.Validation)))...)
	var lists [][]trace.Finding
	for _, r := range in.Validation.Runs {
		lists = append(lists, r.Findings)
	}
	s.Blocks = append(s.Blocks, page.FindingBlocks("Findings of the replays", lists...)...)
	return s
}

// comparedTable is one row per run, phase and split: KS distance and median error of
// each metric, what gates first.
func comparedTable(v *result.Validation) *page.Table {
	t := &page.Table{ID: "compared", Caption: "Requests, real against simulated",
		Note: "KS D is the largest gap between the distributions of the recorded and the simulated requests, 0 to 1; the error beside it " +
			"is the median over requests of |simulated − real| / real. Grey rows gate nothing: closed loops, saturated runs, too few requests."}
	t.Cols = []page.Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Requests", Num: true}}
	for _, n := range input.MetricNames {
		t.Cols = append(t.Cols, page.Column{Head: strings.ToUpper(n), Unit: "KS D", Num: true}, page.Column{Head: "error", Num: true})
	}
	runs := slices.Clone(v.Runs)
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(result.ReplayRank(&a), result.ReplayRank(&b)) })
	for _, r := range runs {
		if r.Metrics == nil {
			continue
		}
		row := page.Row{Cells: []page.Cell{page.Name(input.PhaseTitle(r)), {Text: input.SplitWords(r.Split), Class: "nb"},
			page.Count(r.Requests)}}
		if result.ReplayRank(&r) > 0 {
			row.Class = "dim"
		}
		for _, n := range input.MetricNames {
			if m := input.Metric(r.Metrics, n); m != nil {
				row.Cells = append(row.Cells, ksCell(&m.KSD), page.Percent(m.MedianRelErrPaired))
			} else {
				row.Cells = append(row.Cells, page.Number(nil), page.Number(nil))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return page.Capped(t, "what gates first", "validation.json, runs")
}

// metricTables are one row per run, phase and metric: first the comparisons
// that can gate, then, folded, closed loops, saturated runs and too few requests.
func metricTables(v *result.Validation) []page.Block {
	first := &page.Table{ID: "metrics", Caption: "Distributions, real against simulated", Cols: metricCols(),
		Note: "KS D is the largest gap between the two distributions; real vs real is D between the two halves of the real run, which no " +
			"model can beat by much. Below the critical D at 5 %, a gap of this size can be chance."}
	rest := &page.Table{ID: "metrics-rest", Caption: "Comparisons that cannot gate: closed loops, saturated runs, too few requests",
		Cols: metricCols()}
	runs := slices.Clone(v.Runs)
	if len(runs)*len(input.MetricNames) > page.MaxRows {
		slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(result.LargestKS(&b), result.LargestKS(&a)) })
	}
	for _, r := range runs {
		t := first
		if result.ReplayRank(&r) > 0 {
			t = rest
		}
		for _, n := range append(slices.Clone(input.MetricNames), "itl_gap") {
			if m := input.MetricOf(r.Metrics, n); m != nil {
				t.Grow(func() page.Row { return metricRow(r, n, m) })
			}
		}
	}
	rest.Closed = first.Total > 0
	out := page.Tables(page.Capped(first, "the largest plain KS first", "validation.json, runs"))
	return append(out, page.Tables(page.Capped(rest, "the largest plain KS first", "validation.json, runs"))...)
}

func metricCols() []page.Column {
	return []page.Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Metric"}, {Head: "Requests", Num: true},
		{Head: "KS D", Num: true}, {Head: "D with noise", Num: true}, {Head: "D drift-corrected", Num: true},
		{Head: "D real vs real", Num: true}, {Head: "critical D", Num: true, Help: "1.3581·sqrt((n+m)/(nm))"},
		{Head: "D at quantile", Num: true}, {Head: "p", Num: true, Help: "asymptotic p-value of the plain replay"},
		{Head: "n effective", Num: true, Help: "requests are autocorrelated"},
		{Head: "Median error", Num: true}, {Head: "with noise", Num: true}, {Head: "drift-corrected", Num: true},
		{Head: "paired", Num: true, Help: "median over requests of |simulated − real| / real"},
		{Head: "Wasserstein", Unit: "ms", Num: true}}
}

func metricRow(r result.ValidationRun, n string, m *result.Metric) page.Row {
	noise, drift := input.MetricOf(r.MetricsNoise, n), input.MetricOf(r.MetricsDrift, n)
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
	out := page.Row{Cells: []page.Cell{
		page.Name(input.PhaseTitle(r)), {Text: input.SplitWords(r.Split), Class: "nb"}, {Text: title, Class: "nb"}, page.Count(m.NReal),
		ksCell(&m.KSD), ksCell(pick(noise, ks)), ksCell(pick(drift, ks)), ksCell(m.RealVsRealD), ksCell(r.CriticalD),
		page.PercentOf(m.DAtQuantile), page.Shown(&m.PAsymptotic, words.Brief), page.Shown(&m.NEffective, words.Brief),
		page.PercentOf(m.MedianRelErr), page.Percent(pick(noise, med)), page.Percent(pick(drift, med)), page.Percent(m.MedianRelErrPaired),
		page.Num(m.WassersteinMs),
	}}
	if n == "itl_gap" {
		out.Class = "dim"
	}
	return out
}

func ksCell(v *float64) page.Cell { return page.Shown(v, words.Statistic) }

// quantileTable shows the times themselves.
func quantileTable(v *result.Validation) *page.Table {
	t := &page.Table{ID: "quantiles", Caption: "Times, real and simulated (plain), ms", Closed: true,
		Cols: []page.Column{{Head: "Run"}, {Head: "Metric"}, {Head: "P50 real", Num: true}, {Head: "simulated", Num: true},
			{Head: "P90 real", Num: true}, {Head: "simulated", Num: true},
			{Head: "P99 real", Num: true}, {Head: "simulated", Num: true}, {Head: "mean real", Num: true}, {Head: "simulated", Num: true}}}
	for _, r := range v.Runs {
		for _, n := range input.MetricNames {
			if m := input.Metric(r.Metrics, n); m != nil {
				t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
					page.Name(input.RunTitle(r)), page.Plain(strings.ToUpper(n)), page.Num(m.RealMs.P50), page.Num(m.SimMs.P50), page.Num(m.RealMs.P90),
					page.Num(m.SimMs.P90),
					page.Num(m.RealMs.P99), page.Num(m.SimMs.P99), page.Num(m.RealMs.Mean), page.Num(m.SimMs.Mean)}})
			}
		}
	}
	return page.Capped(t, "in the order of the file", "validation.json, runs")
}

// replayTable says how the replay was set up and how far it ran the recorded schedule.
func replayTable(v *result.Validation) *page.Table {
	t := &page.Table{ID: "replays", Caption: "How each replay was run",
		Cols: []page.Column{{Head: "Run"}, {Head: "Compared"}, {Head: "Load"}, {Head: "Saturated"}, {Head: "Enough requests"},
			{Head: "Replayed", Num: true}, {Head: "Compared", Num: true}, {Head: "Left out, by reason"},
			{Head: "Batches known", Num: true, Help: "recorded steps whose batch is known"},
			{Head: "Batches identical", Num: true, Help: "simulated batches that also occur in the recording"}, {Head: "Steps", Num: true},
			{Head: "Clipped", Num: true}, {Head: "Notes"}}}
	for _, r := range v.Runs {
		q := r.Replay
		if q == nil {
			q = &result.ReplayQuality{}
		}
		saturated := page.Cell{Text: "no", Class: "dim"}
		if r.Saturated {
			saturated = page.Cell{Text: "yes", Class: "ko", Sub: strings.Join(r.SaturationHits, ", ")}
		}
		enough := page.Cell{Text: "yes", Class: "dim"}
		if !r.Sufficient {
			enough = page.Cell{Text: "no", Class: "na"}
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(input.PhaseTitle(r)), {Text: input.SplitWords(r.Split), Class: "nb"}, page.Plain(r.Load), saturated, enough,
			page.Count(r.Replayed), page.Count(r.Requests), page.Prose(words.Reasons(r.Excluded)),
			page.Percent(q.KnownBatchesShare), page.Percent(q.IdenticalBatchesShare), page.Count(q.Steps), page.ZeroDim(q.ClippedPredictions),
			page.Prose(strings.Join(q.Notes, "; ")),
		}})
	}
	return page.Capped(t, "in the order of the file", "validation.json, runs")
}

// overheadWords says where the delay before the engine came from.
func overheadWords(o result.ValidationOptions) string {
	if o.OverheadUs != nil {
		return fmt.Sprintf("constant %s ms", words.Short(*o.OverheadUs/1000))
	}
	return "the artifact's overhead coefficients"
}
