package cluster

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/pipeline/report"
)

// extraSuffix is the routing and the scheduler of all controls.
const extraSuffix = " pa4qd3 priority"

// goodputFigure is the goodput of every configuration with its interval.
func goodputFigure(d *Document) *report.Figure {
	var rows []report.ChartRow
	top := 0.0
	for _, c := range d.Cells {
		f := c.Figures["goodput"]
		if c.Role == "frontier" || f.Mean == nil {
			continue
		}
		name := c.Name
		if c.Role == "extra" {
			name = strings.TrimSuffix(name, extraSuffix)
		}
		row := report.ChartRow{Name: name, Join: true, Marks: []report.RowMark{{V: 100 * *f.Mean, P: report.Decode,
			Tip: fmt.Sprintf("%s: %s, %d seeds", c.Name, report.Pct(*f.Mean), f.N)}}}
		if f.Lo != nil && f.Hi != nil {
			row.Marks = append(row.Marks, report.RowMark{V: 100 * *f.Lo, P: report.Mute, Bar: true, Tip: "95 % interval"},
				report.RowMark{V: 100 * *f.Hi, P: report.Mute, Bar: true, Tip: "95 % interval"})
			top = max(top, 100**f.Hi)
		}
		top = max(top, 100**f.Mean)
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	return &report.Figure{ID: "goodput", Title: "Goodput by configuration",
		Note: "Dots are means over seeds, ticks their 95 % intervals. Arrivals are equal in every row. Rows without routing and scheduler " +
			"have pa4qd3 and priority.", Panels: report.BothWidths("goodput of each configuration with its interval",
			func(w float64) *report.Drawing {
				return report.RowChart(w, rows, report.Linear("goodput (% of arrivals)", 0, max(1, top), 6))
			})}
}

// gates are the two frontiers.
var gates = []struct {
	policy, word string
	p            report.Paint
}{{"slo-gated", "slo-gated, thresholds", report.Prefill}, {"predictive", "predictive, eps", report.Decode}}

// frontierFigure is goodput and admitted share over the P99 of critical requests.
func frontierFigure(d *Document) *report.Figure {
	fig := &report.Figure{ID: "frontiers", Title: "Frontiers of the two gates",
		Note: "At one critical P99 compare the heights. A line joins the settings of a gate, from strict to lax; those without a finite P99 " +
			"are left out."}
	for _, key := range []struct{ key, label string }{{"goodput", "goodput (%)"}, {"admitted_share", "admitted (%)"}} {
		var x, y report.Span
		xy := map[string][][2]float64{}
		for _, c := range d.Cells {
			p99, v := c.Figures["ttft_p99_critical_ms"].Mean, c.Figures[key.key].Mean
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
		ylo, yhi = max(0, ylo), min(100, yhi)
		f := report.NewFrame(report.PanelW, report.PanelH, "", report.Linear("critical P99 TTFT (ms)", xlo, xhi, 5), report.Linear(key.label, ylo,
			yhi, 5))
		for _, g := range gates {
			f.Curve(xy[g.policy], g.p, 1, report.Solid)
			for _, p := range xy[g.policy] {
				f.Dot(f.At(p[0], p[1]), 4, g.p, 0, fmt.Sprintf("%s: P99 %s ms, %s %s", g.word, report.Short(p[0]), key.label, report.Short(p[1])))
			}
		}
		fig.Panels = append(fig.Panels, report.Panel{D: &f.Drawing, Desc: key.label + " over the P99 of critical requests"})
	}
	for _, g := range gates {
		fig.Legend = append(fig.Legend, report.Key{P: g.p, Area: true, Text: g.word})
	}
	return fig
}

// scatterFigure is predicted against observed TTFT.
func scatterFigure(d *Document) *report.Figure {
	var span report.Span
	for _, p := range d.Scatter {
		span.TakePositive(p.PredictedMs)
		span.TakePositive(p.TookMs)
	}
	if len(d.Scatter) == 0 || !(span.Hi > span.Lo) {
		return nil
	}
	return &report.Figure{ID: "scatter", Title: "Predictions of the main configuration, first seed",
		Note: "Below the diagonal it took longer than predicted. Plum dots were rejected, and are what a copy of the engine " +
			"would have given them.",
		Legend: []report.Key{{P: report.Decode, Area: true, Text: "admitted"}, {P: report.Mixed, Area: true, Text: "rejected (shadow)"},
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
		})}
}

// newcomerFigure is the admission of a new group against the others'.
func newcomerFigure(d *Document) *report.Figure {
	if len(d.Newcomer) == 0 {
		return nil
	}
	longest := 0
	for _, c := range d.Newcomer {
		longest = max(longest, len(c.Ratio))
	}
	fig := &report.Figure{ID: "newcomer-curve", Title: "Admission of the newcomer, relative to established groups",
		Note: "1 is equal treatment. Without a floor a gate that prefers cached prefixes may never learn that the newcomer has one."}
	paints := []report.Paint{report.Decode, report.Prefill, report.Other}
	for i, c := range d.Newcomer {
		fig.Legend = append(fig.Legend, report.Key{P: paints[i%3], Text: strings.TrimSuffix(c.Cell, extraSuffix)})
	}
	fig.Panels = report.BothWidths("admission ratio of the newcomer by second",
		func(w float64) *report.Drawing {
			f := report.NewFrame(w, 280, "", report.Linear("seconds after it came", 0, float64(max(1, longest-1)), 6), report.Linear("ratio",
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
