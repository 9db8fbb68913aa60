package predictor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Coefficients are where the physics takes its step times from.
type Coefficients struct {
	Name string
	Set  *coeff.Set  // as given
	Fit  *result.Fit // nil: Set is used for every split as it is
}

// readRuns reads the rows of every run of the account.
func readRuns(out string, made *RowsDocument) ([]*runRows, error) {
	var list []*runRows
	for i := range made.Runs {
		r := &made.Runs[i]
		rows, err := readPredictorRows(out, r.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) != r.Rows {
			return nil, fmt.Errorf("%s: got %d rows, %s counts %d: make them again with predictor rows", table.RunDir(out, r.ID), len(rows),
				RowsFile, r.Rows)
		}
		list = append(list, &runRows{ID: r.ID, Config: r.Config, Rows: rows})
	}
	return list, nil
}

// physicsOf estimates rows with coefficients: those given, or refitted without
// what is hidden.
func physicsOf(in string, ext *result.Extract, list []*runRows, c *Coefficients, keepSaturated bool, workers int) estimator {
	return func(ctx context.Context, hide []hidden) ([]estimates, error) {
		set := c.Set
		if hide != nil {
			var err error
			if set, err = refitted(ctx, in, ext, c.Fit, hide, keepSaturated, workers); err != nil {
				return nil, err
			}
		}
		all := make([]estimates, len(list))
		err := par.Try(ctx, workers, len(list), func(i int) (err error) {
			all[i], err = estimatesOf(set, ext.Run(list[i].ID).Deployment, list[i].Rows)
			return err
		}, func(int) {})
		return all, err
	}
}

// refitted fits the runs of a fit again, hidden stretches left out.
func refitted(ctx context.Context, in string, ext *result.Extract, f *result.Fit, hide []hidden, keepSaturated bool,
	workers int) (*coeff.Set, error) {
	o := fit.DefaultOptions()
	o.Spec = features.Version(f.Options.Spec)
	o.Recipe = f.Options.Recipe
	o.BetaTarget = f.Options.BetaTarget
	o.Objective = f.Options.Objective
	o.Split = f.Options.Split
	o.Seed = f.Options.Seed
	o.Prior = f.Options.Prior
	o.Bootstraps = fit.MinBootstraps
	o.Models, o.Workers, o.MaxRows = []string{}, workers, rows.RecordedMaxRows(f.Options.MaxRows)
	spans := map[string][]rows.Span{}
	for _, h := range hide {
		if h.StartNs == math.MinInt64 && h.EndNs == math.MaxInt64 {
			o.Without = append(o.Without, h.Run)
			continue
		}
		spans[h.Run] = append(spans[h.Run], rows.Span{StartNs: h.StartNs, EndNs: h.EndNs})
	}
	for _, r := range f.Runs {
		if !r.Used && !r.Saturated && !slices.Contains(o.Without, r.ID) {
			o.Without = append(o.Without, r.ID)
		}
	}
	sources := pipeline.FitSources(in, ext)
	for i := range sources {
		judge, id := sources[i].Judge, sources[i].ID
		sources[i].Judge = func(run *trace.Run) (string, []rows.Span) {
			if keepSaturated {
				return "", spans[id]
			}
			reason, saturated := judge(run)
			return reason, slices.Concat(saturated, spans[id])
		}
	}
	doc, err := fit.Fit(ctx, sources, o, nil)
	if err != nil {
		return nil, err
	}
	return fit.Native(doc, nil)
}

// estimatesOf asks physics about every row of a run, ms. End to end is TTFT and the
// mean output of the requests that finished before; unknown before the first.
func estimatesOf(set *coeff.Set, d *deploy.Deployment, list []Row) (estimates, error) {
	engine, err := forecast.New(set, d)
	if err != nil {
		return nil, err
	}
	out := estimates{}
	for i := range list {
		s, r := stateOf(&list[i])
		ttft, err := engine.TTFT(&s, &r)
		if err != nil {
			return nil, err
		}
		tpot, err := engine.TPOTUs(&s, &r, ttft.Us)
		if err != nil {
			return nil, err
		}
		e2e := math.NaN()
		if n := list[i].MeanOutputTokens; n.OK {
			e2e = ttft.Us + tpot*math.Max(0, n.V-1)
		}
		out[targetTTFT] = append(out[targetTTFT], ttft.Us/1000)
		out[targetTPOT] = append(out[targetTPOT], tpot/1000)
		out[targetE2E] = append(out[targetE2E], e2e/1000)
	}
	return out, nil
}

