package experiment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
)

// WritePage writes the page as one HTML file.
func WritePage(w io.Writer, d *ExperimentDoc) error {
	sections := []page.Section{verdictSection(d), cellSection(d), frontierSection(d), predictionSection(d), robustSection(d),
		newcomerSection(d)}
	sections = slices.DeleteFunc(sections, func(x page.Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	return page.Write(w, head(d), sections)
}

func head(d *ExperimentDoc) page.Head {
	h := page.Head{Class: "none", Badge: strings.ToUpper(d.Label), Kicker: "Admission by predicted TTFT: an experiment that can say no",
		Sentence: fmt.Sprintf("Preset %s: %s on %d engines at %s requests/s, %.2f of their capacity, for %g s.", d.Preset,
			words.Plural(len(d.Cells), "configuration"), d.Instances, words.Short(d.RateRPS), d.Rho, d.HorizonS)}
	for _, v := range d.Verdicts {
		h.Failed = append(h.Failed, fmt.Sprintf("%s, %s: %s", v.ID, v.Verdict, v.Statement))
	}
	h.Facts = []page.Fact{page.FactOf("Workload", d.Workload), page.FactOf("Engines", d.Plant), page.FactOf("Gate", d.Controller),
		page.FactOf("Capacity", words.Short(d.CapacityRPS)+" requests/s"), page.FactOf("Seeds", fmt.Sprint(len(d.Seeds))),
		page.FactOf("Window", fmt.Sprintf("arrivals from %g to %g s", d.WindowS[0], d.WindowS[1])),
		page.FactOf("Lifetime", words.Short(d.LifetimeS)+" s"), page.FactOf("CV of matched tokens", words.ShortOr(d.MatchedCV))}
	return h
}

func band(lo, hi *float64) page.Cell { return page.Cell{Text: betweenText("", lo, hi), Class: "nb"} }

// between is an interval of a difference of a figure.
func betweenText(figure string, lo, hi *float64) string {
	if lo == nil || hi == nil {
		return words.Unknown
	}
	return differing(figure, lo) + " to " + differing(figure, hi)
}

// differing is a difference of a figure: of shares in points.
func differing(figure string, v *float64) string {
	if v == nil {
		return words.Unknown
	}
	if strings.HasPrefix(figure, "goodput") || strings.HasSuffix(figure, "_share") {
		return words.Short(100 * *v)
	}
	return words.Short(*v)
}

// headings of the figures that are compared.
var headings = map[string]string{"goodput": "goodput (points)", "goodput_critical": "critical goodput (points)",
	"admitted_share": "admitted (points)", "potential_share": "potential cached share (points)", "ttft_p99_critical_ms": "P99 critical (ms)",
	"ttft_p99_admitted_ms": "P99 admitted (ms)", "output_tokens_per_s": "output tokens/s"}

// difference is one contrast as a cell.
func difference(list []ExperimentContrast, a, b, figure string) page.Cell {
	k := slices.IndexFunc(list, func(c ExperimentContrast) bool { return c.A == a && c.B == b && c.Figure == figure })
	if k < 0 {
		return page.Plain(words.Unknown)
	}
	c := &list[k]
	return page.Cell{Text: differing(figure, c.Effect), Sub: betweenText(figure, c.Lo, c.Hi), Class: "n"}
}

func pairedTable(id, caption string, list []ExperimentContrast) *page.Table {
	t := &page.Table{ID: id, Caption: caption, Cols: []page.Column{{Head: "A"}, {Head: "B"}, {Head: "Figure"}, {Head: "A - B", Num: true},
		{Head: "95 %"}, {Head: "p", Num: true, Help: "exact sign flips, two-sided"}, {Head: "Holm p", Num: true}, {Head: "Same within 5 %"},
		{Head: "Seeds", Num: true}}}
	for _, c := range list {
		same := ""
		if c.Same != nil && *c.Same {
			same = "yes"
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(c.A), page.Plain(c.B), page.Plain(cmp.Or(headings[c.Figure], c.Figure)),
			{Text: differing(c.Figure, c.Effect), Class: "n"}, {Text: betweenText(c.Figure, c.Lo, c.Hi), Class: "nb"},
			page.Number(c.P), page.Number(c.Holm), page.Plain(same), page.Count(c.N)}})
	}
	return page.Capped(t, "in the order of the file", "experiment.json")
}

// componentTable has a row for each pair of configurations.
func componentTable(list []ExperimentContrast) *page.Table {
	t := &page.Table{ID: "contrasts", Caption: "A less B, one component at a time, and its 95 % interval",
		Cols: []page.Column{{Head: "A"}, {Head: "B"}}}
	keys := []string{"goodput", "goodput_critical", "admitted_share", "ttft_p99_critical_ms", "output_tokens_per_s"}
	for _, key := range keys {
		head := headings[key]
		t.Cols = append(t.Cols, page.Column{Head: strings.ToUpper(head[:1]) + head[1:], Num: true})
	}
	for i := range list {
		c := &list[i]
		if c.Figure != keys[0] {
			continue
		}
		row := []page.Cell{page.Plain(c.A), page.Plain(c.B)}
		for _, key := range keys {
			row = append(row, difference(list, c.A, c.B, key))
		}
		t.Rows = append(t.Rows, page.Row{Cells: row})
	}
	return page.Capped(t, "in the order of the file", "experiment.json")
}

