package predictor

// This file trains and evaluates predictors on the rows of an output folder.

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// readRuns returns the rows in folder rowsDir of every run of a document.
func readRuns(rowsDir string, made *RowsDocument) ([]*runRows, error) {
	var list []*runRows
	for i := range made.Runs {
		r := &made.Runs[i]
		rows, err := readPredictorRows(rowsDir, r.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) != r.Rows {
			return nil, fmt.Errorf("%s: got %d rows, %s counts %d: make them again with predictor rows",
				table.RunDir(rowsDir, r.ID), len(rows), RowsFile, r.Rows)
		}
		list = append(list, &runRows{ID: r.ID, Config: r.Config, Rows: rows})
	}
	return list, nil
}

// Inputs are the rows that predictors are fitted to or judged on, and what physics needs to estimate their latencies.
type Inputs struct {
	ExtractDir string          // folder of the extracted runs
	Extract    *result.Extract // its document
	RowsDir    string          // folder of the rows that predictor rows wrote
	Rows       *RowsDocument   // their document
	Physics    *Coefficients   // predict step times, from which physics estimates latencies; nil: TrainOptions.PhysicsReason says why
}

// Fit trains predictors on the rows of in. It returns the scores on the rows held out, and the document of the
// predictor.
func Fit(ctx context.Context, in *Inputs, o TrainOptions, h result.Header) (*Scores, *Document, error) {
	list, err := readRuns(in.RowsDir, in.Rows)
	if err != nil {
		return nil, nil, err
	}
	withPhysics(&o, in, list)
	targets, scores, err := train(ctx, list, o)
	if err != nil {
		return nil, nil, err
	}
	h.Inputs = in.Extract.Inputs
	scores.Header = h
	scores.Runs = in.Rows.Runs
	scores.Options = optionsOf(in.Rows, in.Physics, o)
	scores.Warnings = warningsOf(in.Rows)
	p := &Document{
		Header:  h,
		Options: scores.Options,
		Runs:    in.Rows.Runs,
		Bins:    o.bins,
		Targets: targets,
		Digest:  rowsDigest(list),
		Trained: "forests: the training rows; conformal factors: the rows held out",
	}
	for _, s := range scores.HoldOut {
		if s.Scope == scopeAll {
			p.HoldOut = append(p.HoldOut, s)
		}
	}
	for _, s := range scores.Models {
		if s.Scope == scopeAll {
			p.Scores = append(p.Scores, s)
		}
	}
	scores.Verdict = verdictOf(scores, "")
	p.Verdict = scores.Verdict
	return scores, p, nil
}

// Limits of the gates that forests pass before a router gets them (spec#predictor-verdict).
const (
	mostOverConstant = 1.0 // MAPE of trees over that of a constant
	mostP90Short     = 0.1 // 0.9 minus the coverage of the calibrated P90
)

// verdictOf returns the verdict of a predictor by its scores on all rows that it did not see: for every target, trees
// must be better than a constant, and the calibrated P90 must cover about 90 % of those rows (spec#predictor-verdict).
// whySeen is a reason for which it did see them; empty: it did not. Nothing passes then, because trees know their own
// training rows.
func verdictOf(scores *Scores, whySeen string) *coeff.Judgement {
	v := &coeff.Judgement{Verdict: coeff.VerdictPass}
	atMost := func(name, target string, value *float64, limit float64, whyNone string) {
		if whySeen != "" && value != nil && *value <= limit {
			value, whyNone = nil, whySeen
		}
		v.AtMost(name, target, value, limit, whyNone)
	}
	for _, target := range targetsOf(scores.Options.Rows.Target) {
		noErrors := "too few rows held out"
		noCoverage := "too few rows to calibrate and to judge"
		ofTarget := func(h HoldOut) bool { return h.Target == target && h.Scope == scopeAll }
		if k := slices.IndexFunc(scores.HoldOut, ofTarget); k >= 0 && scores.HoldOut[k].Reason != "" {
			noErrors = scores.HoldOut[k].Reason
			noCoverage = noErrors
		} else if k < 0 && scores.Options.Evaluate {
			noErrors = "the predictor has no trees for it"
			noCoverage = noErrors
		}
		var over, short *float64
		for _, s := range scores.Models {
			if s.Target != target || s.Model != nameTrees || s.Scope != scopeAll {
				continue
			}
			if s.MAPE != nil && s.MAPEConst != nil {
				over = result.OrNull(*s.MAPE / *s.MAPEConst)
			}
			if scores.Options.Evaluate && s.withinChanceOfConstant() {
				over = nil
				noErrors = "within chance of the best constant for these rows"
			}
			if s.Coverage != nil {
				short = result.OrNull(calibratedLevel - *s.Coverage)
			}
		}
		atMost("trees_mape_over_constant", target, over, mostOverConstant, noErrors)
		atMost("p90_coverage_short", target, short, mostP90Short, noCoverage)
	}
	return v
}

