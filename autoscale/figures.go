package autoscale

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/pipeline/report"
)

// shownSets are the sets of windows a figure takes, the most telling first.
var shownSets = []string{"validation", "hold_out", "train"}

// scoreFigure is the error of each estimator on each server as a matrix, on windows it has
// not seen where there are some.
func scoreFigure(q *Queue, id, metric string) *report.Figure {
	var servers, estimators []string
	for i := range q.Servers {
		for _, s := range q.Servers[i].Scores {
			if slices.Contains(shownSets, s.Set) {
				servers, estimators = report.AppendNew(servers, q.Servers[i].ID), report.AppendNew(estimators, s.Estimator)
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
				h.Tip[row][col] = fmt.Sprintf("%s on %s: %s WAPE %s on %s of %s", s.Estimator, q.Servers[i].ID, metric, report.Pct(*v),
					report.Plural(s.Windows, "window"), set)
			}
		}
	}
	if !known {
		return nil
	}
	return &report.Figure{
		ID: "errors-" + id, Title: metric + ": WAPE by server and estimator",
		Note: "Stronger colour is worse. Windows of a validation, else of the hold-out, else the fitted ones; the table says which. A dash " +
			"is an estimator without an answer.",
		Panels: report.BothWidths("matrix of "+metric+" errors by server and estimator; the table below holds the numbers", h.Draw),
	}
}

func emptyHeat(rows, cols []string, label string) report.Heat {
	h := report.Heat{Rows: rows, Cols: cols, XLabel: label, Print: report.Pct, Log: true, Mark: [2]int{-1, -1}}
	h.Value, h.Tip = make([][]*float64, len(rows)), make([][]string, len(rows))
	for i := range rows {
		h.Value[i], h.Tip[i] = make([]*float64, len(cols)), make([]string, len(cols))
	}
	return h
}
