package report

// This file makes the section on replays: recorded requests against their simulation. KS D is the
// Kolmogorov-Smirnov distance of two distributions. A comparison is gated if gates judge it; closed
// loops, saturated runs and comparisons of few requests are not. Variants of a replay: plain, with
// noise, and with the machine's drift corrected.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// replaySection returns the section on recorded against simulated requests.
func replaySection(in Input, figs []*Figure) Section {
	s := Section{ID: "replay", Nav: "Replay", Title: "Replay: errors of requests",
		Lead: "The recorded arrivals, run through the simulator with these coefficients, against what the real server did. Only the plain " +
			"replay decides gates; those with noise and with drift correction show how much of its error the machine causes."}
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

// comparedTable returns one row for each run, phase and split: KS distance and median error of each
// metric. Rows that are gated come first.
func comparedTable(v *result.Validation) *Table {
	t := comparedLayout.blank()
	runs := slices.Clone(v.Runs)
	stat.SortStable(runs, func(a, b result.ValidationRun) int { return cmp.Compare(a.ReplayRank(), b.ReplayRank()) })
	for _, r := range runs {
		if r.Metrics == nil {
			continue
		}
		row := Row{Cells: []Cell{Name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, Count(r.Requests)}}
		if r.ReplayRank() > 0 {
			row.Class = "dim"
		}
		for _, n := range metricNames {
			if m := metricNamed(r.Metrics, n); m != nil {
				row.Cells = append(row.Cells, ksCell(&m.KSD), Percent(m.MedianRelErrPaired))
			} else {
				row.Cells = append(row.Cells, Number(nil), Number(nil))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return Capped(t, "what gates first", "validation.json, runs")
}

// metricTables returns one row for each run, phase and metric: the comparisons that are gated,
// then, folded, the others.
func metricTables(v *result.Validation) []Block {
	first := metricsLayout.blank()
	rest := metricsRestLayout.blank()
	runs := slices.Clone(v.Runs)
	if len(runs)*len(metricNames) > maxRows {
		stat.SortStable(runs, func(a, b result.ValidationRun) int { return cmp.Compare(b.LargestKS(), a.LargestKS()) })
	}
	for _, r := range runs {
		t := first
		if r.ReplayRank() > 0 {
			t = rest
		}
		for _, n := range append(slices.Clone(metricNames), "itl_gap") {
			if m := metricNamed(r.Metrics, n); m != nil {
				t.Grow(func() Row { return metricRow(r, n, m) })
			}
		}
	}
	rest.Closed = first.Total > 0
	out := Tables(Capped(first, "the largest plain KS first", "validation.json, runs"))
	return append(out, Tables(Capped(rest, "the largest plain KS first", "validation.json, runs"))...)
}

// metricRow returns the row of a metric of a run, in the order of metricColumns: m, the one of that name in the plain
// replay, with its figures in the replays with noise and with drift corrected.
func metricRow(r result.ValidationRun, name string, m *result.Metric) Row {
	noise := metricNamed(r.MetricsNoise, name)
	drift := metricNamed(r.MetricsDrift, name)
	// A figure of a variant is unknown if the variant was not simulated.
	pick := func(m *result.Metric, get func(*result.Metric) float64) *float64 {
		if m == nil {
			return nil
		}
		return new(get(m))
	}
	ks := func(m *result.Metric) float64 { return m.KSD }
	med := func(m *result.Metric) float64 { return m.MedianRelErr }
	title := strings.Replace(strings.ToUpper(name), "_GAP", " gaps", 1)
	out := Row{Cells: []Cell{
		Name(phaseTitle(r)), {Text: splitWords(r.Split), Class: "nb"}, {Text: title, Class: "nb"}, Count(m.NReal),
		ksCell(&m.KSD), ksCell(pick(noise, ks)), ksCell(pick(drift, ks)), ksCell(m.RealVsRealD), ksCell(m.BeyondD), ksCell(m.ChanceBeyondD),
		PercentOf(m.DAtQuantile), Shown(&m.PAsymptotic, brief),
		PercentOf(m.MedianRelErr), Percent(pick(noise, med)), Percent(pick(drift, med)), Percent(m.MedianRelErrPaired), signedError(m.PairedErr),
		Num(m.WassersteinMs),
	}}
	if name == "itl_gap" { // no gate judges it
		out.Class = "dim"
	}
	return out
}

// signedError returns the cell of a paired error with its sign.
func signedError(e *result.Estimate) Cell {
	if e == nil {
		return Percent(nil)
	}
	cell := PercentOf(e.Value)
	cell.Text = Signed(e.Value)
	return cell
}

// ksCell returns the cell of a KS distance.
func ksCell(v *float64) Cell { return Shown(v, threeDecimals) }

// quantileTable returns the quantiles of recorded and simulated times.
func quantileTable(v *result.Validation) *Table {
	t := quantilesLayout.blank()
	for _, r := range v.Runs {
		for _, n := range metricNames {
			if m := metricNamed(r.Metrics, n); m != nil {
				t.Put(Name(runTitle(r)), Plain(strings.ToUpper(n)), Num(m.RealMs.P50), Num(m.SimMs.P50), Num(m.RealMs.P90),
					Num(m.SimMs.P90), Num(m.RealMs.P99), Num(m.SimMs.P99), Num(m.RealMs.Mean), Num(m.SimMs.Mean))
			}
		}
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// replayTable returns how each replay was set up and how far it reproduced the recorded schedule.
func replayTable(v *result.Validation) *Table {
	t := replaysLayout.blank()
	for _, r := range v.Runs {
		q := r.Replay
		if q == nil {
			q = &result.ReplayQuality{}
		}
		saturated := Cell{Text: "no", Class: "dim"}
		if r.Saturated {
			saturated = Cell{Text: "yes", Class: "ko", Sub: strings.Join(r.SaturationHits, ", ")}
		}
		decides := Cell{Text: "yes", Class: "dim"}
		if !r.Judged() {
			decides = Cell{Text: "no", Class: "na"}
		}
		t.Put(Name(phaseTitle(r)), Cell{Text: splitWords(r.Split), Class: "nb"}, Plain(r.Load), saturated, decides, Count(r.Replayed),
			Count(r.Requests), Prose(Reasons(r.Excluded)), Percent(q.KnownBatchesShare), Percent(q.IdenticalBatchesShare),
			Count(q.Steps), ZeroDim(q.ClippedPredictions), Prose(strings.Join(q.Notes, "; ")))
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// overheadWords states where a replay takes the time before the engine from.
func overheadWords(o result.ValidationOptions) string {
	if o.OverheadUs != nil {
		return fmt.Sprintf("constant %s ms", Short(*o.OverheadUs/1000))
	}
	return "the artifact's overhead coefficients"
}

// metricNames are the compared metrics in the order of the page.
var metricNames = []string{"ttft", "itl", "e2e"}

// metricNamed returns the metric of that name; nil if it was not compared.
func metricNamed(m *result.Metrics, name string) *result.Metric {
	switch {
	case m == nil:
		return nil
	case name == "ttft":
		return m.TTFT
	case name == "itl":
		return m.ITL
	case name == "e2e":
		return m.E2E
	case name == "itl_gap":
		return m.ITLGap
	}
	return nil
}

// phaseTitle returns the run's name, and its phase if it has several.
func phaseTitle(r result.ValidationRun) string {
	if r.Phase == "" {
		return r.ID
	}
	return r.ID + " · " + r.Phase
}

// runTitle returns phaseTitle with a remark if only a part of the run was compared, or steps that
// were fitted.
func runTitle(r result.ValidationRun) string {
	s := phaseTitle(r)
	switch r.Split.Kind {
	case result.SplitInSample:
		s += " · in-sample"
	case result.SplitHoldout:
		s += " · last " + percentThreshold(r.Split.Test)
	}
	return s
}

// splitWords states which requests of a run were compared.
func splitWords(s result.Split) string {
	switch s.Kind {
	case result.SplitCrossFitted:
		return "all, cross-fitted"
	case result.SplitHoldout:
		return "hold-out, last " + percentThreshold(s.Test)
	case result.SplitInSample:
		return "in-sample"
	case result.SplitTestRun:
		return "unseen run"
	case result.SplitLevels:
		return "load levels, held out"
	}
	return s.Kind
}

// maxReplayRuns is the largest number of runs that get their own panels of curves, three each.
const maxReplayRuns = 8

// variant is how the curves of one variant of a replay are drawn.
type variant struct {
	name string // in validation.json
	text string // in the legend
	p    Paint
	dash int
	wide float64 // of the line, pixels
}

// variants are the recorded requests and the variants of a replay, in the order of the legend.
var variants = []variant{
	{result.VariantReal, "real", ink, Solid, 2.2},
	{result.VariantPlain, "simulated, plain (gates)", Decode, Solid, 1.8},
	{result.VariantNoise, "simulated, noise", Mixed, Dashed, 1.5},
	{result.VariantDrift, "simulated, drift-corrected", Prefill, dotted, 1.8},
}

// replayRuns returns the runs that have curves, gated ones first, then those with the largest KS
// distance. more is the note below a figure that does not show all of them.
func replayRuns(in Input) (runs []result.ValidationRun, more string) {
	if in.Validation == nil {
		return nil, ""
	}
	for _, r := range in.Validation.Runs {
		if r.Figures != nil && len(r.Figures.ECDF) > 0 {
			runs = append(runs, r)
		}
	}
	stat.SortStable(runs, func(a, b result.ValidationRun) int { return a.ByReplayRank(&b) })
	if len(runs) <= maxReplayRuns {
		return runs, ""
	}
	more = fmt.Sprintf("%d of %d comparisons: those that gate first, then the largest plain KS; the table holds all.", maxReplayRuns,
		len(runs))
	return runs[:maxReplayRuns], more
}

// curveFigure returns a figure with a panel for every metric of every run. what is the format of a
// panel's description, with metric and run.
func curveFigure(caption Figure, runs []result.ValidationRun, more, what string,
	panel func(result.ValidationRun, string, map[string]bool) *Drawing) *Figure {
	fig := caption.blank()
	drawn := map[string]bool{}
	fig.More = more
	for _, r := range runs {
		for _, m := range metricNames {
			if d := panel(r, m, drawn); d != nil {
				fig.Panels = append(fig.Panels, Panel{D: d, Desc: fmt.Sprintf(what, strings.ToUpper(m), runTitle(r))})
			}
		}
	}
	for _, v := range variants {
		if drawn[v.name] {
			fig.Legend = append(fig.Legend, Key{P: v.p, Dash: v.dash, Text: v.text})
		}
	}
	return fig
}

// eachCurve calls visit with the curves of a metric in the order of variants, and adds the names of
// their variants to drawn.
func eachCurve(curves []result.Curve, metric string, drawn map[string]bool, visit func(v variant, points [][2]float64)) {
	for _, v := range variants {
		for _, c := range curves {
			if c.Metric == metric && c.Variant == v.name {
				drawn[v.name] = true
				visit(v, c.Points)
			}
		}
	}
}

// firstReplays is the number of replays drawn below the verdict; the others are in the section on
// replays.
const firstReplays = 2

// firstECDFs draws the distributions of the replays shown below the verdict, recorded and
// simulated, with the KS distance marked.
func firstECDFs(in Input) *Figure {
	runs, _ := replayRuns(in)
	return ecdfFigure(ecdfCaption, runs[:min(firstReplays, len(runs))], "")
}

// otherECDFs draws the distributions of the other replays.
func otherECDFs(in Input) *Figure {
	runs, more := replayRuns(in)
	return ecdfFigure(ecdfMoreCaption, runs[min(firstReplays, len(runs)):], more)
}

// ecdfFigure draws the distributions of the runs, with caption and note.
func ecdfFigure(caption Figure, runs []result.ValidationRun, more string) *Figure {
	fig := curveFigure(caption, runs, more, "distribution of %s of %s, real and simulated", ecdfPanel)
	if len(fig.Legend) > 0 {
		fig.Legend = append(fig.Legend, Key{P: bad, Text: "KS gap"})
	}
	return fig
}

// ecdfPanel draws the distributions of one metric (name) of one run, recorded and simulated, and marks the
// largest gap between them (KS distance). It adds to drawn the variants that it draws; nil without any.
func ecdfPanel(r result.ValidationRun, name string, drawn map[string]bool) *Drawing {
	var xs Span
	for _, c := range r.Figures.ECDF {
		for _, v := range c.Points {
			if c.Metric == name {
				xs.Take(v[0])
			}
		}
	}
	if !xs.Ok {
		return nil
	}
	upper := strings.ToUpper(name)
	p := NewFrame(PanelW, PanelH, upper+" · "+runTitle(r), timeAxis(upper, xs), Linear("share of requests", 0, 1, 4))
	eachCurve(r.Figures.ECDF, name, drawn, func(v variant, points [][2]float64) { p.Stairs(points, v.p, v.wide, v.dash) })
	if m := metricNamed(r.Metrics, name); m != nil {
		markGap(p, m)
	}
	return &p.Drawing
}

// markGap draws the KS distance of a metric where it occurs.
func markGap(p *frame, m *result.Metric) {
	if !p.Inside(m.DAtMs, 0.5) {
		return
	}
	a := p.At(m.DAtMs, m.DRealCDF)
	b := p.At(m.DAtMs, m.DSimCDF)
	p.Seg(a, b, bad, 3, Solid)
	text := "D = " + threeDecimals(m.KSD)
	at := At(a.X+7, (a.Y+b.Y)/2+4)
	anchor := anchorStart
	if at.X+textWidth(text, labelSize) > p.X.P1 {
		at.X, anchor = a.X-7, anchorEnd
	}
	w := textWidth(text, labelSize) + 4
	left := at.X - 3
	if anchor == anchorEnd {
		left = at.X - w + 3
	}
	p.Rect(At(left, at.Y-11), At(left+w, at.Y+4), surface, 0.8, "")
	p.Heading(at, text, labelSize, bad, anchor)
}

// timeAxis returns an axis of times in ms over the range s, logarithmic if the values span more
// than a factor of 30.
func timeAxis(what string, s Span) axis {
	if s.Lo > 0 && s.Hi/s.Lo > 30 {
		lo, hi := Widened(s.Lo, s.Hi)
		return Logarithmic(what+" (ms, logarithmic)", lo, hi)
	}
	return Linear(what+" (ms)", min(s.Lo, s.Hi), s.Hi, 5)
}

// qqFigure draws the quantiles of simulated against recorded times.
func qqFigure(in Input) *Figure {
	runs, more := replayRuns(in)
	return curveFigure(qqCaption, runs, more, "quantiles of %s of %s, simulated against real", qqPanel)
}

// qqPanel draws the quantiles of one metric of one run; nil without any.
func qqPanel(r result.ValidationRun, name string, drawn map[string]bool) *Drawing {
	var s Span
	for _, c := range r.Figures.QQ {
		for _, v := range c.Points {
			if c.Metric == name {
				s.Take(v[0], v[1])
			}
		}
	}
	if !s.Ok {
		return nil
	}
	upper := strings.ToUpper(name)
	p := NewFrame(PanelW, PanelH, upper+" · "+runTitle(r), timeAxis("real "+upper, s), timeAxis("simulated "+upper, s))
	p.Diagonal(1, ink, Solid)
	eachCurve(r.Figures.QQ, name, drawn, func(v variant, points [][2]float64) {
		p.Curve(points, v.p, v.wide, v.dash)
		for i, xy := range sparse(points) {
			if i%4 == 0 && v.name == result.VariantPlain {
				p.Dot(p.At(xy[0], xy[1]), 2.2, v.p, 0, "")
			}
		}
	})
	return &p.Drawing
}