// withinChanceOfConstant reports whether the model's error is above the constant's by less than chance explains. The
// constant of an evaluation is the best one for the judged rows, which nobody knows before.
func (s *modelScore) withinChanceOfConstant() bool {
	return s.MAPE != nil && s.MAPEConst != nil && *s.MAPE > *s.MAPEConst && (s.MAPEBand == nil || s.MAPEBand[0] <= *s.MAPEConst)
}

// withPhysics sets the columns and the targets of a training on the rows in list and, with coefficients, the function
// that estimates latencies from step times (physics).
func withPhysics(o *TrainOptions, in *Inputs, list []*runRows) {
	o.features = in.Rows.Options.Features
	o.targets = targetsOf(in.Rows.Options.Target)
	if in.Physics == nil {
		return
	}
	o.isRefit = in.Physics.Fit != nil
	o.physics = physicsOf(in.ExtractDir, in.Extract, list, in.Physics, in.Rows.Options.KeepSaturated, o.Workers)
}

// optionsOf returns the options of a training as documents record them.
func optionsOf(made *RowsDocument, c *Coefficients, o TrainOptions) options {
	opt := options{
		Rows:       made.Options,
		Weights:    o.Weights,
		Seed:       o.Seed,
		BucketRows: o.BucketRows,
		IsRefit:    o.isRefit,
	}
	if c != nil {
		opt.Physics = c.Name
	}
	return opt
}

// warningsOf returns the warnings about the rows.
func warningsOf(made *RowsDocument) []trace.Finding {
	out := append([]trace.Finding{}, made.Warnings...)
	for _, r := range made.Runs {
		out = append(out, r.Warnings...)
	}
	if made.Options.PrefixScore == prefixActual {
		out = append(out, trace.Findingf(codeOtherColumns,
			"prefix_cache_score is what was measured after the decision"))
	}
	return out
}

// FitCommand returns the `command` of predictor.json and its scores.
func FitCommand(made *RowsDocument, physics string, o TrainOptions) string {
	words := []string{"predictor fit"}
	if physics != "" {
		words = append(words, "--fit "+physics)
	}
	words = append(words,
		"--bucket-rows "+o.BucketRows,
		fmt.Sprintf("--seed %d", o.Seed),
		"--weights "+o.Weights)
	return strings.Join(words, " ") + " # " + made.Command
}

// Evaluate returns the scores of a finished predictor on the rows of in, which should be of runs that it was not
// trained on.
func Evaluate(ctx context.Context, in *Inputs, p *Document, o TrainOptions, h result.Header) (*Scores, error) {
	list, err := readRuns(in.RowsDir, in.Rows)
	if err != nil {
		return nil, err
	}
	withPhysics(&o, in, list)
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
	h.Inputs = append(h.Inputs, in.Extract.Inputs...)
	scores.Header = h
	scores.Runs = in.Rows.Runs
	scores.Options = optionsOf(in.Rows, in.Physics, o)
	scores.Options.Evaluate = true
	seen := seenBefore(p, in.Extract)
	whySeen := ""
	if len(seen) > 0 {
		whySeen = "the predictor was trained on these recordings"
	}
	scores.Verdict = verdictOf(scores, whySeen)
	scores.Warnings = append(warningsOf(in.Rows), seen...)
	return scores, ctx.Err()
}

// seenBefore returns a warning for each recording of ext that the predictor was trained on, by the
// digest of its file. run.yaml and config.json are no recordings: different runs may share them.
func seenBefore(p *Document, ext *result.Extract) (out []trace.Finding) {
	for _, in := range ext.Inputs {
		base := path.Base(in.Name)
		if base == deploy.RunFile || base == "config.json" {
			continue
		}
		isSame := func(trained result.Input) bool { return trained.SHA256 == in.SHA256 }
		if slices.ContainsFunc(p.Inputs, isSame) {
			out = append(out, trace.Findingf(coeff.JudgedOnTraining,
				"%s: the predictor was trained on it: what is called unseen is in-sample there", in.Name))
		}
	}
	return out
}
