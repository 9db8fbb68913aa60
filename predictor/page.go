package predictor

// This file makes the page of predictor.json.

import (
	"fmt"

	"github.com/blis-train/blis-train/report"
)

// targetWords name the predicted latencies.
var targetWords = map[string]string{targetTTFT: "TTFT", targetTPOT: "TPOT", targetE2E: "end to end"}

// Page returns the page of predictor_scores.json as one HTML file, and its sections: the error and
// the P90 coverage of every model on rows it did not see.
func Page(s *Scores) ([]byte, []report.Section, error) {
	h := report.Head{
		Class:    "none",
		Badge:    "TRAINED",
		Kicker:   "Latency predictors from recorded vLLM traces",
		Sentence: "Trees and physics on the last fifth of each run, from what was known when each request arrived.",
	}
	if s.Options.Evaluate {
		h.Badge = "JUDGED"
		h.Sentence = "A finished predictor on runs it never saw."
	}
	rows, requests := 0, 0
	for _, r := range s.Runs {
		rows += r.Rows
		requests += r.Requests
	}
	physics := s.Options.Physics
	if physics == "" {
		physics = "none"
	} else if s.Options.IsRefit {
		physics += ", refitted without the rows held out"
	}
	verdict := "–"
	if s.Verdict != nil {
		verdict = s.Verdict.Verdict
	}
	h.Facts = []report.Fact{
		report.FactOf("Verdict for a router", verdict),
		report.FactOf("Runs", fmt.Sprint(len(s.Runs))),
		report.FactOf("Rows", fmt.Sprintf("%d of %d requests", rows, requests)),
		report.FactOf("Features", s.Options.Rows.Features),
		report.FactOf("Prefix score", s.Options.Rows.PrefixScore),
		report.FactOf("Physics", physics),
		report.FactOf("Weights", s.Options.Weights),
		report.FactOf("Seed", fmt.Sprint(s.Options.Seed)),
	}
	rowBlocks := report.Tables(rowTable(s))
	rowBlocks = append(rowBlocks, report.FindingBlocks("Warnings", s.Warnings)...)
	rowBlocks = append(rowBlocks,
		report.Block{Heading: "How to reproduce"},
		report.Block{Code: []string{"blis-train " + s.Command}})
	return report.Page(h, []report.Section{
		{
			ID:    "error",
			Nav:   "Error",
			Title: "Error and P90 coverage on rows held out",
			Lead: "Mean absolute percentage error, with that of a constant and the noise floor; " +
				"the share of requests within the calibrated P90.",
			Blocks: report.Tables(scoreTable(s), holdOutTable(s), modelTable()),
		},
		{
			ID:     "rows",
			Nav:    "Rows",
			Title:  "Rows",
			Lead:   "One row a request at its decision; every other request is dropped for one reason.",
			Blocks: rowBlocks,
		},
	})
}

// scoreTable returns the table of the errors of the models.
func scoreTable(s *Scores) *report.Table {
	t := report.NewTable("scores", "Models", "Scope", "Target", "Model", "# Rows", "# MAPE",
		"95 % ? block bootstrap", "# Constant",
		"# Floor ? the least error of the ten nearest test rows and of the models", "# Median APE", "# P95 APE", "# WAPE", "# Bias",
		"# Above max ? MAPE of the rows above the largest training target", "# P90 coverage", "95 %", "Why not")
	for _, c := range s.Models {
		t.Put(report.Prose(c.Scope), report.Plain(targetWords[c.Target]), report.Name(c.Model), report.Count(c.Rows),
			report.Percent(c.MAPE), rangeWords(c.MAPEBand), report.Percent(c.MAPEConst), report.Percent(c.MAPEFloor),
			report.Percent(c.MedianAPE), report.Percent(c.P95APE), report.Percent(c.WAPE), report.Percent(c.Bias),
			report.Percent(c.AboveMaxMAPE), report.Percent(c.Coverage), rangeWords(c.CoverageBand),
			report.Prose(c.Reason))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, models")
}

// rangeWords returns the cell for an interval of shares.
func rangeWords(b *[2]float64) report.Cell {
	if b == nil {
		return report.Plain("–")
	}
	return report.Cell{Text: report.Pct(b[0]) + " to " + report.Pct(b[1]), Class: "nb"}
}

// trainedOn returns the table's cell for the training rows on which the forests are grown; "" for an evaluation, which
// trains nothing.
func (h *HoldOut) trainedOn(isEvaluation bool) string {
	if isEvaluation {
		return ""
	}
	if h.Grown == 0 {
		return fmt.Sprintf("0 of %d rows", h.Train)
	}
	limit := "no limit"
	if h.Bucket > 0 {
		limit = fmt.Sprintf("at most %d a bucket", h.Bucket)
	}
	return fmt.Sprintf("%d of %d rows, %s", h.Grown, h.Train, limit)
}

// holdOutTable returns the table of the rows held out.
func holdOutTable(s *Scores) *report.Table {
	t := report.NewTable("hold-out", "Rows held out", "Scope", "Target", "Trained on", "# Test",
		"# Alive at the border",
		"# Above training maximum", "Why none")
	for _, h := range s.HoldOut {
		t.Put(report.Prose(h.Scope), report.Plain(targetWords[h.Target]), report.Plain(h.trainedOn(s.Options.Evaluate)),
			report.Count(h.Test), report.Count(h.Dropped), report.Percent(h.AboveMax), report.Prose(h.Reason))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, hold_out")
}

// modelTable returns the table that explains the models.
func modelTable() *report.Table {
	t := report.NewTable("models", "What they are", "Model", "What it is")
	for _, name := range scored {
		t.Put(report.Name(name), report.Prose(modelDocs[name]))
	}
	return t
}

// rowTable returns the table of requests and drops by run.
func rowTable(s *Scores) *report.Table {
	t := report.NewTable("runs", "Requests by run", "Run", "Configuration", "# Requests", "# Rows", "Dropped")
	for _, r := range s.Runs {
		t.Put(report.Name(r.ID), report.Prose(r.Config), report.Count(r.Requests), report.Count(r.Rows),
			report.Prose(report.Reasons(r.Dropped)))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, runs")
}
