package predictor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/predictor/decision"
	"github.com/blis-train/blis-train/predictor/race"
	"github.com/blis-train/blis-train/report/latency"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/predict"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Coefficients are where the physics of a race takes its step times from.
type Coefficients struct {
	Name string
	Set  *coeff.Set  // as given
	Fit  *result.Fit // nil: Set is used for every split as it is
}

// raceRuns reads the rows of every run of the account.
func raceRuns(out string, made *result.PredictorRows) ([]*race.Run, error) {
	var list []*race.Run
	for i := range made.Runs {
		r := &made.Runs[i]
		rows, err := ReadPredictorRows(out, r.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) != r.Rows {
			return nil, fmt.Errorf("%s: got %d rows, %s counts %d: make them again with predictor rows", table.RunDir(out, r.ID), len(rows),
				RowsFile, r.Rows)
		}
		list = append(list, &race.Run{ID: r.ID, Config: r.Config, Rows: rows})
	}
	return list, nil
}

// physicsOf estimates rows with coefficients: those given, or refitted without
// what is hidden.
func physicsOf(in string, ext *result.Extract, list []*race.Run, c *Coefficients, keepSaturated bool, workers int) race.Physics {
	return func(ctx context.Context, hidden []race.Hidden) ([]race.Estimates, error) {
		set := c.Set
		if hidden != nil {
			var err error
			if set, err = refitted(ctx, in, ext, c.Fit, hidden, keepSaturated, workers); err != nil {
				return nil, err
			}
		}
		all := make([]race.Estimates, len(list))
		err := par.Try(ctx, workers, len(list), func(i int) (err error) {
			all[i], err = estimatesOf(set, ext.Run(list[i].ID).Deployment, list[i].Rows)
			return err
		}, func(int) {})
		return all, err
	}
}

