package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// cellFigure is the step-time error by run and regime as a matrix.
func cellFigure(f *result.Fit) *Figure {
	cells := plainCells(f.Beta.Cells)
	if len(cells) == 0 {
		return nil
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, c := range cells {
			yield(c.Regime)
		}
	})
	rows, more := worstRuns(cells)
	h := Heat{Rows: rows, Cols: regimes, XLabel: "regime of the step", Print: Pct, Mark: [2]int{-1, -1}}
	h.Value = make([][]*float64, len(rows))
	h.Tip = make([][]string, len(rows))
	for i := range rows {
		h.Value[i] = make([]*float64, len(regimes))
		h.Tip[i] = make([]string, len(regimes))
	}
	for _, c := range cells {
		i, j := slices.Index(rows, c.Run), slices.Index(regimes, c.Regime)
		if i >= 0 && j >= 0 {
			h.Value[i][j] = c.MAPE
			h.Tip[i][j] = fmt.Sprintf("%s, %s: MAPE %s, constant %s, floor %s, %d rows", c.Run, c.Regime, pctOr(c.MAPE),
				pctOr(c.MAPEConst), pctOr(c.MAPEFloor), c.Rows)
		}
	}
	return &Figure{
		ID: "error-cells", Title: "Step-time error by run and regime (MAPE, hold-out rows)", More: more,
		Note: "Stronger colour is worse. Look along a column: one strong regime in every run is a term the model gets wrong. Look along a " +
			"row: one strong run is a machine or a deployment that differs from the rest.",
		Panels: BothWidths("matrix of step-time MAPE by run and regime; the table below holds the numbers", h.Draw),
	}
}

// plainCells are the cells of a run and regime without batch bucket or stress set.
func plainCells(cs []result.Cell) []result.Cell {
	var out []result.Cell
	for _, c := range cs {
		if c.Bucket == "" && c.Set == "" && c.Regime != "" && c.MAPE != nil {
			out = append(out, c)
		}
	}
	return out
}

// worstRuns names the runs of cells, all in their order or, when there are
// too many, those with the largest errors.
func worstRuns(cells []result.Cell) (names []string, more string) {
	worst := map[string]float64{}
	for _, c := range cells {
		names = AppendNew(names, c.Run)
		worst[c.Run] = max(worst[c.Run], *c.MAPE)
	}
	if len(names) <= maxChartRows {
		return names, ""
	}
	more = fmt.Sprintf("The %d worst of %d runs.", maxChartRows, len(names))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(worst[b], worst[a]) })
	return names[:maxChartRows], more
}

// locoFigure compares the error on a configuration left out with a constant
// and with the frozen recipe.
func locoFigure(f *result.Fit) *Figure {
	ls := slices.DeleteFunc(slices.Clone(f.Beta.Loco), func(l result.Loco) bool { return l.MAPE == nil })
	if len(ls) == 0 {
		return nil
	}
	slices.SortStableFunc(ls, func(a, b result.Loco) int { return cmp.Compare(*b.MAPE, *a.MAPE) })
	fig := &Figure{
		ID: "loco", Title: "Step-time error on configurations the fit never saw",
		Note: "Each row was predicted by a fit without it. Look for dots left of the dashed 25 % gate and left of the constant; a dot " +
			"right of the constant means the physics did not carry over to that configuration.",
		Legend: []Key{{P: Decode, Area: true, Text: "this fit"}, {P: AxisLine, Area: true,
			Text: "best constant of the other configurations' kind"}, {P: Other, Area: true, Text: "frozen recipe, spec 1.0"}},
	}
	fig.Legend[1].Text = "best constant"
	if len(ls) > maxChartRows {
		fig.More = fmt.Sprintf("The %d worst of %d configurations.", maxChartRows, len(ls))
		ls = ls[:maxChartRows]
	}
	var s Span
	s.Take(0.25, 0.03)
	var rows []ChartRow
	frozen := false
	for _, l := range ls {
		r := ChartRow{Name: cmp.Or(l.Label, l.Config), Join: true}
		add := func(v *float64, p Paint, what string) {
			if v != nil {
				s.TakePositive(*v)
				r.Marks = append(r.Marks, RowMark{V: *v * 100, P: p, Tip: fmt.Sprintf("%s: %s %s", r.Name, what, Pct(*v))})
			}
		}
		add(l.MAPEConst, AxisLine, "constant")
		add(l.MAPEFrozen10, Other, "frozen 1.0")
		add(l.MAPE, Decode, "this fit")
		frozen = frozen || l.MAPEFrozen10 != nil
		rows = append(rows, r)
	}
	if !frozen {
		fig.Legend = fig.Legend[:2]
	}
	x := Logarithmic("MAPE (%)", s.Lo*100/1.1, s.Hi*100*1.1)
	fig.Panels = BothWidths("leave-one-configuration-out MAPE per configuration", func(w float64) *Drawing {
		return RowChart(w, rows, x, RowMark{V: 25, P: Mute, Tip: "25 %"})
	})
	return fig
}
