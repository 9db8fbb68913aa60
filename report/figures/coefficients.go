package figures

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// utilisationFigure shows what the time-like coefficients say about the hardware.
func utilisationFigure(in input.Input) *draw.Figure {
	if in.Fit == nil {
		return nil
	}
	fig := &draw.Figure{
		ID: "utilisation", Title: "Implied utilisation of the hardware",
		Note: "A time-like coefficient of 1,000 ms/s is exactly the roofline. Look for dots between 0.1 and 1. Bad: right of 1 (faster than " +
			"the data sheet allows: a wrong peak, a wrong model, or a term that carries another's cost) or far left (a term that absorbs overhead).",
		Legend: []draw.Key{{P: draw.Decode, Area: true, Text: "identified within configurations"},
			{P: draw.Other, Area: true, Text: "only between configurations, or by the prior"}},
	}
	var s draw.Span
	s.Take(0.1, 1.2)
	var rows []draw.ChartRow
	for _, c := range in.Fit.Beta.Coefficients {
		u := c.ImpliedUtilisation
		if u == nil || !(*u > 0) {
			continue
		}
		p := draw.Decode
		if c.Identified != "within" {
			p = draw.Other
		}
		s.Take(*u)
		rows = append(rows, draw.ChartRow{Name: c.Name, Marks: []draw.RowMark{
			{V: *u, P: p, Tip: fmt.Sprintf("%s: %s, identified %s", c.Name, words.Short(*u), c.Identified)}}})
	}
	if len(rows) == 0 {
		return nil
	}
	lo, hi := draw.Widened(s.Lo, s.Hi)
	fig.Panels = draw.BothWidths("implied utilisation per time-like coefficient", func(w float64) *draw.Drawing {
		return draw.RowChart(w, rows, draw.Logarithmic("implied utilisation (1 = roofline, logarithmic)", lo, hi),
			draw.RowMark{V: 1, P: draw.Bad, Tip: "roofline"})
	})
	return fig
}

// surfaceFigure is the cross-validation score over lambda and gamma.
func surfaceFigure(in input.Input) *draw.Figure {
	if in.Fit == nil || len(in.Fit.Beta.Grid) == 0 {
		return nil
	}
	fig := &draw.Figure{
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
		fig.Panels = append(fig.Panels, draw.BothWidths("score by lambda and gamma, "+kind.name, func(w float64) *draw.Drawing {
			d := cvSurface(w, in.Fit.Beta, kind.score)
			if d == nil {
				return nil
			}
			titled := &draw.Drawing{W: d.W, H: d.H + 20}
			titled.Heading(draw.At(0, 13), draw.Clip(kind.name, draw.HeadSize, w), draw.HeadSize, draw.Ink, draw.AnchorStart)
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

func cvSurface(w float64, m result.Model, score func(result.GridPoint) *float64) *draw.Drawing {
	if !slices.ContainsFunc(m.Grid, func(g result.GridPoint) bool { return score(g) != nil }) {
		return nil
	}
	lambdas, gammas := gridAxes(m.Grid)
	lambdas, gammas = lambdas[:min(len(lambdas), maxGrid)], gammas[:min(len(gammas), maxGrid)]
	h := draw.Heat{XLabel: "penalty λ", Print: words.Brief, Log: true, Mark: [2]int{-1, -1}}
	for _, l := range lambdas {
		h.Cols = append(h.Cols, words.Short(l))
	}
	for _, g := range gammas {
		h.Rows = append(h.Rows, "γ = "+words.Short(g))
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
		h.Tip[i][j] = fmt.Sprintf("λ %s, γ %s: within %s ± %s, cross %s", words.Short(g.Lambda), words.Short(g.GammaEMA), words.ShortOr(g.Within),
			words.ShortOr(g.SE), words.ShortOr(g.Cross))
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
