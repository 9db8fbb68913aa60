package latency

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// targetWords name the two predicted latencies.
var targetWords = map[string]string{"ttft_ms": "TTFT", "tpot_ms": "TPOT"}

// scopeAll is the scope of all rows together.
const scopeAll = "all"

// Write writes the page of a race of latency predictors as one HTML file: who wins
// where, what that is worth, and when not to trust the trees.
func Write(w io.Writer, s *result.PredictorScores) error {
	sections := []page.Section{raceSection(s), loadSection(s), calibrationSection(s), strataSection(s), habitSection(s), rowSection(s)}
	sections = slices.DeleteFunc(sections, func(x page.Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	return page.Write(w, predictorHead(s), sections)
}

func predictorHead(s *result.PredictorScores) page.Head {
	h := page.Head{Class: "none", Badge: "RACE", Kicker: "Latency predictors from recorded vLLM traces",
		Sentence: fmt.Sprintf("%s predict TTFT and TPOT of the same requests, from what was known when each arrived.",
			words.Plural(len(s.Models), "model"))}
	if s.Options.Evaluate {
		h.Badge, h.Sentence = "JUDGED", "A finished predictor on runs it never saw."
	}
	for _, line := range s.Sentences {
		if strings.HasPrefix(line, scopeAll+", ") {
			h.Failed = append(h.Failed, strings.TrimPrefix(line, scopeAll+", "))
		}
	}
	h.Failed = words.FirstOf(h.Failed, 12, "predictor_scores.json")
	rows, requests := 0, 0
	for _, r := range s.Runs {
		rows, requests = rows+r.Rows, requests+r.Requests
	}
	physics := s.Options.Physics
	if s.Options.IsRefit {
		physics += ", refitted without the rows of each test"
	}
	h.Facts = stated(page.FactOf("Runs", fmt.Sprint(len(s.Runs))), page.FactOf("Rows", fmt.Sprintf("%d of %d requests", rows, requests)),
		page.FactOf("Features", s.Options.Rows.Features), page.FactOf("Prefix score", s.Options.Rows.PrefixScore),
		page.FactOf("Physics", physics),
		page.FactOf("Weights", s.Options.Weights), page.FactOf("Seed", fmt.Sprint(s.Options.Seed)))
	return h
}

// modelNames are the models in the order of the document.
func modelNames(s *result.PredictorScores) []string {
	var out []string
	for _, m := range s.Models {
		out = append(out, m.Name)
	}
	return out
}

func raceSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "race", Nav: "Race", Title: "Error by split",
		Lead: "Mean absolute percentage error of each model on each split, the constant and the noise floor beside it. A difference counts " +
			"only where its paired interval leaves zero out."}
	for _, target := range []string{"ttft_ms", "tpot_ms"} {
		x.Blocks = append(x.Blocks, page.FigureBlocks(present(raceFigure(s, target)))...)
	}
	x.Blocks = append(x.Blocks, page.Tables(modelTable(s))...)
	x.Blocks = append(x.Blocks, page.Tables(raceTable(s))...)
	x.Blocks = append(x.Blocks, page.Tables(contrastTable(s))...)
	return append1(x, page.Tables(splitTable(s)))
}

func append1(x page.Section, blocks []page.Block) page.Section {
	x.Blocks = append(x.Blocks, blocks...)
	return x
}

func modelTable(s *result.PredictorScores) *page.Table {
	t := &page.Table{ID: "models", Caption: "Models", Cols: []page.Column{{Head: "Model"}, {Head: "What it is"}}}
	for _, m := range s.Models {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(m.Name), page.Prose(m.Doc)}})
	}
	return t
}

func raceTable(s *result.PredictorScores) *page.Table {
	t := &page.Table{ID: "cells", Caption: "Race: every scope, target, split and model", Closed: true,
		Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Split"}, {Head: "Model"},
			{Head: "Rows", Num: true}, {Head: "MAPE", Num: true}, {Head: "95 %", Help: "block bootstrap"}, {Head: "Constant", Num: true},
			{Head: "Floor", Num: true, Help: "the ten nearest test rows"},
			{Head: "Skill", Num: true}, {Head: "Median APE", Num: true}, {Head: "P95 APE", Num: true}, {Head: "WAPE", Num: true},
			{Head: "Bias", Num: true},
			{Head: "Equal buckets", Num: true, Help: "MAPE with the same weight for every bucket"},
			{Head: "Above max", Num: true, Help: "MAPE of the rows above the largest training target"}, {Head: "Why not"}}}
	for _, c := range s.Cells {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(c.Scope), page.Plain(targetWords[c.Target]), page.Name(c.Split),
			page.Name(c.Model), page.Count(c.Rows), page.Percent(c.MAPE), rangeWords(c.MAPEBand),
			page.Percent(c.MAPEConst), page.Percent(c.MAPEFloor), page.Number(c.Skill), page.Percent(c.MedianAPE), page.Percent(c.P95APE),
			page.Percent(c.WAPE), page.Percent(c.Bias), page.Percent(c.EqualBuckets),
			page.Percent(c.AboveMaxMAPE), page.Prose(c.Reason)}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, cells")
}

