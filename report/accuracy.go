package report

// This file makes the section on errors of the step time (beta) and of the delays outside the steps
// (alpha). MAPE is the mean of |error|/measured, MAPEConst that of the best constant prediction, MAPEFloor
// that of the nearest measured neighbours (noise); LOCO is leave one configuration out.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// accuracySection returns the section on errors of the step time and of the delays outside the
// steps, with the figures figs.
func accuracySection(in Input, figs []*Figure) Section {
	s := Section{ID: "fit", Nav: "Accuracy", Title: "Step-time accuracy",
		Lead: "Predictions from recorded batches: no simulator, no queue, only the step-time model."}
	if in.Fit == nil && in.Validation == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT`."
		return s
	}
	if in.Fit != nil {
		s.Blocks = append(s.Blocks, Tables(summaryTable(in.Fit))...)
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, Tables(cellTable(cellsLayout, f.Beta.Cells, "fit.json, beta.cells"))...)
		s.Blocks = append(s.Blocks, Tables(cellTable(stressLayout, f.Beta.StressSets, "fit.json, beta.stress_sets"))...)
		s.Blocks = append(s.Blocks, Tables(locoTable(f))...)
		s.Blocks = append(s.Blocks, alphaTables(f)...)
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, Tables(testStepTable(v))...)
		var cells []result.Cell
		for _, r := range v.Runs {
			cells = append(cells, r.StepCells...)
		}
		s.Blocks = append(s.Blocks, Tables(cellTable(testCellsLayout, cells, "validation.json, runs"))...)
	}
	return s
}

// errorCells returns the table cells of e in the order of errorColumns.
func errorCells(e result.Errors) []Cell {
	bias := Percent(e.Bias)
	if e.Bias != nil {
		bias.Text = Signed(*e.Bias)
	}
	return []Cell{Count(e.Rows), Percent(e.MAPE), Percent(e.MAPEConst), Percent(e.MAPEFloor), Number(e.Skill),
		bias, Percent(e.MedianAPE), Percent(e.P95APE), Number(e.MaxErrorRatio)}
}

// summaryTable returns the step-time errors of the hold-out and of the training rows, all runs
// together.
func summaryTable(f *result.Fit) *Table {
	t := summaryLayout.blank()
	add := func(name string, e *result.Errors) {
		if e != nil {
			t.Rows = append(t.Rows, Row{Cells: append([]Cell{Plain(name)}, errorCells(*e)...)})
		}
	}
	add("hold-out (the last share of each phase)", f.Beta.Holdout)
	add("training", f.Beta.Train)
	return t
}

// cellTable returns a table of errors by run, regime and batch. If there are more rows than the
// page shows, those with the largest error come first. where names the file and key with all of
// them.
func cellTable(layout Table, cells []result.Cell, where string) *Table {
	cells = slices.Clone(cells)
	if len(cells) > maxRows {
		stat.SortStable(cells, func(a, b result.Cell) int { return cmp.Compare(orZero(b.MAPE), orZero(a.MAPE)) })
	}
	t := layout.blank()
	for _, c := range cells {
		t.Grow(func() Row {
			return Row{Cells: append([]Cell{Name(c.Run), Plain(c.Regime), Plain(c.Bucket), Plain(c.Set)}, errorCells(c.Errors)...)}
		})
	}
	return Capped(t, "the largest errors first", where)
}

// orZero returns *v, and 0 for nil.
func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// locoTable returns the error on each configuration of a fit to the other configurations.
func locoTable(f *result.Fit) *Table {
	t := locoLayout.blank()
	for _, l := range f.Beta.Loco {
		t.Put(Name(cmp.Or(l.Label, l.Config)), Count(l.Rows), Percent(l.MAPE), Percent(l.MAPEConst), Percent(l.MAPEFrozen10), Percent(l.Bias))
	}
	return Capped(t, "in the order of the file", "fit.json, beta.loco")
}

// alphaTables returns the errors of the delays outside the steps: one table over all runs, and a
// folded one run by run. A target has only the figures that apply to it; the others are shown as
// unknown.
func alphaTables(f *result.Fit) []Block {
	all := alphaErrorsLayout.blank()
	runs := alphaRunsLayout.blank()
	for _, m := range f.Alpha {
		if cells := alphaCells(m.Name, m.Interval, m.TargetErrors); cells != nil {
			all.Grow(func() Row { return Row{Cells: cells} })
		}
		if e := m.TargetErrors; e != nil {
			parts := slices.Clone(e.Regimes)
			if e.Long != nil {
				parts = append(parts, *e.Long)
			}
			for _, r := range parts { // the same for the requests of each regime, and for long delays
				all.Put(alphaCells(m.Name+regimeWords[r.Regime], nil, &result.TargetErrors{Rows: r.Rows, MAPE: r.MAPE, MAPEConst: r.MAPEConst,
					MAPEFloor: r.MAPEFloor, WAPE: r.WAPE})...)
			}
		}
		for _, r := range m.AlphaRuns {
			if cells := alphaCells(m.Name, r.Interval, r.Errors); cells != nil {
				runs.Grow(func() Row { return Row{Cells: append([]Cell{Name(r.Run)}, cells...)} })
			}
		}
	}
	out := Tables(Capped(all, "in the order of the file", "fit.json, alpha"))
	return append(out, Tables(Capped(runs, "in the order of the file", "fit.json, alpha"))...)
}

// regimeWords are appended to the name of a queueing delay for the rows of one regime.
var regimeWords = map[string]string{"idle": ", served at once", "waiting": ", queued", "long": ", a second or longer"}

// alphaCells returns the cells of delayColumns for a target: for one that is only known to lie in
// an interval (i), such as the overhead, or for one whose value is known (e). Figures of the other
// kind are unknown. It returns nil without errors.
func alphaCells(target string, i *result.IntervalErrors, e *result.TargetErrors) []Cell {
	if i == nil && e == nil {
		return nil
	}
	informative := Number(nil)
	if i != nil {
		e = &result.TargetErrors{Rows: i.Rows, WAPE: i.ExactWAPE}
		informative = Count(i.InformativeRows)
	} else {
		i = &result.IntervalErrors{}
	}
	return []Cell{
		Plain(target),
		Count(e.Rows),
		Percent(i.InsideShare),
		informative,
		millis(i.MedianWidthUs),
		millis(i.MedianPredUs),
		Percent(e.MAPE),
		Percent(e.MedianAPE),
		Percent(e.MAPEConst),
		Percent(e.MAPEFloor),
		Percent(e.WAPE),
		Percent(e.MAPEWindow10s),
		Percent(e.ConstWindow),
	}
}

// testStepTable returns the step-time errors of each run of a validation.
func testStepTable(v *result.Validation) *Table {
	t := testStepsLayout.blank()
	for _, r := range v.Runs {
		if r.Steps != nil {
			t.Rows = append(t.Rows, Row{Cells: append([]Cell{Name(r.ID), {Text: splitWords(r.Split), Class: "nb"}}, errorCells(*r.Steps)...)})
		}
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// cellFigure draws the step-time error by run and regime as a matrix; nil without errors.
func cellFigure(f *result.Fit) *Figure {
	var cells []result.Cell
	for _, c := range f.Beta.Cells {
		// Not those of one size of batch or of a stress set, nor those of all regimes together.
		if c.Bucket == "" && c.Set == "" && c.Regime != "" && c.MAPE != nil {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		return nil
	}
	regimes := regimesIn(cells, func(c result.Cell) string { return c.Regime })
	rows, more := worstRuns(cells)
	h := HeatOf(rows, regimes, "regime of the step")
	for _, c := range cells {
		i := slices.Index(rows, c.Run)
		j := slices.Index(regimes, c.Regime)
		if i >= 0 && j >= 0 {
			h.Value[i][j] = c.MAPE
			h.Tip[i][j] = fmt.Sprintf("%s, %s: MAPE %s, constant %s, floor %s, %d rows", c.Run, c.Regime, pctOr(c.MAPE),
				pctOr(c.MAPEConst), pctOr(c.MAPEFloor), c.Rows)
		}
	}
	fig := errorCellsCaption.blank()
	fig.More = more
	fig.Panels = BothWidths("matrix of step-time MAPE by run and regime; the table below holds the numbers", h.Draw)
	return fig
}

// worstRuns returns the runs of the cells: all in their order or, if there are more than
// maxChartRows, those with the largest errors. more is the note on those that are not shown.
func worstRuns(cells []result.Cell) (names []string, more string) {
	worst := map[string]float64{}
	for _, c := range cells {
		names = appendNew(names, c.Run)
		worst[c.Run] = max(worst[c.Run], *c.MAPE)
	}
	if len(names) <= maxChartRows {
		return names, ""
	}
	more = fmt.Sprintf("The %d worst of %d runs.", maxChartRows, len(names))
	stat.SortStable(names, func(a, b string) int { return cmp.Compare(worst[b], worst[a]) })
	return names[:maxChartRows], more
}

// locoFigure draws, for each configuration, the error of a fit to the others, with a constant and
// the frozen recipe of spec 1.0 for comparison; nil without errors.
func locoFigure(f *result.Fit) *Figure {
	ls := slices.DeleteFunc(slices.Clone(f.Beta.Loco), func(l result.Loco) bool { return l.MAPE == nil })
	if len(ls) == 0 {
		return nil
	}
	stat.SortStable(ls, func(a, b result.Loco) int { return cmp.Compare(*b.MAPE, *a.MAPE) })
	fig := locoCaption.blank()
	if len(ls) > maxChartRows {
		fig.More = fmt.Sprintf("The %d worst of %d configurations.", maxChartRows, len(ls))
		ls = ls[:maxChartRows]
	}
	// One row for each configuration, with a mark for each fit; the axis always shows 3 % to 25 %.
	var s Span
	s.Take(0.25, 0.03)
	var rows []ChartRow
	frozen := false
	for _, l := range ls {
		r := ChartRow{Name: cmp.Or(l.Label, l.Config), Join: true}
		mark := func(v *float64, p Paint, what string) {
			if v != nil {
				s.TakePositive(*v)
				r.Marks = append(r.Marks, RowMark{V: *v * 100, P: p, Tip: fmt.Sprintf("%s: %s %s", r.Name, what, Pct(*v))})
			}
		}
		mark(l.MAPEConst, AxisLine, "constant")
		mark(l.MAPEFrozen10, Other, "frozen 1.0")
		mark(l.MAPE, Decode, "this fit")
		frozen = frozen || l.MAPEFrozen10 != nil
		rows = append(rows, r)
	}
	if !frozen { // its key is the last
		fig.Legend = fig.Legend[:2]
	}
	x := Logarithmic("MAPE (%)", s.Lo*100/1.1, s.Hi*100*1.1)
	fig.Panels = BothWidths("leave-one-configuration-out MAPE per configuration", func(w float64) *Drawing {
		return RowChart(w, rows, x, RowMark{V: 25, P: Mute, Tip: "25 %"})
	})
	return fig
}
