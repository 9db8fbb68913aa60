package report

import "fmt"

// rowFigure finishes a figure of named rows on a log axis.
func rowFigure(fig *Figure, rows []ChartRow, s Span, label string, total int) *Figure {
	if len(rows) == 0 || !s.Ok {
		return nil
	}
	if len(rows) > maxChartRows {
		fig.More = fmt.Sprintf("The first %d of %d runs; the table holds more.", maxChartRows, total)
		rows = rows[:maxChartRows]
	}
	lo, hi := Widened(s.Lo, s.Hi)
	fig.Panels = BothWidths(fig.Title+", one row per run", func(w float64) *Drawing {
		return RowChart(w, rows, Logarithmic(label, lo, hi))
	})
	return fig
}

// maxChartRows is the most named rows of one chart; tables hold more.
const maxChartRows = 30
