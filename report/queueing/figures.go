package queueing

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// shownSets are the sets of windows a figure takes, the most telling first.
var shownSets = []string{"validation", "hold_out", "train"}

// scoreFigure is the error of each estimator on each server as a matrix, on windows it has
// not seen where there are some.
func scoreFigure(q *result.Queue, id, metric string) *draw.Figure {
	var servers, estimators []string
	for i := range q.Servers {
		for _, s := range q.Servers[i].Scores {
			if slices.Contains(shownSets, s.Set) {
				servers, estimators = words.AppendNew(servers, q.Servers[i].ID), words.AppendNew(estimators, s.Estimator)
			}
		}
	}
	h := emptyHeat(servers, estimators, "estimator")
	known := false
	for i := range q.Servers {
		row := slices.Index(servers, q.Servers[i].ID)
		for _, set := range slices.Backward(shownSets) { // the most telling is written last
			for _, s := range q.Servers[i].Scores {
				v := s.ITLWape
				if id == "ttft" {
					v = s.TTFTWape
				}
				if s.Set != set || v == nil {
					continue
				}
				known = true
				col := slices.Index(estimators, s.Estimator)
				h.Value[row][col] = v
				h.Tip[row][col] = fmt.Sprintf("%s on %s: %s WAPE %s on %s of %s", s.Estimator, q.Servers[i].ID, metric, words.Pct(*v),
					words.Plural(s.Windows, "window"), set)
			}
		}
	}
	if !known {
		return nil
	}
	return &draw.Figure{
		ID: "errors-" + id, Title: metric + ": WAPE by server and estimator",
		Note: "Stronger colour is worse. Windows of a validation, else of the hold-out, else the fitted ones; the table says which. A dash " +
			"is an estimator without an answer.",
		Panels: draw.BothWidths("matrix of "+metric+" errors by server and estimator; the table below holds the numbers", h.Draw),
	}
}

func emptyHeat(rows, cols []string, label string) draw.Heat {
	h := draw.Heat{Rows: rows, Cols: cols, XLabel: label, Print: words.Pct, Log: true, Mark: [2]int{-1, -1}}
	h.Value, h.Tip = make([][]*float64, len(rows)), make([][]string, len(rows))
	for i := range rows {
		h.Value[i], h.Tip[i] = make([]*float64, len(cols)), make([]string, len(cols))
	}
	return h
}

func compareSection(q *result.Queue) page.Section {
	x := page.Section{ID: "compare", Nav: "Compare", Title: "Queueing models beside the simulator",
		Lead: "The same numbers in every model. Errors are signed, (model - reference)/reference; the reference is the simulator, or the " +
			"recording where a server is named."}
	if len(q.Compare) == 0 {
		return x
	}
	t := &page.Table{ID: "compare-table", Caption: "Signed errors by cell, TTFT and ITL",
		Cols: []page.Column{{Head: "Cell"}, {Head: "Load", Num: true}, {Head: "TTFT ms", Num: true}, {Head: "ITL ms", Num: true}}}
	for _, e := range q.Compare[0].Errors {
		t.Cols = append(t.Cols, page.Column{Head: e.Flavour + " TTFT", Num: true}, page.Column{Head: "ITL", Num: true})
	}
	t.Cols = append(t.Cols, page.Column{Head: "Why corrected misses"})
	for i := range q.Compare {
		c := &q.Compare[i]
		t.Grow(func() page.Row {
			row := []page.Cell{page.Name(cellName(c)), page.Num(c.Load), page.Num(c.TTFTMs), page.Num(c.ITLMs)}
			why := ""
			for _, e := range c.Errors {
				row = append(row, page.Shown(e.TTFT, words.Signed), page.Shown(e.ITL, words.Signed))
				if e.Flavour == "corrected" {
					why = e.Cause
				}
			}
			return page.Row{Cells: append(row, page.Prose(why))}
		})
	}
	x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "queue.json, comparison"))
	return x
}

func cellName(c *result.QueueComparison) string {
	name := fmt.Sprintf("%.0f/%.0f %s", c.PromptTokens, c.OutputTokens, c.Outputs)
	if c.Server != "" {
		name = c.Server + " " + name
	}
	return name
}