// refitted fits the runs of a fit again, hidden stretches left out.
func refitted(ctx context.Context, in string, ext *result.Extract, f *result.Fit, hidden []race.Hidden, keepSaturated bool,
	workers int) (*coeff.Set, error) {
	o := fit.DefaultOptions()
	o.Spec, o.Recipe, o.BetaTarget, o.Objective = features.Version(f.Options.Spec), f.Options.Recipe, f.Options.BetaTarget, f.Options.Objective
	o.Split, o.Seed, o.Prior, o.Bootstraps = f.Options.Split, f.Options.Seed, f.Options.Prior, fit.MinBootstraps
	o.Models, o.Workers, o.MaxRows = []string{}, workers, rows.RecordedMaxRows(f.Options.MaxRows)
	spans := map[string][]rows.Span{}
	for _, h := range hidden {
		if h.StartNs == math.MinInt64 && h.EndNs == math.MaxInt64 {
			o.Without = append(o.Without, h.Run)
			continue
		}
		spans[h.Run] = append(spans[h.Run], rows.Span{StartNs: h.StartNs, EndNs: h.EndNs})
	}
	for _, r := range f.Runs {
		if !r.Used && !r.Saturated {
			o.Without = appendMissing(o.Without, r.ID)
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
	return export.Native(doc, nil)
}

func appendMissing(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

// estimatesOf asks physics about every row of a run, ms.
func estimatesOf(set *coeff.Set, d *deploy.Deployment, list []decision.Row) (race.Estimates, error) {
	var out race.Estimates
	engine, err := predict.New(set, d)
	if err != nil {
		return out, err
	}
	for i := range list {
		s, r := StateOf(&list[i])
		ttft, err := engine.TTFT(&s, &r)
		if err != nil {
			return out, err
		}
		tpot, err := engine.TPOTUs(&s, &r, ttft.Us)
		if err != nil {
			return out, err
		}
		out.TTFT, out.TPOT = append(out.TTFT, ttft.Us/1000), append(out.TPOT, tpot/1000)
	}
	return out, nil
}

// StateOf is what a row says of the engine, as physics reads it.
func StateOf(r *decision.Row) (predict.State, predict.Request) {
	s := predict.State{
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
	return s, predict.Request{PromptTokens: r.InputTokenLength, CachedTokens: cached}
}

// Fit runs the race on the rows in out of runs extracted to in, and grows
// what predictor.json holds. c may be nil: no physics, for the reason in o. Scores
// come back beside an error when only the predictor cannot be grown.
func Fit(ctx context.Context, in, out string, ext *result.Extract, made *result.PredictorRows, c *Coefficients, o race.Options,
	h result.Header) (*result.PredictorScores, *result.Predictor, error) {
	list, err := raceRuns(out, made)
	if err != nil {
		return nil, nil, err
	}
	withPhysics(&o, in, ext, list, made, c)
	o.Features = made.Options.Features
	scores, err := race.Fit(ctx, list, o)
	if err != nil {
		return nil, nil, err
	}
	h.Inputs = ext.Inputs
	scores.Header, scores.Runs, scores.Options = h, made.Runs, raceOptions(made, c, o)
	scores.Warnings = predictorWarnings(made)
	targets, err := race.GrowTargets(ctx, list, o)
	if err != nil {
		return scores, nil, err
	}
	p := &result.Predictor{Header: h, Options: scores.Options, Runs: made.Runs, Bins: o.Bins, Targets: targets, Digest: rowsDigest(list),
		Trained: "forests: the training rows of split time; conformal factors: its test rows"}
	for _, s := range scores.Splits {
		if s.Name == race.Time && s.Scope == race.ScopeAll {
			p.Splits = append(p.Splits, s)
		}
	}
	for _, cell := range scores.Cells {
		if cell.Split == race.Time && cell.Scope == race.ScopeAll {
			p.Scores = append(p.Scores, cell)
		}
	}
	return scores, p, nil
}

// withPhysics gives a race its physics.
func withPhysics(o *race.Options, in string, ext *result.Extract, list []*race.Run, made *result.PredictorRows, c *Coefficients) {
	if c == nil {
		return
	}
	o.IsRefit = c.Fit != nil
	o.Physics = physicsOf(in, ext, list, c, made.Options.KeepSaturated, o.Workers)
}

func raceOptions(made *result.PredictorRows, c *Coefficients, o race.Options) result.PredictorOptions {
	opt := result.PredictorOptions{Rows: made.Options, Models: o.Models, Splits: o.Splits, Weights: o.Weights, Recency: o.Recency,
		Seed:    o.Seed,
		Emulate: o.Emulate, Draws: o.Draws, IsRefit: o.IsRefit}
	if c != nil {
		opt.Physics = c.Name
	}
	return opt
}

// predictorWarnings are what readers of a score must know of its rows.
func predictorWarnings(made *result.PredictorRows) []trace.Finding {
	out := append([]trace.Finding{}, made.Warnings...)
	for _, r := range made.Runs {
		out = append(out, r.Warnings...)
	}
	if made.Options.PrefixScore == decision.PrefixActual {
		out = append(out, trace.Findingf(decision.LeakingScore, "prefix_cache_score is what was measured after the decision"))
	}
	return out
}

// rowsDigest names the rows of all runs: ids, decision times and targets.
func rowsDigest(list []*race.Run) string {
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
func FitCommand(made *result.PredictorRows, physics string, o race.Options) string {
	flags := []string{"--models " + strings.Join(o.Models, ","), "--split " + strings.Join(o.Splits, ","), "--weights " + o.Weights,
		"--recency " + o.Recency, fmt.Sprintf("--seed %d", o.Seed), fmt.Sprintf("--bootstraps %d", o.Draws)}
	if o.Emulate != "" {
		flags = append(flags, "--emulate "+o.Emulate)
	}
	if physics != "" {
		flags = append(flags, "--fit "+physics)
	}
	slices.Sort(flags)
	return "predictor fit " + strings.Join(flags, " ") + " # " + made.Command
}

// Evaluate judges a finished predictor on rows it never saw.
func Evaluate(ctx context.Context, in, out string, ext *result.Extract, made *result.PredictorRows, p *result.Predictor,
	c *Coefficients,
	o race.Options, h result.Header) (*result.PredictorScores, error) {
	list, err := raceRuns(out, made)
	if err != nil {
		return nil, err
	}
	withPhysics(&o, in, ext, list, made, c)
	o.Features = p.Options.Rows.Features
	scores, err := race.JudgeFile(ctx, list, p.Targets, o)
	if err != nil {
		return nil, err
	}
	h.Inputs = append(h.Inputs, ext.Inputs...)
	scores.Header, scores.Runs, scores.Options = h, made.Runs, raceOptions(made, c, o)
	scores.Options.Evaluate, scores.Options.Models, scores.Options.Splits = true, p.Options.Models, []string{race.Unseen}
	scores.Warnings = append(predictorWarnings(made), seenBefore(p, ext)...)
	return scores, nil
}

// seenBefore says which recordings judged the predictor was trained on, by the digests of their files.
func seenBefore(p *result.Predictor, ext *result.Extract) (out []trace.Finding) {
	for _, in := range ext.Inputs {
		same := func(of result.Input) bool { return of.SHA256 == in.SHA256 }
		if b := path.Base(in.Name); b != deploy.RunFile && b != "config.json" && slices.ContainsFunc(p.Inputs, same) {
			out = append(out, trace.Findingf(decision.JudgedOnTraining,
				"%s: the predictor was trained on it: what is called unseen is in-sample there", in.Name))
		}
	}
	return out
}

// Report is the page of a race.
func Report(scores *result.PredictorScores) ([]byte, error) {
	var b bytes.Buffer
	err := latency.Write(&b, scores)
	return b.Bytes(), err
}
