package figures

import (
	"fmt"

	"github.com/blis-train/blis-train/report/draw"
)

// rowFigure finishes a figure of named rows on a log axis.
func rowFigure(fig *draw.Figure, rows []draw.ChartRow, s draw.Span, label string, total int) *draw.Figure {
	if len(rows) == 0 || !s.Ok {
		return nil
	}
	if len(rows) > maxChartRows {
		fig.More = fmt.Sprintf("The first %d of %d runs; the table holds more.", maxChartRows, total)
		rows = rows[:maxChartRows]
	}
	lo, hi := draw.Widened(s.Lo, s.Hi)
	fig.Panels = draw.BothWidths(fig.Title+", one row per run", func(w float64) *draw.Drawing {
		return draw.RowChart(w, rows, draw.Logarithmic(label, lo, hi))
	})
	return fig
}

// maxChartRows is the most named rows of one chart; tables hold more.
const maxChartRows = 30
