package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

func diffOptions(string) option.Table {
	def := export.DefaultDiffOptions()
	ref := pipeline.DefaultReference()
	return defaults(map[string]any{"level": def.Level, "tolerance": def.Tolerance, "requests": int64(ref.Requests), "load": ref.Load,
		"prompt-tokens": ref.Prompt, "output-tokens": ref.Output, "seed": ref.Seed})
}

func runDiff(c *cli.Context, con *console) error {
	if c.NArg() != 2 {
		return usagef("diff: got %d arguments, want two coefficient files", c.NArg())
	}
	opt := export.DiffOptions{Level: c.Float64("level"), Tolerance: c.Float64("tolerance")}
	if err := opt.Check(); err != nil {
		return usagef("%v", err)
	}
	ref := pipeline.Reference{Requests: c.Int("requests"), Load: c.Float64("load"), Prompt: c.Float64("prompt-tokens"),
		Output: c.Float64("output-tokens"), Seed: c.Int64("seed"), Done: c.Context.Done()}
	if err := ref.Check(); err != nil {
		return err
	}
	a, inA, err := con.loadSet(c.Args().Get(0))
	if err != nil {
		return err
	}
	b, inB, err := con.loadSet(c.Args().Get(1))
	if err != nil {
		return err
	}
	if data := c.String("data"); data != "" {
		if opt.Bootstrap, err = bootstrapOn(c, con, data, a); err != nil {
			return err
		}
	}
	// Terms first: files that cannot be compared are refused before anything is simulated.
	if _, err := export.Diff(a, b, nil, opt); err != nil {
		return err
	}
	preds, err := ref.Predictions(a, b)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.Args().Get(0), c.Args().Get(1), err)
	}
	doc, err := export.Diff(a, b, preds, opt)
	if err != nil {
		return err
	}
	doc.ToolVersion = folder.ToolVersion
	doc.A = inA
	doc.B = inB
	return reportDiff(con, doc, c.Bool("all"), c.Bool("fail-on-change"))
}

func reportDiff(con *console, doc *export.DiffDoc, all, fail bool) error {
	con.table("Coefficients, significance from "+doc.Significance, cells{"model", "term", "unit", "A", "B", "B/A", "p", "moved"},
		termRows(doc.Terms, all))
	con.table("Predictions on the reference workload", cells{"configuration", "workload", "figure", "A ms", "B ms", "change"},
		predictionRows(doc.Predictions))
	for _, s := range doc.Settings {
		con.sayf("%s", s)
	}
	if err := con.document(doc); err != nil {
		return err
	}
	for _, r := range doc.Reasons {
		con.sayf("changed: %s", r)
	}
	if !doc.Changed {
		con.sayf("no term moved significantly and no prediction changed by more than %g %%", 100*doc.Tolerance)
		return nil
	}
	if fail {
		return gatef("%d %s", len(doc.Reasons), plural(len(doc.Reasons), "change", "changes"))
	}
	return nil
}

func termRows(terms []export.TermDiff, all bool) []cells {
	var rows []cells
	for i := range terms {
		t := &terms[i]
		if t.Delta == 0 && !all {
			continue
		}
		moved := "unknown"
		if t.Significant != nil {
			moved = map[bool]string{true: "yes", false: "no"}[*t.Significant]
		}
		if t.Note != "" {
			moved += " (" + t.Note + ")"
		}
		rows = append(rows, cells{t.Model, t.Name, t.Unit, fmt.Sprintf("%.6g", t.A), fmt.Sprintf("%.6g", t.B),
			optional(t.Ratio, 1, "%.4f"), optional(t.P, 1, "%.2g"), moved})
	}
	return rows
}

func predictionRows(preds []export.Prediction) []cells {
	return stat.Map(preds, func(p export.Prediction) cells {
		return cells{p.Scope, p.Workload, p.Metric, fmt.Sprintf("%.3f", p.AMs), fmt.Sprintf("%.3f", p.BMs), fmt.Sprintf("%+.2f %%", 100*p.Change)}
	})
}

// coefficientsByModel indexes a fit's coefficients as Diff wants them.
func coefficientsByModel(fit *result.Fit) map[string][]result.Coefficient {
	out := map[string][]result.Coefficient{"beta": fit.Beta.Coefficients}
	for i := range fit.Alpha {
		out[fit.Alpha[i].Target] = fit.Alpha[i].Coefficients
	}
	return out
}

// bootstrapOn fits the extracted tables with a set's spec, recipe and targets
// and returns the coefficients with their block-bootstrap intervals.
func bootstrapOn(c *cli.Context, con *console, out string, set *coeff.Set) (map[string][]result.Coefficient, error) {
	ext, err := readExtract(con, out)
	if err != nil {
		return nil, err
	}
	o, err := fit.Options{
		Spec: set.SpecVersion, Recipe: set.Recipe, BetaTarget: set.BetaTarget, AlphaTargets: set.AlphaTargets(),
		Models: []string{}, Seed: c.Int64("seed"), MaxRows: fit.BareOptions().MaxRows,
	}.Resolve()
	if err != nil {
		return nil, err
	}
	doc, err := pipeline.FitTables(c.Context, out, ext, o, result.NewHeader(folder.ToolVersion, "diff"), con.progress())
	if err != nil {
		return nil, fmt.Errorf("bootstrap on %s: %w", out, err)
	}
	return coefficientsByModel(doc), nil
}
