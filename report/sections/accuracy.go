package sections

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

func Accuracy(in input.Input, figs []*draw.Figure) page.Section {
	s := page.Section{ID: "fit", Nav: "Accuracy", Title: "Step-time accuracy",
		Lead: "Predictions from recorded batches (teacher-forced): no simulator, no queue, only the step-time model."}
	if in.Fit == nil && in.Validation == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT`."
		return s
	}
	if in.Fit != nil {
		s.Blocks = append(s.Blocks, page.Tables(summaryTable(in.Fit))...)
	}
	s.Blocks = append(s.Blocks, page.FigureBlocks(figs)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, page.Tables(cellTable("cells", "Error by run, regime and batch, hold-out rows", f.Beta.Cells,
			"fit.json, beta.cells", true))...)
		s.Blocks = append(s.Blocks, page.Tables(cellTable("stress", "Stress sets, hold-out rows", f.Beta.StressSets, "fit.json, beta.stress_sets",
			true))...)
		s.Blocks = append(s.Blocks, page.Tables(locoTable(f))...)
		s.Blocks = append(s.Blocks, alphaTables(f)...)
		s.Blocks = append(s.Blocks, page.Tables(amendmentTable(f))...)
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, page.Tables(testStepTable(v))...)
		var cells []result.Cell
		for _, r := range v.Runs {
			cells = append(cells, r.StepCells...)
		}
		s.Blocks = append(s.Blocks, page.Tables(cellTable("test-cells", "Validation: error by run, regime and stress set", cells,
			"validation.json, runs", true))...)
	}
	return s
}

// amendmentTable is nil where nobody asked for the amendments.
func amendmentTable(f *result.Fit) *page.Table {
	if len(f.Amendments) == 0 {
		return nil
	}
	t := &page.Table{ID: "amendments", Caption: "Amendments of the specification, each tried alone on these rows",
		Cols: []page.Column{{Head: "Amendment"}, {Head: "Model"}, {Head: "Worth a try when"}, {Head: "Value", Num: true},
			{Head: "Above", Num: true},
			{Head: "Hold-out error without", Num: true}, {Head: "With", Num: true}, {Head: "Configurations left out without", Num: true},
			{Head: "With", Num: true}, {Head: "Outcome"}}}
	for i := range f.Amendments {
		a := &f.Amendments[i]
		name := page.Name(a.Name)
		name.Sub = a.Doc
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{name, page.Plain(a.Model), page.Prose(a.Trigger), page.Number(a.Value),
			page.Number(&a.Threshold), page.Percent(a.Without), page.Percent(a.With), page.Percent(a.WithoutLeftOut),
			page.Percent(a.WithLeftOut), page.Plain(a.Verdict())}})
	}
	return t
}

var errorCols = []page.Column{
	{Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "Constant", Num: true, Help: "MAPE of the best constant"},
	{Head: "Floor", Num: true, Help: "MAPE of the nearest neighbours: the noise of the measurement"},
	{Head: "Skill", Num: true, Help: "1 at the floor, 0 at the constant"},
	{Head: "Bias", Num: true, Help: "sum(prediction)/sum(measured) − 1"},
	{Head: "Median error", Num: true}, {Head: "P95 error", Num: true}, {Head: "Largest", Unit: "× median step", Num: true},
}

func errorCells(e result.Errors) []page.Cell {
	bias := page.Percent(e.Bias)
	if e.Bias != nil {
		bias.Text = words.Signed(*e.Bias)
	}
	return []page.Cell{page.Count(e.Rows), page.Percent(e.MAPE), page.Percent(e.MAPEConst), page.Percent(e.MAPEFloor), page.Number(e.Skill),
		bias, page.Percent(e.MedianAPE), page.Percent(e.P95APE), page.Number(e.MaxErrorRatio)}
}

func summaryTable(f *result.Fit) *page.Table {
	t := &page.Table{ID: "summary", Caption: "Step time, all rows together", Cols: append([]page.Column{{Head: "Rows of"}}, errorCols...)}
	add := func(name string, e *result.Errors) {
		if e != nil {
			t.Rows = append(t.Rows, page.Row{Cells: append([]page.Cell{page.Plain(name)}, errorCells(*e)...)})
		}
	}
	add("hold-out (the last share of each phase)", f.Beta.Holdout)
	add("training", f.Beta.Train)
	return t
}

// cellTable lists cells; when they exceed the page, those with the largest
// error come first.
func cellTable(id, caption string, cells []result.Cell, where string, closed bool) *page.Table {
	cells = slices.Clone(cells)
	if len(cells) > page.MaxRows {
		slices.SortStableFunc(cells, func(a, b result.Cell) int { return cmp.Compare(orZero(b.MAPE), orZero(a.MAPE)) })
	}
	t := &page.Table{ID: id, Caption: caption, Closed: closed,
		Cols: append([]page.Column{{Head: "Run"}, {Head: "Regime"}, {Head: "Batch"}, {Head: "Set"}}, errorCols...)}
	for _, c := range cells {
		t.Grow(func() page.Row {
			return page.Row{Cells: append([]page.Cell{page.Name(c.Run), page.Plain(c.Regime), page.Plain(c.Bucket), page.Plain(c.Set)},
				errorCells(c.Errors)...)}
		})
	}
	return page.Capped(t, "the largest errors first", where)
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func locoTable(f *result.Fit) *page.Table {
	t := &page.Table{ID: "loco-table", Caption: "Leave one configuration out", Closed: true,
		Cols: []page.Column{{Head: "Configuration"}, {Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "Constant", Num: true},
			{Head: "Frozen 1.0", Num: true}, {Head: "Bias", Num: true}}}
	for _, l := range f.Beta.Loco {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(cmp.Or(l.Label, l.Config)), page.Count(l.Rows), page.Percent(l.MAPE), page.Percent(l.MAPEConst), page.Percent(l.MAPEFrozen10),
			page.Percent(l.Bias)}})
	}
	return page.Capped(t, "in the order of the file", "fit.json, beta.loco")
}

// alphaTables put the errors of the alpha targets side by side, all runs
// together and, folded, run by run; each target has the figures that make
// sense for it.
func alphaTables(f *result.Fit) []page.Block {
	all := &page.Table{ID: "alpha-errors", Caption: "Waits and overheads, hold-out rows", Cols: alphaCols("Target"),
		Note: "overhead is known only to lie in an interval, so it has the share of intervals that hold the prediction. admission contains " +
			"a uniform wait for the running step, so per-request error is large by nature and 10-second means are what counts."}
	runs := &page.Table{ID: "alpha-runs", Caption: "Waits and overheads by run, hold-out rows",
		Cols: append([]page.Column{{Head: "Run"}}, alphaCols("Target")...), Closed: true}
	for _, m := range f.Alpha {
		if cells := alphaCells(m.Name, m.Interval, m.TargetErrors); cells != nil {
			all.Grow(func() page.Row { return page.Row{Cells: cells} })
		}
		for _, r := range m.AlphaRuns {
			if cells := alphaCells(m.Name, r.Interval, r.Errors); cells != nil {
				runs.Grow(func() page.Row { return page.Row{Cells: append([]page.Cell{page.Name(r.Run)}, cells...)} })
			}
		}
	}
	out := page.Tables(page.Capped(all, "in the order of the file", "fit.json, alpha"))
	return append(out, page.Tables(page.Capped(runs, "in the order of the file", "fit.json, alpha"))...)
}

func alphaCols(first string) []page.Column {
	return []page.Column{{Head: first}, {Head: "Rows", Num: true}, {Head: "Inside interval", Num: true}, {Head: "Informative", Num: true},
		{Head: "Median width", Unit: "ms", Num: true},
		{Head: "Median prediction", Unit: "ms", Num: true}, {Head: "MAPE", Num: true},
		{Head: "Constant", Num: true, Help: "MAPE of the best constant"}, {Head: "WAPE", Num: true}, {Head: "MAPE of 10 s means", Num: true},
		{Head: "Constant", Num: true, Help: "MAPE of the best constant of 10-second means"}}
}

func alphaCells(target string, i *result.IntervalErrors, e *result.TargetErrors) []page.Cell {
	switch {
	case i != nil:
		return []page.Cell{page.Plain(target), page.Count(i.Rows), page.Percent(i.InsideShare), page.Count(i.InformativeRows),
			page.Millis(i.MedianWidthUs), page.Millis(i.MedianPredUs), page.Number(nil), page.Number(nil), page.Percent(i.ExactWAPE),
			page.Number(nil), page.Number(nil)}
	case e != nil:
		return []page.Cell{page.Plain(target), page.Count(e.Rows), page.Number(nil), page.Number(nil), page.Number(nil), page.Number(nil),
			page.Percent(e.MAPE), page.Percent(e.MAPEConst), page.Percent(e.WAPE), page.Percent(e.MAPEWindow10s), page.Percent(e.ConstWindow)}
	}
	return nil
}

func testStepTable(v *result.Validation) *page.Table {
	t := &page.Table{ID: "test-steps", Caption: "Validation: step time of each run, teacher-forced",
		Cols: append([]page.Column{{Head: "Run"}, {Head: "Compared"}}, errorCols...)}
	for _, r := range v.Runs {
		if r.Steps != nil {
			t.Rows = append(t.Rows, page.Row{Cells: append([]page.Cell{page.Name(r.ID), {Text: input.SplitWords(r.Split), Class: "nb"}},
				errorCells(*r.Steps)...)})
		}
	}
	return page.Capped(t, "in the order of the file", "validation.json, runs")
}