func verdictSection(d *ExperimentDoc) page.Section {
	x := page.Section{ID: "verdicts", Nav: "Verdicts", Title: "What the data say",
		Lead: "A verdict needs its preconditions, else it is NOT TESTABLE. Seeds are the unit, paired on equal arrivals."}
	t := &page.Table{ID: "verdict-table", Caption: "Verdicts", Cols: []page.Column{{Head: "Statement"}, {Head: "Verdict"}, {Head: "Why"}}}
	var evidence []ExperimentContrast
	for _, v := range d.Verdicts {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(v.ID + ": " + v.Statement), page.Plain(v.Verdict), page.Prose(v.Why)}})
		evidence = append(evidence, v.Evidence...)
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	x.Blocks = append(x.Blocks, page.Tables(pairedTable("evidence", "What they rest on", evidence))...)
	return x
}

func cellSection(d *ExperimentDoc) page.Section {
	x := page.Section{ID: "cells", Nav: "Cells", Title: "All configurations",
		Lead: "Goodput is requests that met every target of their class over all that arrived: a rejected request counts as missed."}
	x.Blocks = append(x.Blocks, page.FigureBlocks(some(goodputFigure(d)))...)
	t := &page.Table{ID: "cell-table", Caption: "Means over seeds", Cols: []page.Column{{Head: "No.", Num: true}, {Head: "Configuration"},
		{Head: "Goodput", Num: true}, {Head: "Critical", Num: true}, {Head: "Standard", Num: true}, {Head: "Sheddable", Num: true},
		{Head: "Admitted", Num: true}, {Head: "Missed of admitted", Num: true}, {Head: "P99 critical (ms)", Num: true},
		{Head: "P99 admitted (ms)", Num: true}, {Head: "Cached tokens", Num: true}, {Head: "Potential of all", Num: true}, {Head: "Jain",
			Num: true},
		{Head: "Output tokens/s", Num: true}, {Head: "Stationary"}}}
	for _, c := range d.Cells {
		if c.Role == "frontier" {
			continue
		}
		f := func(key string) *float64 { return c.Figures[key].Mean }
		no, still := "", "no"
		if c.Number > 0 {
			no = fmt.Sprint(c.Number)
		}
		if c.Stationary {
			still = "yes"
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(no), {Text: c.Name, Class: "nb"}, page.Percent(f("goodput")),
			page.Percent(f("goodput_critical")), page.Percent(f("goodput_standard")), page.Percent(f("goodput_sheddable")),
			page.Percent(f("admitted_share")), page.Percent(f("miss_share")), page.Number(f("ttft_p99_critical_ms")),
			page.Number(f("ttft_p99_admitted_ms")), page.Percent(f("cached_share")), page.Percent(f("potential_share")), page.Number(f("jain")),
			page.Number(f("output_tokens_per_s")), page.Plain(still)}})
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	x.Blocks = append(x.Blocks, page.Tables(componentTable(d.Contrasts))...)
	return x
}

func predictionSection(d *ExperimentDoc) page.Section {
	x := page.Section{ID: "predictions", Nav: "Predictions", Title: "Predicted and observed TTFT",
		Lead: "Of admitted requests, and of a sample of rejected ones that a copy of their engine served: a gate that is never told about what " +
			"it rejects can be wrong for ever. The copy goes on receiving what the engine is sent; a request is followed for four " +
			"times its target. Bounds are learned from admitted requests: for rejected ones none is promised."}
	x.Blocks = append(x.Blocks, page.FigureBlocks(some(scatterFigure(d)))...)
	t := &page.Table{ID: "prediction-table", Caption: "By configuration", Cols: []page.Column{{Head: "Configuration"}, {Head: "Median APE",
		Num: true},
		{Head: "Bias", Num: true}, {Head: "P90 coverage", Num: true}, {Head: "Shadow median APE", Num: true}, {Head: "Shadow coverage",
			Num: true},
		{Head: "Rejected that would have met it", Num: true}}}
	for _, c := range d.Cells {
		f := func(key string) *float64 { return c.Figures[key].Mean }
		if c.Role != "frontier" && f("prediction_median_ape") != nil {
			t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(c.Name), page.Percent(f("prediction_median_ape")),
				page.Percent(f("prediction_bias")), page.Percent(f("prediction_coverage_p90")), page.Percent(f("shadow_median_ape")),
				page.Percent(f("shadow_coverage_p90")), page.Percent(f("false_reject_share"))}})
		}
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	return x
}

