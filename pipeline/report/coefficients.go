package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// utilisationFigure shows what the time-like coefficients say about the hardware.
func utilisationFigure(in Input) *Figure {
	if in.Fit == nil {
		return nil
	}
	fig := &Figure{
		ID: "utilisation", Title: "Implied utilisation of the hardware",
		Note: "A time-like coefficient of 1,000 ms/s is exactly the roofline. Look for dots between 0.1 and 1. Bad: right of 1 (faster than " +
			"the data sheet allows: a wrong peak, a wrong model, or a term that carries another's cost) or far left (a term that absorbs overhead).",
		Legend: []Key{{P: Decode, Area: true, Text: "identified within configurations"},
			{P: Other, Area: true, Text: "only between configurations, or by the prior"}},
	}
	var s Span
	s.Take(0.1, 1.2)
	var rows []ChartRow
	for _, c := range in.Fit.Beta.Coefficients {
		u := c.ImpliedUtilisation
		if u == nil || !(*u > 0) {
			continue
		}
		p := Decode
		if c.Identified != "within" {
			p = Other
		}
		s.Take(*u)
		rows = append(rows, ChartRow{Name: c.Name, Marks: []RowMark{
			{V: *u, P: p, Tip: fmt.Sprintf("%s: %s, identified %s", c.Name, Short(*u), c.Identified)}}})
	}
	if len(rows) == 0 {
		return nil
	}
	lo, hi := Widened(s.Lo, s.Hi)
	fig.Panels = BothWidths("implied utilisation per time-like coefficient", func(w float64) *Drawing {
		return RowChart(w, rows, Logarithmic("implied utilisation (1 = roofline, logarithmic)", lo, hi),
			RowMark{V: 1, P: bad, Tip: "roofline"})
	})
	return fig
}

// surfaceFigure is the cross-validation score over lambda and gamma.
func surfaceFigure(in Input) *Figure {
	if in.Fit == nil || len(in.Fit.Beta.Grid) == 0 {
		return nil
	}
	fig := &Figure{
		ID: "cv-surface", Title: "For experts: cross-validation surface of the step-time model", Closed: true,
		Note: "Held-out weighted squared relative error (1e-4 is an error of 1 %) per penalty λ (columns) and memory γ of the preemption " +
			"average (rows); the orange frame is the choice. Good: a frame among the lowest values, on a flat plain. Bad: a frame on the edge " +
			"of the grid, or a surface so flat that the penalty decides nothing.",
	}
	if l, g := gridAxes(in.Fit.Beta.Grid); len(l) > maxGrid || len(g) > maxGrid {
		fig.More = fmt.Sprintf("The smallest %d values of %d penalties and %d memories; fit.json holds all.", maxGrid, len(l), len(g))
	}
	for _, kind := range []struct {
		name  string
		score func(result.GridPoint) *float64
	}{
		{"forward folds in time, within configurations", func(g result.GridPoint) *float64 { return g.Within }},
		{"leave one configuration out", func(g result.GridPoint) *float64 { return g.Cross }},
	} {
		fig.Panels = append(fig.Panels, BothWidths("score by lambda and gamma, "+kind.name, func(w float64) *Drawing {
			d := cvSurface(w, in.Fit.Beta, kind.score)
			if d == nil {
				return nil
			}
			titled := &Drawing{W: d.W, H: d.H + 20}
			titled.Heading(At(0, 13), clip(kind.name, headSize, w), headSize, ink, anchorStart)
			titled.Place(d, 0, 20)
			return titled
		})...)
	}
	return fig
}

// maxGrid is the most values of one grid axis that are drawn.
const maxGrid = 60

// gridAxes are the distinct penalties and memories of a grid, in order.
func gridAxes(grid []result.GridPoint) (lambdas, gammas []float64) {
	for _, g := range grid {
		lambdas, gammas = insert(lambdas, g.Lambda), insert(gammas, g.GammaEMA)
	}
	return lambdas, gammas
}

func cvSurface(w float64, m result.Model, score func(result.GridPoint) *float64) *Drawing {
	if !slices.ContainsFunc(m.Grid, func(g result.GridPoint) bool { return score(g) != nil }) {
		return nil
	}
	lambdas, gammas := gridAxes(m.Grid)
	lambdas, gammas = lambdas[:min(len(lambdas), maxGrid)], gammas[:min(len(gammas), maxGrid)]
	h := Heat{XLabel: "penalty λ", Print: brief, Log: true, Mark: [2]int{-1, -1}}
	for _, l := range lambdas {
		h.Cols = append(h.Cols, Short(l))
	}
	for _, g := range gammas {
		h.Rows = append(h.Rows, "γ = "+Short(g))
		h.Value = append(h.Value, make([]*float64, len(lambdas)))
		h.Tip = append(h.Tip, make([]string, len(lambdas)))
	}
	for _, g := range m.Grid {
		i, drawnRow := slices.BinarySearch(gammas, g.GammaEMA)
		j, drawnCol := slices.BinarySearch(lambdas, g.Lambda)
		if !drawnRow || !drawnCol {
			continue
		}
		h.Value[i][j] = score(g)
		h.Tip[i][j] = fmt.Sprintf("λ %s, γ %s: within %s ± %s, cross %s", Short(g.Lambda), Short(g.GammaEMA), ShortOr(g.Within),
			ShortOr(g.SE), ShortOr(g.Cross))
		if m.Lambda != nil && m.GammaEMA != nil && g.Lambda == *m.Lambda && g.GammaEMA == *m.GammaEMA {
			h.Mark = [2]int{i, j}
		}
	}
	return h.Draw(w)
}

// insert keeps a sorted list of distinct values.
func insert(list []float64, v float64) []float64 {
	i, found := slices.BinarySearchFunc(list, v, cmp.Compare[float64])
	if found {
		return list
	}
	return slices.Insert(list, i, v)
}
