package latency

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// raceFigure is the error of each model on each split as a matrix.
func raceFigure(s *result.PredictorScores, target string) *draw.Figure {
	models := modelNames(s)
	var splits []string
	for _, x := range s.Splits {
		if x.Scope == scopeAll && x.Target == target {
			splits = words.AppendNew(splits, x.Name)
		}
	}
	h := draw.Heat{Rows: models, Cols: splits, XLabel: "split", Print: words.Pct, Log: true, Mark: [2]int{-1, -1}}
	h.Value, h.Tip = make([][]*float64, len(models)), make([][]string, len(models))
	for i := range models {
		h.Value[i], h.Tip[i] = make([]*float64, len(splits)), make([]string, len(splits))
	}
	known := false
	for _, c := range s.Cells {
		i, j := slices.Index(models, c.Model), slices.Index(splits, c.Split)
		if c.Scope != scopeAll || c.Target != target || i < 0 || j < 0 || c.MAPE == nil {
			continue
		}
		known = true
		h.Value[i][j] = c.MAPE
		h.Tip[i][j] = fmt.Sprintf("%s on %s: MAPE %s, constant %s, floor %s, %d rows", c.Model, c.Split, words.Pct(*c.MAPE),
			words.PctOr(c.MAPEConst), words.PctOr(c.MAPEFloor), c.Rows)
	}
	if !known {
		return nil
	}
	return &draw.Figure{
		ID: "race-" + target, Title: targetWords[target] + ": MAPE by model and split, all rows",
		Note: "Stronger colour is worse. Compare a model's time column with its load-up column: what grows there is what it cannot know " +
			"about a load it has not seen. A dash is a split these rows cannot form, or a model without its inputs; random leaks and is no promise.",
		Panels: draw.BothWidths("matrix of MAPE by model and split; the table below holds the numbers", h.Draw),
	}
}

// loadSection is predicted against measured by load stage, and what lies above
// everything the training rows held.
func loadSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "load", Nav: "Load", Title: "Load that was not seen",
		Lead: "Medians by load stage on split load-up: the models saw the lower stages only. A forest cannot predict above its largest leaf."}
	for _, target := range []string{"ttft_ms", "tpot_ms"} {
		x.Blocks = append(x.Blocks, page.FigureBlocks(present(stageFigure(s, target)))...)
	}
	t := &page.Table{ID: "band", Caption: "Extrapolation band: test rows above the largest training target",
		Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Split"}, {Head: "Model"},
			{Head: "Rows above", Num: true}, {Head: "MAPE there", Num: true}, {Head: "MAPE of all", Num: true}}}
	for _, c := range s.Cells {
		if c.AboveMaxRows > 0 {
			t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(c.Scope), page.Plain(targetWords[c.Target]), page.Name(c.Split),
				page.Name(c.Model), page.Count(c.AboveMaxRows), page.Percent(c.AboveMaxMAPE), page.Percent(c.MAPE)}})
		}
	}
	x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "in the order of the file", "predictor_scores.json, cells"))...)
	if len(x.Blocks) == 0 {
		x.Missing = "No load stages: these runs hold one load each. Phases in run.yaml, or several runs of one configuration, make some."
	}
	return x
}

// drawnModels are the models of the stage figure.
var drawnModels = []struct {
	name string
	p    draw.Paint
	dash int
}{{"trees", draw.Prefill, draw.Dashed}, {"physics", draw.Decode, draw.Solid}, {"physics+trees", draw.Other, draw.Dotted},
	{"linear", draw.Mixed, draw.Dashed}}