func rangeWords(b *[2]float64) page.Cell {
	if b == nil {
		return page.Plain("–")
	}
	return page.Cell{Text: words.Pct(b[0]) + " to " + words.Pct(b[1]), Class: "nb"}
}

func contrastTable(s *result.PredictorScores) *page.Table {
	t := &page.Table{ID: "contrasts", Caption: "Paired differences of MAPE that are shown, all rows", Closed: true,
		Cols: []page.Column{{Head: "Target"}, {Head: "Split"}, {Head: "Better"}, {Head: "Worse"},
			{Head: "Difference", Num: true}, {Head: "95 %"}, {Head: "Blocks", Num: true}}}
	for _, c := range s.Contrasts {
		if c.Scope != scopeAll || !c.IsShown {
			continue
		}
		better, worse, d, band := c.A, c.B, *c.Difference, *c.Band
		if d > 0 {
			better, worse, d, band = worse, better, -d, [2]float64{-band[1], -band[0]}
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(targetWords[c.Target]), page.Name(c.Split), page.Name(better),
			page.Name(worse), page.PercentOf(d), rangeWords(&band), page.Count(c.Blocks)}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, contrasts")
}

func splitTable(s *result.PredictorScores) *page.Table {
	t := &page.Table{ID: "splits", Caption: "Splits", Closed: true, Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Split"},
		{Head: "What it asks"}, {Head: "Train", Num: true}, {Head: "Test", Num: true},
		{Head: "Alive at the border", Num: true}, {Head: "Above training max", Num: true,
			Help: "share of test rows above the largest training target"}, {Head: "Not formable"}}}
	for _, x := range s.Splits {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(x.Scope), page.Plain(targetWords[x.Target]), page.Name(x.Name),
			page.Prose(x.Question), page.Count(x.Train), page.Count(x.Test), page.ZeroDim(x.Dropped), page.Percent(x.AboveMax),
			page.Prose(x.Reason)}})
	}
	return page.Capped(t, "in the order of the file", "predictor_scores.json, splits")
}

func calibrationSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "calibration", Nav: "Calibration", Title: "Honest upper quantiles",
		Lead: "Coverage is the share of requests at or below their predicted P90. After calibration it should be 90 % wherever tomorrow is " +
			"like today; under a load that was never seen nothing promises that."}
	x.Blocks = append(x.Blocks, page.FigureBlocks(present(reliabilityFigure(s)))...)
	t := &page.Table{ID: "coverage", Caption: "Coverage of P90", Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Split"},
		{Head: "Model"}, {Head: "Rows", Num: true}, {Head: "Held back", Num: true},
		{Head: "Before", Num: true}, {Head: "After", Num: true}, {Head: "95 %"},
		{Head: "Adaptive", Num: true, Help: "the level follows outcomes known at the decision"}, {Head: "Pinball after / before", Num: true},
		{Head: "Why not"}}}
	for _, c := range s.Calibration {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(c.Scope), page.Plain(targetWords[c.Target]), page.Name(c.Split),
			page.Name(c.Model), page.Count(c.Rows), page.Count(c.Held), page.Percent(c.Before), page.Percent(c.After),
			rangeWords(c.Band), page.Percent(c.Adaptive), page.Number(c.Pinball), page.Prose(c.Reason)}})
	}
	if len(t.Rows) == 0 {
		x.Missing = "No split that asks about the future was formed."
	}
	x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "in the order of the file", "predictor_scores.json, calibration"))...)
	return x
}

func strataSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "strata", Nav: "Strata", Title: "Where the errors are",
		Lead: "MAPE on split time by what the engine was doing: requests waiting, KV cache in use, share of the prompt in the cache."}
	models := modelNames(s)
	t := &page.Table{ID: "strata-table", Caption: "MAPE by queue, KV use and prefix",
		Cols: []page.Column{{Head: "Scope"}, {Head: "Target"}, {Head: "Waiting"}, {Head: "KV use"}, {Head: "Prefix"}, {Head: "Rows", Num: true}}}
	for _, m := range models {
		t.Cols = append(t.Cols, page.Column{Head: m, Num: true})
	}
	for _, r := range s.Strata {
		cells := []page.Cell{page.Prose(r.Scope), page.Plain(targetWords[r.Target]), page.Plain(r.Queue), page.Plain(r.KV), page.Plain(r.Prefix),
			page.Count(r.Rows)}
		for _, m := range models {
			cells = append(cells, page.Percent(r.MAPE[m]))
		}
		t.Rows = append(t.Rows, page.Row{Cells: cells})
	}
	if len(t.Rows) > 0 {
		x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "predictor_scores.json, strata"))
	}
	return x
}

func habitSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "habits", Nav: "Habits", Title: "What each pitfall costs",
		Lead: "The same trees on the same split, trained or served with one habit of an online predictor at a time."}
	t := &page.Table{ID: "habit-table", Caption: "Pitfalls, split time", Cols: []page.Column{{Head: "Scope"}, {Head: "Target"},
		{Head: "Habit"}, {Head: "What"}, {Head: "MAPE", Num: true}, {Head: "Difference", Num: true},
		{Head: "P90 coverage", Num: true}, {Head: "Difference", Num: true}, {Head: "It would claim", Num: true}}}
	for _, p := range s.Emulation {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Prose(p.Scope), page.Plain(targetWords[p.Target]), page.Name(p.Pitfall),
			page.Prose(p.Doc), page.Percent(p.MAPE), page.Shown(p.MAPEDelta, words.Signed), page.Percent(p.Coverage),
			page.Shown(p.CoverageDelta, words.Signed), page.Percent(p.Claimed)}})
	}
	if len(t.Rows) > 0 {
		x.Blocks = page.Tables(t)
	} else if !s.Options.Evaluate {
		x.Missing = "Not measured: `blis-train predictor fit OUT --emulate llmd-0.9`."
	}
	return x
}

func rowSection(s *result.PredictorScores) page.Section {
	x := page.Section{ID: "rows", Nav: "Rows", Title: "Rows and provenance", Lead: "Every request became a row or was dropped for one reason."}
	t := &page.Table{ID: "row-table", Caption: "Rows at the decision", Cols: []page.Column{{Head: "Run"}, {Head: "Configuration"},
		{Head: "Requests", Num: true}, {Head: "Rows", Num: true}, {Head: "Dropped, by reason"},
		{Head: "States agree", Num: true, Help: "step and journey state are the same, of the rows where every step is recorded"},
		{Head: "Index − actual", Num: true, Help: "mean gap of the prefix scores"}}}
	for _, r := range s.Runs {
		agree := page.Plain("–")
		if a := r.Agreement; a.Rows > 0 {
			agree = page.PercentOf(float64(a.Equal) / float64(a.Rows))
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(r.ID), page.Prose(r.Config), page.Count(r.Requests), page.Count(r.Rows),
			page.Prose(words.Reasons(r.Dropped)), agree, page.Percent(r.PrefixGap)}})
	}
	x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "in the order of the file", "predictor_scores.json, runs"))...)
	x.Blocks = append(x.Blocks, page.FindingBlocks("Warnings", s.Warnings)...)
	x.Blocks = append(x.Blocks, page.Block{Heading: "How to reproduce"}, page.Block{Code: "blis-train " + s.Command})
	t = &page.Table{ID: "inputs", Caption: "Inputs", Closed: true, Cols: []page.Column{{Head: "Name"}, {Head: "Bytes", Num: true},
		{Head: "SHA-256"}}}
	for _, in := range s.Inputs {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(in.Name), page.Count64(in.Bytes), {Text: in.SHA256, Class: "mono"}}})
	}
	return append1(x, page.Tables(page.Capped(t, "in the order of the files", "predictor_scores.json, inputs")))
}

// present drops figures without panels.
func present(f *draw.Figure) []*draw.Figure {
	if f == nil || len(f.Panels) == 0 {
		return nil
	}
	return []*draw.Figure{f}
}

// stated drops facts without a value.
func stated(list ...page.Fact) []page.Fact {
	return slices.DeleteFunc(list, func(f page.Fact) bool { return f.Value == "" })
}