func robustSection(d *ExperimentDoc) page.Section {
	x := page.Section{ID: "robust", Nav: "Sensitivity", Title: "How far it carries",
		Lead: "The same with other coefficients in the gate; at a load where nobody needs rejecting; and the published figures beside ours."}
	t := &page.Table{ID: "controllers", Caption: "Predictive against always-admit, by the gate's coefficients",
		Cols: []page.Column{{Head: "Gate"},
			{Head: "Label"}, {Head: "Requests/s", Num: true}, {Head: "Rho", Num: true}, {Head: "Arrivals (s)", Num: true},
			{Head: "Goodput gained (points)", Num: true}, {Head: "Admitted", Num: true}, {Head: "Median APE", Num: true},
			{Head: "Bias", Num: true}, {Head: "P90 coverage", Num: true}, {Head: "Confirmed"}}}
	for _, c := range d.Controllers {
		var holds []string
		for _, v := range d.Verdicts {
			if c.Verdicts[v.ID] == "CONFIRMED" {
				holds = append(holds, v.ID)
			}
		}
		g := []ExperimentContrast{c.Goodput}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(c.Kind), page.Prose(c.Label), page.Num(c.RateRPS), page.Num(c.Rho),
			page.Num(c.HorizonS), difference(g, c.Goodput.A, c.Goodput.B, c.Goodput.Figure), page.Percent(c.Admitted),
			page.Percent(c.MedianAPE), page.Percent(c.Bias), page.Percent(c.Coverage), page.Plain(cmp.Or(strings.Join(holds, ", "), "none"))}})
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	for i, at := range d.Loads {
		x.Blocks = append(x.Blocks, page.Tables(loadTable(i, &at))...)
	}
	t = &page.Table{ID: "published", Caption: "Published P99 and ours", Cols: []page.Column{{Head: "Configuration", Num: true},
		{Head: "Published (ms)", Num: true}, {Head: "Pooled (ms)", Num: true}, {Head: "Worst instance (ms)", Num: true}}}
	for _, p := range d.Published {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Count(p.Configuration), page.Num(p.PublishedMs), page.Number(p.PooledMs),
			page.Number(p.WorstMs)}})
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	t = &page.Table{ID: "transient", Caption: "Always-admit by the length of arrivals", Cols: []page.Column{{Head: "Arrivals (s)", Num: true},
		{Head: "P99 (ms)", Num: true}, {Head: "95 %"}}}
	for _, p := range d.Transient {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Num(p.ArrivalsS), page.Number(p.P99Ms), band(p.Lo, p.Hi)}})
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	return x
}

// loadTable is the gates at another load, with what each changes of always-admit's
// goodput.
func loadTable(i int, at *ExperimentLoad) *page.Table {
	caption := fmt.Sprintf("The gates at %g of capacity, %s requests/s, arrivals from %g to %g s", at.Rho, words.Short(at.RateRPS),
		at.WindowS[0], at.WindowS[1])
	if at.Rho < 0.7 {
		caption += ": every effect must vanish"
	}
	t := &page.Table{ID: fmt.Sprintf("load-%d", i), Caption: caption, Cols: []page.Column{{Head: "Configuration"},
		{Head: "Goodput", Num: true}, {Head: "Admitted", Num: true}, {Head: "Standard missed", Num: true}, {Head: "Sheddable missed", Num: true},
		{Head: "P99 critical (ms)", Num: true}, {Head: "Goodput against the first (points)", Num: true},
		{Head: "Admitted against it (points)", Num: true}, {Head: "Output tokens/s against it", Num: true}}}
	for _, c := range at.Cells {
		f := func(key string) *float64 { return c.Figures[key].Mean }
		row := []page.Cell{page.Plain(c.Name), page.Percent(f("goodput")), page.Percent(f("admitted_share")),
			page.Percent(f("miss_share_standard")), page.Percent(f("miss_share_sheddable")), page.Number(f("ttft_p99_critical_ms"))}
		for _, key := range []string{"goodput", "admitted_share", "output_tokens_per_s"} {
			row = append(row, difference(at.Contrasts, c.Name, at.Cells[0].Name, key))
		}
		t.Rows = append(t.Rows, page.Row{Cells: row})
	}
	return t
}

func some(f *draw.Figure) []*draw.Figure {
	if f == nil {
		return nil
	}
	return []*draw.Figure{f}
}

func frontierSection(d *ExperimentDoc) page.Section {
	return page.Section{ID: "frontier", Nav: "Frontiers", Title: "What each gate can reach",
		Lead:   "One dot a setting: thresholds of slo-gated, tolerated misses of predictive. Better lies up and to the left.",
		Blocks: page.FigureBlocks(some(frontierFigure(d)))}
}

func newcomerSection(d *ExperimentDoc) page.Section {
	x := page.Section{ID: "newcomer", Nav: "Newcomer", Title: "A group that nobody knows"}
	x.Blocks = page.FigureBlocks(some(newcomerFigure(d)))
	t := &page.Table{ID: "reached", Caption: "First second at 0.8 of the others' admission", Cols: []page.Column{{Head: "Configuration"},
		{Head: "Second", Num: true}}}
	for _, c := range d.Newcomer {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(c.Cell), page.Number(c.ReachedS)}})
	}
	x.Blocks = append(x.Blocks, page.Tables(t)...)
	return x
}