// stateOf is what a row says of the engine, as physics reads it.
func stateOf(r *Row) (forecast.State, forecast.Request) {
	s := forecast.State{
		Decodes: r.DecodeBatch, DecodeTokens: r.DecodeTokensResident,
		StepTokens: r.StepPrefillTokens, StepRequests: r.StepPrefillRequests, NextTokens: r.NextPrefillTokens,
		NextRequests: r.NextPrefillRequests,
		SinceStepUs:  math.NaN(), AheadTokens: r.TokensWaitingAhead, AheadRequests: r.RequestsAhead, FreeBlocks: r.FreeBlocks,
		OutputTokens: r.MeanOutputTokens.V, PrefillPerS: r.RecentTokensPerS, PromptsPerS: r.RecentPromptsPerS,
	}
	if r.SinceStepUs.OK {
		s.SinceStepUs = r.SinceStepUs.V
	}
	cached := max(0, r.InputTokenLength-r.OwnUncachedTokens)
	return s, forecast.Request{PromptTokens: r.InputTokenLength, CachedTokens: cached}
}

// Fit trains on the rows in out of runs extracted to in: predictor.json, and what it is
// worth on the rows held out. c may be nil: no physics, for the reason in o.
func Fit(ctx context.Context, in, out string, ext *result.Extract, made *RowsDocument, c *Coefficients, o TrainOptions,
	h result.Header) (*Scores, *Document, error) {
	list, err := readRuns(out, made)
	if err != nil {
		return nil, nil, err
	}
	withPhysics(&o, in, ext, list, made, c)
	targets, scores, err := train(ctx, list, o)
	if err != nil {
		return nil, nil, err
	}
	h.Inputs = ext.Inputs
	scores.Header, scores.Runs, scores.Options, scores.Warnings = h, made.Runs, optionsOf(made, c, o), warningsOf(made)
	p := &Document{Header: h, Options: scores.Options, Runs: made.Runs, Bins: o.bins, Targets: targets, Digest: rowsDigest(list),
		Trained: "forests: the training rows; conformal factors: the rows held out"}
	p.HoldOut = stat.Filter(scores.HoldOut, func(s HoldOut) bool { return s.Scope == scopeAll })
	p.Scores = stat.Filter(scores.Models, func(s modelScore) bool { return s.Scope == scopeAll })
	p.judge()
	return scores, p, nil
}

// Limits of the gates that forests pass before a router gets them (spec#predictor-verdict).
const (
	mostOverConstant = 1.0 // error of trees over that of a constant
	mostP90Short     = 0.1 // by what share the calibrated P90 covers too little
)

// judge is the verdict on every target: trees better than a constant, and a P90 that covers.
func (p *Document) judge() {
	p.Verdict = &coeff.Judgement{Verdict: coeff.VerdictPass}
	for _, target := range targetsOf(p.Options.Rows.Target) {
		var over, short *float64
		for _, s := range p.Scores {
			if s.Target == target && s.Model == nameTrees {
				if s.MAPE != nil && s.MAPEConst != nil {
					over = result.OrNull(*s.MAPE / *s.MAPEConst)
				}
				if s.Coverage != nil {
					short = result.OrNull(level - *s.Coverage)
				}
			}
		}
		p.Verdict.AtMost("trees_mape_over_constant", target, over, mostOverConstant, "too few rows held out")
		p.Verdict.AtMost("p90_coverage_short", target, short, mostP90Short, "too few rows to calibrate and to judge")
	}
}

// withPhysics gives a training its columns and its physics.
func withPhysics(o *TrainOptions, in string, ext *result.Extract, list []*runRows, made *RowsDocument, c *Coefficients) {
	o.features, o.targets = made.Options.Features, targetsOf(made.Options.Target)
	if c == nil {
		return
	}
	o.isRefit = c.Fit != nil
	o.physics = physicsOf(in, ext, list, c, made.Options.KeepSaturated, o.Workers)
}

func optionsOf(made *RowsDocument, c *Coefficients, o TrainOptions) options {
	opt := options{Rows: made.Options, Weights: o.Weights, Seed: o.Seed, BucketRows: o.BucketRows, IsRefit: o.isRefit}
	if c != nil {
		opt.Physics = c.Name
	}
	return opt
}

