package report

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/result"
)

func fitSection(in Input, figs []*figure) section {
	s := section{ID: "fit", Nav: "Accuracy", Title: "Step-time accuracy",
		Lead: "Predictions from recorded batches (teacher-forced): no simulator, no queue, only the step-time model."}
	if in.Fit == nil && in.Validation == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT`."
		return s
	}
	if in.Fit != nil {
		s.Blocks = append(s.Blocks, tables(summaryTable(in.Fit))...)
	}
	s.Blocks = append(s.Blocks, figureBlocks(figs)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, tables(cellTable("cells", "Error by run, regime and batch, hold-out rows", f.Beta.Cells, "fit.json, beta.cells", true))...)
		s.Blocks = append(s.Blocks, tables(cellTable("stress", "Stress sets, hold-out rows", f.Beta.StressSets, "fit.json, beta.stress_sets", false))...)
		s.Blocks = append(s.Blocks, tables(locoTable(f))...)
		s.Blocks = append(s.Blocks, alphaTables(f)...)
		s.Blocks = append(s.Blocks, treeBlocks(f.Trees)...)
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, tables(testStepTable(v))...)
		var cells []result.Cell
		for _, r := range v.Runs {
			cells = append(cells, r.StepCells...)
		}
		s.Blocks = append(s.Blocks, tables(cellTable("test-cells", "Validation: error by run, regime and stress set", cells, "validation.json, runs", true))...)
	}
	return s
}

var errorCols = []column{
	{Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "Constant", Num: true, Help: "MAPE of the best constant"},
	{Head: "Floor", Num: true, Help: "MAPE of the nearest neighbours: the noise of the measurement"},
	{Head: "Skill", Num: true, Help: "1 at the floor, 0 at the constant"}, {Head: "Bias", Num: true, Help: "sum(prediction)/sum(measured) − 1"},
	{Head: "Median error", Num: true}, {Head: "P95 error", Num: true}, {Head: "Largest", Unit: "× median step", Num: true},
}

func errorCells(e result.Errors) []cell {
	bias := percent(e.Bias)
	if e.Bias != nil {
		bias.Text = signed(*e.Bias)
	}
	return []cell{count(e.Rows), percent(e.MAPE), percent(e.MAPEConst), percent(e.MAPEFloor), number(e.Skill), bias, percent(e.MedianAPE), percent(e.P95APE), number(e.MaxErrorRatio)}
}

func summaryTable(f *result.Fit) *table {
	t := &table{ID: "summary", Caption: "Step time, all rows together", Cols: append([]column{{Head: "Rows of"}}, errorCols...)}
	add := func(name string, e *result.Errors) {
		if e != nil {
			t.Rows = append(t.Rows, row{Cells: append([]cell{text(name)}, errorCells(*e)...)})
		}
	}
	add("hold-out (the last share of each phase)", f.Beta.Holdout)
	add("training", f.Beta.Train)
	return t
}

// cellTable lists cells; when they exceed the page, those with the largest
// error come first.
func cellTable(id, caption string, cells []result.Cell, where string, closed bool) *table {
	cells = slices.Clone(cells)
	if len(cells) > maxRows {
		slices.SortStableFunc(cells, func(a, b result.Cell) int { return cmp.Compare(orZero(b.MAPE), orZero(a.MAPE)) })
	}
	t := &table{ID: id, Caption: caption, Closed: closed,
		Cols: append([]column{{Head: "Run"}, {Head: "Regime"}, {Head: "Batch"}, {Head: "Set"}}, errorCols...)}
	for _, c := range cells {
		t.grow(func() row {
			return row{Cells: append([]cell{name(c.Run), text(c.Regime), text(c.Bucket), text(c.Set)}, errorCells(c.Errors)...)}
		})
	}
	return capped(t, "the largest errors first", where)
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func locoTable(f *result.Fit) *table {
	t := &table{ID: "loco-table", Caption: "Leave one configuration out", Closed: true,
		Cols: []column{{Head: "Configuration"}, {Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "Constant", Num: true}, {Head: "Frozen 1.0", Num: true}, {Head: "Bias", Num: true}}}
	for _, l := range f.Beta.Loco {
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(cmp.Or(l.Label, l.Config)), count(l.Rows), percent(l.MAPE), percent(l.MAPEConst), percent(l.MAPEFrozen10), percent(l.Bias)}})
	}
	return capped(t, "in the order of the file", "fit.json, beta.loco")
}

// alphaTables put the errors of the alpha targets side by side, all runs
// together and, folded, run by run; each target has the figures that make
// sense for it.
func alphaTables(f *result.Fit) []block {
	all := &table{ID: "alpha-errors", Caption: "Waits and overheads, hold-out rows", Cols: alphaCols("Target"),
		Note: "overhead is known only to lie in an interval, so it has the share of intervals that hold the prediction. admission contains a uniform wait for the running step, so per-request error is large by nature and 10-second means are what counts."}
	runs := &table{ID: "alpha-runs", Caption: "Waits and overheads by run, hold-out rows", Cols: append([]column{{Head: "Run"}}, alphaCols("Target")...), Closed: true}
	for _, m := range f.Alpha {
		if cells := alphaCells(m.Name, m.Interval, m.TargetErrors); cells != nil {
			all.grow(func() row { return row{Cells: cells} })
		}
		for _, r := range m.AlphaRuns {
			if cells := alphaCells(m.Name, r.Interval, r.Errors); cells != nil {
				runs.grow(func() row { return row{Cells: append([]cell{name(r.Run)}, cells...)} })
			}
		}
	}
	out := tables(capped(all, "in the order of the file", "fit.json, alpha"))
	return append(out, tables(capped(runs, "in the order of the file", "fit.json, alpha"))...)
}

func alphaCols(first string) []column {
	return []column{{Head: first}, {Head: "Rows", Num: true}, {Head: "Inside interval", Num: true}, {Head: "Informative", Num: true}, {Head: "Median width", Unit: "ms", Num: true},
		{Head: "Median prediction", Unit: "ms", Num: true}, {Head: "MAPE", Num: true}, {Head: "WAPE", Num: true}, {Head: "MAPE of 10 s means", Num: true}, {Head: "Constant", Num: true}}
}

func alphaCells(target string, i *result.IntervalErrors, e *result.TargetErrors) []cell {
	switch {
	case i != nil:
		return []cell{text(target), count(i.Rows), percent(i.InsideShare), count(i.InformativeRows), millis(i.MedianWidthUs), millis(i.MedianPredUs), number(nil), percent(i.ExactWAPE), number(nil), number(nil)}
	case e != nil:
		return []cell{text(target), count(e.Rows), number(nil), number(nil), number(nil), number(nil), percent(e.MAPE), percent(e.WAPE), percent(e.MAPEWindow10s), percent(e.MAPEConst)}
	}
	return nil
}

func treeBlocks(tr *result.Trees) []block {
	if tr == nil {
		return nil
	}
	verb := "not kept"
	if tr.Kept {
		verb = "kept"
	}
	return []block{{Heading: "Residual trees"}, {Text: plural(tr.Count, "tree") + ", " + verb + ": " + tr.Reason + ". Hold-out RMSE " + short(tr.HoldoutRMSEUs/1000) + " ms without, " + short(tr.WithTreesRMSEUs/1000) + " ms with them."}}
}

func testStepTable(v *result.Validation) *table {
	t := &table{ID: "test-steps", Caption: "Validation: step time of each run, teacher-forced", Cols: append([]column{{Head: "Run"}, {Head: "Compared"}}, errorCols...)}
	for _, r := range v.Runs {
		if r.Steps != nil {
			t.Rows = append(t.Rows, row{Cells: append([]cell{name(r.ID), {Text: splitWords(r.Split), Class: "nb"}}, errorCells(*r.Steps)...)})
		}
	}
	return capped(t, "in the order of the file", "validation.json, runs")
}
