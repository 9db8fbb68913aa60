package predictor

import (
	"fmt"
	"io"

	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
)

// targetWords name the predicted latencies.
var targetWords = map[string]string{targetTTFT: "TTFT", targetTPOT: "TPOT", targetE2E: "end to end"}

// WritePage writes the page of predictor_scores.json as one HTML file: the error and
// the P90 coverage of every model on rows it did not see.
func WritePage(w io.Writer, s *Scores) error {
	h := page.Head{Class: "none", Badge: "TRAINED", Kicker: "Latency predictors from recorded vLLM traces",
		Sentence: "Trees and physics on the last fifth of each run, from what was known when each request arrived."}
	if s.Options.Evaluate {
		h.Badge, h.Sentence = "JUDGED", "A finished predictor on runs it never saw."
	}
	rows, requests := 0, 0
	for _, r := range s.Runs {
		rows, requests = rows+r.Rows, requests+r.Requests
	}
	physics := s.Options.Physics
	if physics == "" {
		physics = "none"
	} else if s.Options.IsRefit {
		physics += ", refitted without the rows held out"
	}
	h.Facts = []page.Fact{page.FactOf("Runs", fmt.Sprint(len(s.Runs))),
		page.FactOf("Rows", fmt.Sprintf("%d of %d requests", rows, requests)),
		page.FactOf("Features", s.Options.Rows.Features), page.FactOf("Prefix score", s.Options.Rows.PrefixScore),
		page.FactOf("Physics", physics), page.FactOf("Weights", s.Options.Weights), page.FactOf("Seed", fmt.Sprint(s.Options.Seed))}
	return page.Write(w, h, []page.Section{
		{ID: "error", Nav: "Error", Title: "Error and P90 coverage on rows held out",
			Lead: "Mean absolute percentage error with the constant and the noise floor beside it; the share of requests within the " +
				"calibrated P90.",
			Blocks: append(page.Tables(scoreTable(s)), append(page.Tables(holdOutTable(s)), page.Tables(modelTable())...)...)},
		{ID: "rows", Nav: "Rows", Title: "Rows", Lead: "One row a request at its decision; every other request is dropped for one reason.",
			Blocks: append(append(page.Tables(rowTable(s)), page.FindingBlocks("Warnings", s.Warnings)...),
				page.Block{Heading: "How to reproduce"}, page.Block{Code: "blis-train " + s.Command})}})
}

func scoreTable(s *Scores) *page.Table {
	t := &page.Table{ID: "scores", Caption: "Models", Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Model"},
		{Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "95 %", Help: "block bootstrap"}, {Head: "Constant", Num: true},
		{Head: "Floor", Num: true, Help: "the ten nearest test rows"}, {Head: "Median APE", Num: true}, {Head: "P95 APE", Num: true},
		{Head: "WAPE", Num: true}, {Head: "Bias", Num: true},
		{Head: "Above max", Num: true, Help: "MAPE of the rows above the largest training target"},
		{Head: "P90 coverage", Num: true}, {Head: "95 %"}, {Head: "Why not"}}}
	for _, c := range s.Models {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(c.Scope), page.Plain(targetWords[c.Target]), page.Name(c.Model),
			page.Count(c.Rows), page.Percent(c.MAPE), rangeWords(c.MAPEBand), page.Percent(c.MAPEConst), page.Percent(c.MAPEFloor),
			page.Percent(c.MedianAPE), page.Percent(c.P95APE), page.Percent(c.WAPE), page.Percent(c.Bias), page.Percent(c.AboveMaxMAPE),
			page.Percent(c.Coverage), rangeWords(c.CoverageBand), page.Prose(c.Reason)}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, models")
}

func rangeWords(b *[2]float64) page.Cell {
	if b == nil {
		return page.Plain("–")
	}
	return page.Cell{Text: words.Pct(b[0]) + " to " + words.Pct(b[1]), Class: "nb"}
}

func holdOutTable(s *Scores) *page.Table {
	t := &page.Table{ID: "hold-out", Caption: "Rows held out", Cols: []page.Column{{Head: "Scope"}, {Head: "Target"},
		{Head: "Training", Num: true}, {Head: "Test", Num: true}, {Head: "Alive at the border", Num: true},
		{Head: "Above training maximum", Num: true}, {Head: "Why none"}}}
	for _, h := range s.HoldOut {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(h.Scope), page.Plain(targetWords[h.Target]), page.Count(h.Train),
			page.Count(h.Test), page.Count(h.Dropped), page.Percent(h.AboveMax), page.Prose(h.Reason)}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, hold_out")
}

func modelTable() *page.Table {
	t := &page.Table{ID: "models", Caption: "What they are", Cols: []page.Column{{Head: "Model"}, {Head: "What it is"}}}
	for _, name := range scored {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(name), page.Prose(modelDocs[name])}})
	}
	return t
}

func rowTable(s *Scores) *page.Table {
	t := &page.Table{ID: "runs", Caption: "Requests by run", Cols: []page.Column{{Head: "Run"}, {Head: "Configuration"},
		{Head: "Requests", Num: true}, {Head: "Rows", Num: true}, {Head: "Dropped"}}}
	for _, r := range s.Runs {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(r.ID), page.Prose(r.Config), page.Count(r.Requests), page.Count(r.Rows),
			page.Prose(words.Reasons(r.Dropped))}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, runs")
}