// stageFigure draws medians over the rate of each stage, in log-log.
func stageFigure(s *result.PredictorScores, target string) *draw.Figure {
	var stages []result.PredictorStage
	for _, x := range s.Figures.Stages {
		if x.Scope == scopeAll && x.Target == target {
			stages = append(stages, x)
		}
	}
	if len(stages) == 0 {
		return nil
	}
	fig := &draw.Figure{
		ID: "stages-" + target, Title: targetWords[target] + " by load stage: measured and predicted medians",
		Note: "Dots of training stages are small, of test stages large. Good: dots on the diagonal. Bad: large dots below it, which is a " +
			"model that has never seen such waits and cannot say so.",
		Legend: []draw.Key{{P: draw.AxisLine, Dash: draw.Dashed, Text: "prediction = measurement"}},
	}
	var span draw.Span
	for _, x := range stages {
		span.TakePositive(x.MeasuredMs)
		for _, m := range drawnModels {
			span.TakePositive(x.Predicted[m.name])
		}
	}
	for _, m := range drawnModels {
		if slices.ContainsFunc(stages, func(x result.PredictorStage) bool { return x.Predicted[m.name] > 0 }) {
			fig.Legend = append(fig.Legend, draw.Key{P: m.p, Area: true, Text: m.name})
		}
	}
	fig.Panels = draw.BothWidths("predicted against measured medians by load stage", func(w float64) *draw.Drawing {
		p := draw.NewFrame(w, 320, "", draw.Logarithmic("measured median (ms)", span.Lo/1.1, span.Hi*1.1),
			draw.Logarithmic("predicted median (ms)", span.Lo/1.1, span.Hi*1.1))
		p.Diagonal(1, draw.AxisLine, draw.Dashed)
		for _, x := range stages {
			for _, m := range drawnModels {
				v, ok := x.Predicted[m.name]
				if !ok || !p.Inside(x.MeasuredMs, v) {
					continue
				}
				radius := 3.0
				if x.IsTest {
					radius = 5.5
				}
				p.Dot(p.At(x.MeasuredMs, v), radius, m.p, 0, fmt.Sprintf("%s, %.3g/s, %d rows: measured %s ms, %s %s ms", x.Stage, x.RatePerS, x.Rows,
					words.Short(x.MeasuredMs), m.name, words.Short(v)))
			}
		}
		return &p.Drawing
	})
	return fig
}

// reliabilityFigure is coverage over level after calibration.
func reliabilityFigure(s *result.PredictorScores) *draw.Figure {
	fig := &draw.Figure{
		ID: "reliability", Title: "Reliability after calibration, all rows",
		Note: "Good: curves on the diagonal. Below it the predicted quantile is too low: more requests are late than it says. load-up " +
			"panels show what calibration is worth under a load nobody recorded.",
		Legend: []draw.Key{{P: draw.AxisLine, Dash: draw.Dashed, Text: "coverage = level"}},
	}
	used := map[string]bool{}
	for _, split := range []string{"time", "load-up"} {
		for _, target := range []string{"ttft_ms", "tpot_ms"} {
			p := draw.NewFrame(draw.PanelW, draw.PanelH, targetWords[target]+" · "+split, draw.Linear("level (%)", 0, 100, 5),
				draw.Linear("coverage (%)", 0, 100, 5))
			p.Diagonal(1, draw.AxisLine, draw.Dashed)
			found := false
			for _, c := range s.Calibration {
				if c.Scope != scopeAll || c.Target != target || c.Split != split || len(c.Curve) == 0 {
					continue
				}
				for _, m := range drawnModels[:3] {
					if m.name != c.Model {
						continue
					}
					var xy [][2]float64
					for _, l := range c.Curve {
						xy = append(xy, [2]float64{100 * l.Level, 100 * l.Coverage})
					}
					p.Curve(xy, m.p, 1.8, m.dash)
					found, used[m.name] = true, true
				}
			}
			if found {
				fig.Panels = append(fig.Panels, draw.Panel{D: &p.Drawing, Desc: "coverage over level, " + targetWords[target] + ", split " + split})
			}
		}
	}
	for _, m := range drawnModels[:3] {
		if used[m.name] {
			fig.Legend = append(fig.Legend, draw.Key{P: m.p, Dash: m.dash, Text: m.name})
		}
	}
	return fig
}