// warningsOf are what readers of a score must know of its rows.
func warningsOf(made *RowsDocument) []trace.Finding {
	out := append([]trace.Finding{}, made.Warnings...)
	for _, r := range made.Runs {
		out = append(out, r.Warnings...)
	}
	if made.Options.PrefixScore == prefixActual {
		out = append(out, trace.Findingf(codeOtherColumns, "prefix_cache_score is what was measured after the decision"))
	}
	return out
}

// rowsDigest names the rows of all runs: ids, decision times and targets.
func rowsDigest(list []*runRows) string {
	h := sha256.New()
	for _, r := range list {
		for i := range r.Rows {
			x := &r.Rows[i]
			fmt.Fprintf(h, "%s/%s %d %g %g\n", r.ID, x.RequestID, x.DecisionNs, x.TTFTMs, x.TPOTMs.V)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// FitCommand is the `command` of predictor.json and its scores.
func FitCommand(made *RowsDocument, physics string, o TrainOptions) string {
	words := []string{"predictor fit"}
	if physics != "" {
		words = append(words, "--fit "+physics)
	}
	words = append(words, "--bucket-rows "+o.BucketRows, fmt.Sprintf("--seed %d", o.Seed), "--weights "+o.Weights)
	return strings.Join(words, " ") + " # " + made.Command
}

// Evaluate judges a finished predictor on rows it never saw.
func Evaluate(ctx context.Context, in, out string, ext *result.Extract, made *RowsDocument, p *Document, c *Coefficients, o TrainOptions,
	h result.Header) (*Scores, error) {
	list, err := readRuns(out, made)
	if err != nil {
		return nil, err
	}
	withPhysics(&o, in, ext, list, made, c)
	o.features = p.Options.Rows.Features
	var physics []estimates
	if o.physics != nil {
		if physics, err = o.physics(ctx, nil); err != nil {
			return nil, err
		}
	}
	scores := newScores()
	for i := range p.Targets {
		if err := judgeFile(list, &p.Targets[i], physics, o, scores); err != nil {
			return nil, err
		}
	}
	h.Inputs = append(h.Inputs, ext.Inputs...)
	scores.Header, scores.Runs, scores.Options = h, made.Runs, optionsOf(made, c, o)
	scores.Options.Evaluate = true
	scores.Warnings = append(warningsOf(made), seenBefore(p, ext)...)
	return scores, ctx.Err()
}

// seenBefore says which recordings judged the predictor was trained on, by the digests of their files.
func seenBefore(p *Document, ext *result.Extract) (out []trace.Finding) {
	for _, in := range ext.Inputs {
		same := func(of result.Input) bool { return of.SHA256 == in.SHA256 }
		if b := path.Base(in.Name); b != deploy.RunFile && b != "config.json" && slices.ContainsFunc(p.Inputs, same) {
			out = append(out, trace.Findingf(codeJudgedOnTraining,
				"%s: the predictor was trained on it: what is called unseen is in-sample there", in.Name))
		}
	}
	return out
}

// RowsDocument is predictor_rows.json: how rows were made, and what was dropped.
type RowsDocument struct {
	result.Header
	Options  Options         `json:"options"`
	Runs     []runAccount    `json:"runs"`
	Warnings []trace.Finding `json:"warnings"`
}

// runAccount is one run's account: requests = rows + the sum of dropped.
type runAccount struct {
	ID        string         `json:"id"`
	Config    string         `json:"config"`
	Requests  int            `json:"requests"`
	Rows      int            `json:"rows"`
	Dropped   map[string]int `json:"dropped"`
	Agreement stateAgreement `json:"agreement"`
	// PrefixGap is the mean of |score of the index - score measured afterwards|
	// over rows that know both; null without any.
	PrefixGap *float64        `json:"prefix_gap"`
	Warnings  []trace.Finding `json:"warnings"`
}

// stateAgreement compares the two sources of state on the rows where both are
// known: waiting and running are the same, or the decision fell between a pick-up
// or a finish and the next schedule(), inside schedule(), or elsewhere.
type stateAgreement struct {
	Rows    int `json:"rows"`
	Equal   int `json:"equal"`
	Between int `json:"between_steps"`
	Inside  int `json:"inside_schedule"`
	Other   int `json:"other"`
}

// Scores is predictor_scores.json: what the models are worth on rows they did not see.
type Scores struct {
	result.Header
	Options  options         `json:"options"`
	Runs     []runAccount    `json:"runs"`
	HoldOut  []HoldOut       `json:"hold_out"`
	Models   []modelScore    `json:"models"`
	Warnings []trace.Finding `json:"warnings"`
}

// options decided the numbers.
type options struct {
	Rows       Options `json:"rows"`
	Weights    string  `json:"weights"` // natural | flat | sqrt
	Seed       uint64  `json:"seed"`
	Physics    string  `json:"physics"`     // where step times come from; empty: no physics
	IsRefit    bool    `json:"is_refit"`    // coefficients were refitted without the rows held out
	BucketRows string  `json:"bucket_rows"` // most rows of a bucket: a number, none, or auto
	Evaluate   bool    `json:"evaluate"`    // a finished predictor was judged, nothing was trained
}

// HoldOut are the rows of a target that the models are judged on.
type HoldOut struct {
	Scope    string   `json:"scope"` // all, or a configuration
	Target   string   `json:"target"`
	Reason   string   `json:"reason"` // why there is none, empty when there is
	Train    int      `json:"train"`
	Grown    int      `json:"grown"`       // of those, rows that the forests are grown on
	Bucket   int      `json:"bucket_rows"` // most of one bucket among them; 0: no limit
	Test     int      `json:"test"`
	Dropped  int      `json:"dropped"`   // of the training rows, alive when the test began
	AboveMax *float64 `json:"above_max"` // share of test rows above the largest training target
}

// modelScore is a model on the hold-out of a target. Relative errors are shares.
type modelScore struct {
	Scope  string `json:"scope"`
	Target string `json:"target"` // ttft_ms | tpot_ms | e2e_ms
	Model  string `json:"model"`
	Reason string `json:"reason"` // why there is no figure; empty when there is

	Rows         int         `json:"rows"`
	MAPE         *float64    `json:"mape"`
	MAPEBand     *[2]float64 `json:"mape_ci95"`
	MAPEConst    *float64    `json:"mape_const"` // of the median of the run's training rows
	MAPEFloor    *float64    `json:"mape_floor"` // of the ten nearest test rows
	WAPE         *float64    `json:"wape"`
	MedianAPE    *float64    `json:"median_ape"`
	P95APE       *float64    `json:"p95_ape"`
	Bias         *float64    `json:"bias"`
	AboveMaxRows int         `json:"above_max_rows"`
	AboveMaxMAPE *float64    `json:"above_max_mape"`
	Coverage     *float64    `json:"p90_coverage"` // of the calibrated P90
	CoverageBand *[2]float64 `json:"p90_coverage_ci95"`
}

// Document is predictor.json: everything forest.Load needs, and where it comes from.
type Document struct {
	result.Header
	Options options      `json:"options"`
	Runs    []runAccount `json:"runs"`
	// Trained says which rows the forests were grown on and which set the
	// conformal factors.
	Trained string           `json:"trained"`
	Bins    int              `json:"bins"`
	Targets []forest.Target  `json:"targets"`
	HoldOut []HoldOut        `json:"hold_out"`
	Scores  []modelScore     `json:"scores"` // of all rows held out
	Digest  string           `json:"data_digest"`
	Verdict *coeff.Judgement `json:"verdict,omitempty"` // of the forests that exports write, on the rows held out
}

// targetWords name the predicted latencies.
var targetWords = map[string]string{targetTTFT: "TTFT", targetTPOT: "TPOT", targetE2E: "end to end"}

// Page is the page of predictor_scores.json as one HTML file, and its sections: the error and
// the P90 coverage of every model on rows it did not see.
func Page(s *Scores) ([]byte, []report.Section, error) {
	h := report.Head{Class: "none", Badge: "TRAINED", Kicker: "Latency predictors from recorded vLLM traces",
		Sentence: "Trees and physics on the last fifth of each run, from what was known when each request arrived."}
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
	h.Facts = []report.Fact{report.FactOf("Runs", fmt.Sprint(len(s.Runs))),
		report.FactOf("Rows", fmt.Sprintf("%d of %d requests", rows, requests)),
		report.FactOf("Features", s.Options.Rows.Features), report.FactOf("Prefix score", s.Options.Rows.PrefixScore),
		report.FactOf("Physics", physics), report.FactOf("Weights", s.Options.Weights), report.FactOf("Seed", fmt.Sprint(s.Options.Seed))}
	return report.Page(h, []report.Section{
		{ID: "error", Nav: "Error", Title: "Error and P90 coverage on rows held out",
			Lead: "Mean absolute percentage error with the constant and the noise floor beside it; the share of requests within the " +
				"calibrated P90.",
			Blocks: report.Tables(scoreTable(s), holdOutTable(s), modelTable())},
		{ID: "rows", Nav: "Rows", Title: "Rows", Lead: "One row a request at its decision; every other request is dropped for one reason.",
			Blocks: append(append(report.Tables(rowTable(s)), report.FindingBlocks("Warnings", s.Warnings)...),
				report.Block{Heading: "How to reproduce"}, report.Block{Code: []string{"blis-train " + s.Command}})}})
}

func scoreTable(s *Scores) *report.Table {
	t := report.NewTable("scores", "Models", "Scope", "Target", "Model", "# Rows", "# MAPE", "95 % ? block bootstrap", "# Constant",
		"# Floor ? the ten nearest test rows", "# Median APE", "# P95 APE", "# WAPE", "# Bias",
		"# Above max ? MAPE of the rows above the largest training target", "# P90 coverage", "95 %", "Why not")
	for _, c := range s.Models {
		t.Put(report.Prose(c.Scope), report.Plain(targetWords[c.Target]), report.Name(c.Model), report.Count(c.Rows),
			report.Percent(c.MAPE), rangeWords(c.MAPEBand), report.Percent(c.MAPEConst), report.Percent(c.MAPEFloor),
			report.Percent(c.MedianAPE), report.Percent(c.P95APE), report.Percent(c.WAPE), report.Percent(c.Bias),
			report.Percent(c.AboveMaxMAPE), report.Percent(c.Coverage), rangeWords(c.CoverageBand), report.Prose(c.Reason))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, models")
}

func rangeWords(b *[2]float64) report.Cell {
	if b == nil {
		return report.Plain("–")
	}
	return report.Cell{Text: report.Pct(b[0]) + " to " + report.Pct(b[1]), Class: "nb"}
}

// trained says how many of the training rows the forests are grown on.
func (h *HoldOut) trained() string {
	if h.Grown == 0 {
		return fmt.Sprintf("0 of %d rows", h.Train)
	}
	limit := "no limit"
	if h.Bucket > 0 {
		limit = fmt.Sprintf("at most %d a bucket", h.Bucket)
	}
	return fmt.Sprintf("%d of %d rows, %s", h.Grown, h.Train, limit)
}

func holdOutTable(s *Scores) *report.Table {
	t := report.NewTable("hold-out", "Rows held out", "Scope", "Target", "Trained on", "# Test", "# Alive at the border",
		"# Above training maximum", "Why none")
	for _, h := range s.HoldOut {
		t.Put(report.Prose(h.Scope), report.Plain(targetWords[h.Target]), report.Plain(h.trained()), report.Count(h.Test),
			report.Count(h.Dropped), report.Percent(h.AboveMax), report.Prose(h.Reason))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, hold_out")
}

func modelTable() *report.Table {
	t := report.NewTable("models", "What they are", "Model", "What it is")
	for _, name := range scored {
		t.Put(report.Name(name), report.Prose(modelDocs[name]))
	}
	return t
}

func rowTable(s *Scores) *report.Table {
	t := report.NewTable("runs", "Requests by run", "Run", "Configuration", "# Requests", "# Rows", "Dropped")
	for _, r := range s.Runs {
		t.Put(report.Name(r.ID), report.Prose(r.Config), report.Count(r.Requests), report.Count(r.Rows), report.Prose(report.Reasons(r.Dropped)))
	}
	return report.Capped(t, "in the order of the file", "predictor_scores.json, runs")
}

// Check is an error where no request of any run became a row: why most were dropped, and what
// to do about it.
func (d *RowsDocument) Check() error {
	rows := 0
	requests := 0
	drops := map[string]int{}
	for i := range d.Runs {
		r := &d.Runs[i]
		rows += r.Rows
		requests += r.Requests
		for why, n := range r.Dropped {
			drops[why] += n
		}
	}
	if rows > 0 {
		return nil
	}
	most := ""
	for _, why := range slices.Sorted(maps.Keys(drops)) {
		if drops[why] > drops[most] {
			most = why
		}
	}
	if most == "" {
		return trace.Errorf(fit.CodeNoRows, "rows: got no request in %d runs, want at least one", len(d.Runs))
	}
	return trace.Errorf(fit.CodeNoRows, "rows: got none of %d requests, want at least one; %d dropped as %s, the most of %d reasons", requests,
		drops[most], most, len(drops)).WithHint(report.Explanations[most].Do)
}
