package cluster

// This file writes the report of the isolation experiment, report.html, from experiment.json:
// verdicts, tables of cells (configurations), frontiers of the two gates, predictions, sensitivity
// and the newcomer. It computes nothing.

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report"
)

// writePage writes the report as one HTML file. Sections that have nothing to show are omitted.
func writePage(w io.Writer, d *Document) error {
	sections := []report.Section{verdictSection(d), cellSection(d), frontierSection(d), predictionSection(d),
		robustSection(d),
		newcomerSection(d)}
	sections = slices.DeleteFunc(sections, func(x report.Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	return report.Write(w, pageHead(d), sections)
}

// pageHead returns the head of the report: the verdicts, and the facts of the run (workload,
// engines, load, seeds).
func pageHead(d *Document) report.Head {
	h := report.Head{
		Class:  "none",
		Badge:  strings.ToUpper(d.Label),
		Kicker: "Admission by predicted TTFT: an experiment that can say no",
		Sentence: fmt.Sprintf("Preset %s: %s on %d engines at %s requests/s, %.2f of their capacity, for %g s.",
			d.Preset,
			report.Plural(len(d.Cells), "configuration"), d.Instances, report.Short(d.RateRPS), d.Rho, d.HorizonS),
	}
	for _, v := range d.Verdicts {
		h.Failed = append(h.Failed, fmt.Sprintf("%s, %s: %s", v.ID, v.Verdict, v.Statement))
	}
	h.Facts = []report.Fact{report.FactOf("Workload", d.Workload), report.FactOf("Engines", d.Plant),
		report.FactOf("Gate", d.Controller),
		report.FactOf("Capacity", report.Short(d.CapacityRPS)+" requests/s"),
		report.FactOf("Seeds", fmt.Sprint(len(d.Seeds))),
		report.FactOf("Window", fmt.Sprintf("arrivals from %g to %g s", d.WindowS[0], d.WindowS[1])),
		report.FactOf("Lifetime", report.Short(d.LifetimeS)+" s"),
		report.FactOf("CV of matched tokens", report.ShortOr(d.MatchedCV))}
	return h
}

// betweenText returns "lo to hi" for the interval of a difference of a figure, in the unit of
// differenceText.
func betweenText(figure string, lo, hi *float64) string {
	if lo == nil || hi == nil {
		return report.Unknown
	}
	return differenceText(figure, lo) + " to " + differenceText(figure, hi)
}

// differenceText returns the text of a difference of a figure: shares (goodput and keys that end in
// _share) in percentage points, others in their own unit.
func differenceText(figure string, v *float64) string {
	if v == nil {
		return report.Unknown
	}
	if strings.HasPrefix(figure, "goodput") || strings.HasSuffix(figure, "_share") {
		return report.Short(100 * *v)
	}
	return report.Short(*v)
}

// headings are the words for figures that are compared.
var headings = map[string]string{"goodput": "goodput (points)", "goodput_critical": "critical goodput (points)",
	"admitted_share": "admitted (points)", "potential_share": "potential cached share (points)",
	"ttft_p99_critical_ms": "P99 critical (ms)",
	"ttft_p99_admitted_ms": "P99 admitted (ms)", "output_tokens_per_s": "output tokens/s"}

// differenceCell returns the table cell of the contrast a - b of a figure: the effect, with its
// interval below; "unknown" if the list has no such contrast.
func differenceCell(list []contrastDoc, a, b, figure string) report.Cell {
	k := slices.IndexFunc(list, func(c contrastDoc) bool { return c.A == a && c.B == b && c.Figure == figure })
	if k < 0 {
		return report.Plain(report.Unknown)
	}
	c := &list[k]
	return report.Cell{
		Text:  differenceText(figure, c.Effect),
		Sub:   betweenText(figure, c.Lo, c.Hi),
		Class: "n",
	}
}

// pairedTable returns a table with a row for each contrast: effect, interval, p values and whether
// the two cells are equivalent within 5 %.
func pairedTable(id, caption string, list []contrastDoc) *report.Table {
	t := report.NewTable(id, caption, "A", "B", "Figure", "# A - B", "95 %", "# p ? exact sign flips, two-sided",
		"# Holm p",
		"Same within 5 %", "# Seeds")
	for _, c := range list {
		same := ""
		if c.Same != nil && *c.Same {
			same = "yes"
		}
		t.Put(report.Plain(c.A), report.Plain(c.B), report.Plain(cmp.Or(headings[c.Figure], c.Figure)),
			report.Cell{Text: differenceText(c.Figure, c.Effect), Class: "n"},
			report.Cell{Text: betweenText(c.Figure, c.Lo, c.Hi), Class: "nb"}, report.Number(c.P),
			report.Number(c.Holm),
			report.Plain(same), report.Count(c.N))
	}
	return report.Capped(t, "in the order of the file", "experiment.json")
}

// componentTable returns a table with a row for each pair of cells that were compared and a column
// for each main figure.
func componentTable(list []contrastDoc) *report.Table {
	t := report.NewTable("contrasts", "A less B, one component at a time, and its 95 % interval", "A", "B")
	keys := []string{"goodput", "goodput_critical", "admitted_share", "ttft_p99_critical_ms", "output_tokens_per_s"}
	for _, key := range keys {
		head := headings[key]
		t.Cols = append(t.Cols, report.Column{Head: strings.ToUpper(head[:1]) + head[1:], Num: true})
	}
	for i := range list {
		c := &list[i]
		if c.Figure != keys[0] {
			continue
		}
		row := []report.Cell{report.Plain(c.A), report.Plain(c.B)}
		for _, key := range keys {
			row = append(row, differenceCell(list, c.A, c.B, key))
		}
		t.Put(row...)
	}
	return report.Capped(t, "in the order of the file", "experiment.json")
}

// verdictSection returns the verdict on each published statement and the contrasts that decided it.
func verdictSection(d *Document) report.Section {
	x := report.Section{
		ID:    "verdicts",
		Nav:   "Verdicts",
		Title: "What the data say",
		Lead: "A verdict needs its preconditions, else it is NOT TESTABLE. Seeds are the unit, paired on equal " +
			"arrivals.",
	}
	t := report.NewTable("verdict-table", "Verdicts", "Statement", "Verdict", "Why")
	var evidence []contrastDoc
	for _, v := range d.Verdicts {
		t.Put(report.Prose(v.ID+": "+v.Statement), report.Plain(v.Verdict), report.Prose(v.Why))
		evidence = append(evidence, v.Evidence...)
	}
	x.Blocks = report.Tables(t, pairedTable("evidence", "What they rest on", evidence))
	return x
}

// cellSection returns the mean figures of all cells but those of the frontiers.
func cellSection(d *Document) report.Section {
	x := report.Section{
		ID:    "cells",
		Nav:   "Cells",
		Title: "All configurations",
		Lead: "Goodput is requests that met every target of their class over all that arrived: a rejected " +
			"request counts as missed.",
	}
	t := report.NewTable("cell-table", "Means over seeds", "# No.", "Configuration", "# Goodput", "# Critical",
		"# Standard",
		"# Sheddable", "# Admitted", "# Missed of admitted", "# P99 critical (ms)", "# P99 admitted (ms)",
		"# Cached tokens",
		"# Potential of all", "# Jain", "# Output tokens/s", "Stationary")
	for _, c := range d.Cells {
		if c.Role == "frontier" {
			continue
		}
		f := func(key string) *float64 { return c.Figures[key].Mean }
		still := "no"
		if c.Stationary {
			still = "yes"
		}
		t.Put(numberOf(c.PublishedNumber), report.Cell{Text: c.Name, Class: "nb"}, report.Percent(f("goodput")),
			report.Percent(f("goodput_critical")), report.Percent(f("goodput_standard")),
			report.Percent(f("goodput_sheddable")),
			report.Percent(f("admitted_share")), report.Percent(f("miss_share")),
			report.Number(f("ttft_p99_critical_ms")),
			report.Number(f("ttft_p99_admitted_ms")), report.Percent(f("cached_share")),
			report.Percent(f("potential_share")),
			report.Number(f("jain")), report.Number(f("output_tokens_per_s")), report.Plain(still))
	}
	x.Blocks = slices.Concat(report.FigureBlocks([]*report.Figure{goodputFigure(d)}),
		report.Tables(t, componentTable(d.Contrasts)))
	return x
}

// numberOf returns the number that a configuration has in the publication, and an empty table cell
// for one that was not published (0).
func numberOf(n int) report.Cell {
	if n == 0 {
		return report.Plain("")
	}
	return report.Count(n)
}

// predictionSection returns the accuracy of the predicted TTFT of each configuration, and how often
// requests met their target by the estimated probability that they would.
func predictionSection(d *Document) report.Section {
	x := report.Section{
		ID:    "predictions",
		Nav:   "Predictions",
		Title: "Predicted and observed TTFT",
		Lead: "Of admitted requests, and of a sample of rejected ones that a copy of their engine served: a gate " +
			"that never learns what it rejects can be wrong for ever. The copy goes on receiving what the " +
			"engine is sent; a request is followed for four times its target. Bounds are learned from admitted " +
			"requests: for rejected ones none is promised.",
	}
	t := report.NewTable("prediction-table", "By configuration", "Configuration", "# Median APE", "# Bias",
		"# P90 coverage",
		"# Shadow median APE", "# Shadow coverage")
	for _, c := range d.Cells {
		f := func(key string) *float64 { return c.Figures[key].Mean }
		if c.Role != "frontier" && f("prediction_median_ape") != nil {
			t.Put(report.Plain(c.Name), report.Percent(f("prediction_median_ape")),
				report.Percent(f("prediction_bias")),
				report.Percent(f("prediction_coverage_p90")), report.Percent(f("shadow_median_ape")),
				report.Percent(f("shadow_coverage_p90")))
		}
	}
	bands := report.NewTable("reliability",
		"Estimated probability of meeting the target, and the share that met it: admitted requests, and rejected "+
			"ones by their shadows", "# From", "# To", "# Requests", "# Expected", "# Met")
	for _, r := range d.Reliability {
		bands.Put(report.Num(r.From), report.Num(r.To), report.Num(r.Requests), report.Percent(&r.Expected),
			report.Percent(&r.Met))
	}
	x.Blocks = slices.Concat(report.FigureBlocks([]*report.Figure{scatterFigure(d)}), report.Tables(t, bands))
	return x
}

// robustSection returns the main comparison with other coefficients in the gate and at other loads,
// the published P99 next to ours, and the P99 by the duration of arrivals.
func robustSection(d *Document) report.Section {
	x := report.Section{
		ID:    "robust",
		Nav:   "Sensitivity",
		Title: "How far it carries",
		Lead: "The same with other coefficients in the gate; at a load where no request needs to be rejected; and the " +
			"published figures beside ours.",
	}
	t := report.NewTable("controllers", "Predictive against always-admit, by the gate's coefficients", "Gate", "Label",
		"# Requests/s", "# Rho", "# Arrivals (s)", "# max_num_seqs in use", "# Goodput gained (points)", "# Admitted", "# Median APE", "# Bias",
		"# P90 coverage", "Confirmed")
	for _, c := range d.Controllers {
		var holds []string
		for _, v := range d.Verdicts {
			if c.Verdicts[v.ID] == "CONFIRMED" {
				holds = append(holds, v.ID)
			}
		}
		g := []contrastDoc{c.Goodput}
		t.Put(report.Plain(c.Kind), report.Prose(c.Label), report.Num(c.RateRPS), report.Num(c.Rho),
			report.Num(c.HorizonS), report.Percent(c.Seats),
			differenceCell(g, c.Goodput.A, c.Goodput.B, c.Goodput.Figure), report.Percent(c.Admitted),
			report.Percent(c.MedianAPE),
			report.Percent(c.Bias), report.Percent(c.Coverage), report.Plain(cmp.Or(strings.Join(holds, ", "), "none")))
	}
	tables := []*report.Table{t}
	for i, at := range d.Loads {
		tables = append(tables, loadTable(i, &at))
	}
	t = report.NewTable("published", "Published P99 and ours, by the cell each was measured with, and the shares rejected",
		"Configuration", "# No.", "# Published (ms)", "Published statistic", "# Published rejected",
		"# Class critical (ms)", "# All admitted (ms)", "# Worst instance (ms)", "# Rejected")
	for _, p := range d.Published {
		statistic := "worst instance"
		if p.Statistic == criticalStatistic {
			statistic = "class critical"
		}
		t.Put(report.Plain(p.Cell), numberOf(p.PublishedNumber), report.Num(p.PublishedMs), report.Plain(statistic),
			report.Percent(p.Rejected), report.Number(p.CriticalMs), report.Number(p.PooledMs), report.Number(p.WorstMs),
			report.Percent(p.OurRejected))
	}
	lengths := report.NewTable("transient", "Always-admit by the length of arrivals", "# Arrivals (s)",
		"# P99 (ms)", "95 %")
	for _, p := range d.Transient {
		lengths.Put(report.Num(p.ArrivalsS), report.Number(p.P99Ms),
			report.Cell{Text: betweenText("", p.Lo, p.Hi), Class: "nb"})
	}
	x.Blocks = report.Tables(append(tables, t, lengths)...)
	return x
}

// quietBelow is a load, as a share of capacity, below which no gate may have an effect: of the loads of an
// experiment quietRho alone.
const quietBelow = 0.7

// loadTable returns the table of at, entry i of d.Loads: each gate at another load, with its difference from
// always-admit, which is the first cell.
func loadTable(i int, at *loadDoc) *report.Table {
	caption := fmt.Sprintf("The gates at %g of capacity, %s requests/s, arrivals from %g to %g s", at.Rho,
		report.Short(at.RateRPS),
		at.WindowS[0], at.WindowS[1])
	if at.Rho < quietBelow {
		caption += ": every effect must vanish"
	}
	t := report.NewTable(fmt.Sprintf("load-%d", i), caption, "Configuration", "# Goodput", "# Admitted",
		"# Standard missed",
		"# Sheddable missed", "# P99 critical (ms)", "# Goodput against the first (points)",
		"# Admitted against it (points)",
		"# Output tokens/s against it")
	for _, c := range at.Cells {
		f := func(key string) *float64 { return c.Figures[key].Mean }
		row := []report.Cell{report.Plain(c.Name), report.Percent(f("goodput")), report.Percent(f("admitted_share")),
			report.Percent(f("miss_share_standard")), report.Percent(f("miss_share_sheddable")),
			report.Number(f("ttft_p99_critical_ms"))}
		for _, key := range []string{"goodput", "admitted_share", "output_tokens_per_s"} {
			row = append(row, differenceCell(at.Contrasts, c.Name, at.Cells[0].Name, key))
		}
		t.Put(row...)
	}
	return t
}

// frontierSection returns the plot of what each gate can reach when its main parameter is varied.
func frontierSection(d *Document) report.Section {
	return report.Section{
		ID:    "frontier",
		Nav:   "Frontiers",
		Title: "What each gate can reach",
		Lead: "One dot a setting: thresholds of slo-gated, tolerated misses of predictive. Better lies up and " +
			"to the left.",
		Blocks: report.FigureBlocks([]*report.Figure{frontierFigure(d)}),
	}
}

// newcomerSection returns how soon a prefix group that appears during the run is admitted as often
// as established ones.
func newcomerSection(d *Document) report.Section {
	x := report.Section{ID: "newcomer", Nav: "Newcomer", Title: "A group that the gateway has not seen"}
	t := report.NewTable("reached", "First second at 0.8 of the others' admission", "Configuration", "# Second")
	for _, c := range d.Newcomer {
		t.Put(report.Plain(c.Cell), report.Number(c.ReachedS))
	}
	x.Blocks = append(report.FigureBlocks([]*report.Figure{newcomerFigure(d)}), report.Tables(t)...)
	return x
}

// extraSuffix is the routing and the scheduler of all controls.
var extraSuffix = extraName("")

// goodputFigure draws the mean goodput of every configuration with its 95 % interval; nil if none
// has a value.
func goodputFigure(d *Document) *report.Figure {
	rows, top := goodputRows(d)
	if len(rows) == 0 {
		return nil
	}
	return &report.Figure{
		ID:    "goodput",
		Title: "Goodput by configuration",
		Note: "Dots are means over seeds, ticks their 95 % intervals. Arrivals are equal in every row. Rows " +
			"without routing and scheduler have pa4qd3 and priority.",
		Panels: report.BothWidths("goodput of each configuration with its interval",
			func(w float64) *report.Drawing {
				return report.RowChart(w, rows, report.Linear("goodput (% of arrivals)", 0, max(1, top), 6))
			}),
	}
}

// goodputRows returns the rows of goodputFigure in percent, and the largest value in them.
func goodputRows(d *Document) (rows []report.ChartRow, top float64) {
	for _, c := range d.Cells {
		f := c.Figures["goodput"]
		if c.Role == "frontier" || f.Mean == nil {
			continue
		}
		name := c.Name
		if c.Role == "extra" {
			name = strings.TrimSuffix(name, extraSuffix)
		}
		row := report.ChartRow{
			Name: name,
			Join: true,
			Marks: []report.RowMark{{
				V:   100 * *f.Mean,
				P:   report.Decode,
				Tip: fmt.Sprintf("%s: %s, %d seeds", c.Name, report.Pct(*f.Mean), f.N),
			}},
		}
		if f.Lo != nil && f.Hi != nil {
			row.Marks = append(row.Marks, report.RowMark{
				V:   100 * *f.Lo,
				P:   report.Mute,
				Bar: true,
				Tip: "95 % interval",
			},
				report.RowMark{V: 100 * *f.Hi, P: report.Mute, Bar: true, Tip: "95 % interval"})
			top = max(top, 100**f.Hi)
		}
		top = max(top, 100**f.Mean)
		rows = append(rows, row)
	}
	return rows, top
}

// gates are the two admission policies whose frontiers are drawn, with their words in the legend.
var gates = []struct {
	policy, word string
	p            report.Paint
}{{policyGated, "slo-gated, thresholds", report.Prefill}, {policyPredictive, "predictive, eps", report.Decode}}

// frontierFigure draws goodput and admitted share against the P99 of TTFT of class critical, one
// curve for each gate; nil if no setting has a finite P99.
func frontierFigure(d *Document) *report.Figure {
	fig := &report.Figure{
		ID:    "frontiers",
		Title: "Frontiers of the two gates",
		Note: "At one critical P99 compare the heights. A line joins the settings of a gate, from strict to lax; " +
			"those without a finite P99 are left out.",
	}
	for _, key := range []struct{ key, label string }{{"goodput", "goodput (%)"}, {"admitted_share", "admitted (%)"}} {
		var x, y report.Span
		xy := map[string][][2]float64{}
		for _, c := range d.Cells {
			p99 := c.Figures["ttft_p99_critical_ms"].Mean
			v := c.Figures[key.key].Mean
			if c.Role != "frontier" || p99 == nil || v == nil {
				continue
			}
			x.Take(*p99)
			y.Take(100 * *v)
			xy[c.Admission] = append(xy[c.Admission], [2]float64{*p99, 100 * *v})
		}
		if len(xy) == 0 {
			return nil
		}
		xlo, xhi := report.Widened(x.Lo, x.Hi)
		ylo, yhi := report.Widened(y.Lo, y.Hi)
		ylo = max(0, ylo)
		yhi = min(100, yhi)
		f := report.NewFrame(report.PanelW, report.PanelH, "", report.Linear("critical P99 TTFT (ms)", xlo, xhi, 5),
			report.Linear(key.label, ylo,
				yhi, 5))
		for _, g := range gates {
			f.Curve(xy[g.policy], g.p, 1, report.Solid)
			for _, p := range xy[g.policy] {
				f.Dot(f.At(p[0], p[1]), 4, g.p, 0,
					fmt.Sprintf("%s: P99 %s ms, %s %s", g.word, report.Short(p[0]), key.label, report.Short(p[1])))
			}
		}
		fig.Panels = append(fig.Panels,
			report.Panel{D: &f.Drawing, Desc: key.label + " over the P99 of critical requests"})
	}
	for _, g := range gates {
		fig.Legend = append(fig.Legend, report.Key{P: g.p, Area: true, Text: g.word})
	}
	return fig
}

// scatterFigure draws predicted against observed TTFT on logarithmic axes; nil without two
// different values.
func scatterFigure(d *Document) *report.Figure {
	var span report.Span
	for _, p := range d.Scatter {
		span.TakePositive(p.PredictedMs)
		span.TakePositive(p.TookMs)
	}
	if len(d.Scatter) == 0 || !(span.Hi > span.Lo) {
		return nil
	}
	return &report.Figure{
		ID:    "scatter",
		Title: "Predictions of the main configuration, first seed",
		Note: "Below the diagonal it took longer than predicted. Plum dots were rejected, and are what a copy of " +
			"the engine would have given them.",
		Legend: []report.Key{{
			P:    report.Decode,
			Area: true,
			Text: "admitted",
		}, {
			P:    report.Mixed,
			Area: true,
			Text: "rejected (shadow)",
		},
			{P: report.AxisLine, Dash: report.Dashed, Text: "as predicted"}},
		Panels: report.BothWidths("predicted over observed TTFT", func(w float64) *report.Drawing {
			f := report.NewFrame(w, 320, "", report.Logarithmic("observed (ms)", span.Lo/1.1, span.Hi*1.1),
				report.Logarithmic("predicted (ms)", span.Lo/1.1, span.Hi*1.1))
			f.Diagonal(1, report.AxisLine, report.Dashed)
			for _, p := range d.Scatter {
				paint := report.Decode
				if p.Shadow {
					paint = report.Mixed
				}
				if f.Inside(p.TookMs, p.PredictedMs) {
					f.Dot(f.At(p.TookMs, p.PredictedMs), 1.8, paint, 0, "")
				}
			}
			return &f.Drawing
		}),
	}
}

// newcomerFigure draws, by second after its first arrival, the admitted share of the new prefix
// group divided by that of established groups; nil for loads without a new group.
func newcomerFigure(d *Document) *report.Figure {
	if len(d.Newcomer) == 0 {
		return nil
	}
	longest := 0
	for _, c := range d.Newcomer {
		longest = max(longest, len(c.Ratio))
	}
	fig := &report.Figure{
		ID:    "newcomer-curve",
		Title: "Admission of the newcomer, relative to established groups",
		Note: "1 is equal treatment. Without a floor a gate that prefers cached prefixes may never learn that " +
			"the newcomer has one.",
	}
	paints := []report.Paint{report.Decode, report.Prefill, report.Other}
	for i, c := range d.Newcomer {
		fig.Legend = append(fig.Legend, report.Key{P: paints[i%3], Text: strings.TrimSuffix(c.Cell, extraSuffix)})
	}
	fig.Panels = report.BothWidths("admission ratio of the newcomer by second", func(w float64) *report.Drawing {
		f := report.NewFrame(w, 280, "", report.Linear("seconds after it came", 0, float64(max(1, longest-1)), 6),
			report.Linear("ratio",
				0, 1.5, 4))
		f.Level(0.8, report.Mute, report.Dashed, "0.8")
		for i, c := range d.Newcomer {
			var xy [][2]float64
			for s, v := range c.Ratio {
				if v != nil {
					xy = append(xy, [2]float64{float64(s), min(1.5, *v)})
				}
			}
			f.Curve(xy, paints[i%3], 1.8, report.Solid)
		}
		return &f.Drawing
	})
	return fig
}
