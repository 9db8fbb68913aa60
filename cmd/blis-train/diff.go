package main

// This file is the command diff, which compares two coefficient files and their predictions.

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result/folder"
)

// diffCommand returns the command diff.
func diffCommand() *cli.Command {
	o := export.DefaultDiffOptions()
	ref := pipeline.DefaultReference()
	return newCommand(&cli.Command{
		Name:      "diff",
		ArgsUsage: "A B",
		Usage:     "show which coefficients changed between two files, and what that does to predictions",
		Description: `Significance comes from the intervals stored in the files, or from a block bootstrap
on the tables given with --data. TTFT and ITL are simulated under both files on one
reference workload for every configuration of A.

Example:
   blis-train diff old/coefficients.yaml new/coefficients.yaml --fail-on-change`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data",
				Usage: "`OUT` folder with extracted tables, to bootstrap the significance on"},
			&cli.BoolFlag{Name: "fail-on-change", Usage: "exit 3 when a term moved or a prediction changed"},
			&cli.Float64Flag{Name: "level", Destination: &o.Level, Value: o.Level,
				Usage: "family-wise error `LEVEL` at which a term counts as moved (Holm), between 0 and 1"},
			&cli.Float64Flag{Name: "tolerance", Destination: &o.Tolerance, Value: o.Tolerance,
				Usage: "relative `CHANGE` of a prediction that counts"},
			&cli.BoolFlag{Name: "all", Usage: "list unchanged terms too"},
			&cli.IntFlag{Name: "requests", Destination: &ref.Requests, Value: ref.Requests,
				Usage: "`N` requests of the reference workload; 0: no predictions"},
			&cli.Float64Flag{Name: "load", Destination: &ref.Load, Value: ref.Load,
				Usage: "offered load of the reference workload, a `SHARE` of the capacity under A"},
			&cli.Float64Flag{Name: "prompt-tokens", Destination: &ref.Prompt, Value: ref.Prompt,
				Usage: "mean prompt length `TOKENS` of the reference workload"},
			&cli.Float64Flag{Name: "output-tokens", Destination: &ref.Output, Value: ref.Output,
				Usage: "mean output length `TOKENS` of the reference workload"},
			&cli.Int64Flag{Name: "seed", Destination: &ref.Seed, Value: ref.Seed,
				Usage: "`SEED` of the reference workload's arrivals and lengths"},
		},
	}, nil, func(c *cli.Context, con *console) error { return runDiff(c, con, o, ref) })
}

// runDiff compares the two coefficient files that are the arguments, with their predictions on the
// reference workload, and prints the result.
func runDiff(c *cli.Context, con *console, opt export.DiffOptions, ref pipeline.Reference) error {
	if c.NArg() != 2 {
		return usagef("diff: got %d arguments, want two coefficient files", c.NArg())
	}
	if err := opt.Check(); err != nil {
		return usagef("%v", err)
	}
	ref.Done = c.Context.Done()
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
		opt.Bootstrap, err = pipeline.BootstrapTables(c.Context, data, a, c.Int64("seed"), con.warn, con.progress())
		if err != nil {
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

// reportDiff prints the document of diff. all prints unchanged terms too; fail makes a change an
// error with exit status 3.
func reportDiff(con *console, doc *export.DiffDoc, all, fail bool) error {
	con.table("Coefficients, significance from "+doc.Significance, cells{"model", "term", "unit", "A", "B", "B/A",
		"p", "moved"},
		termRows(doc.Terms, all))
	con.table("Predictions on the reference workload", cells{"configuration", "workload", "figure", "A ms", "B ms",
		"change"},
		predictionRows(doc.Predictions))
	for _, s := range doc.Settings {
		con.infof("%s", s)
	}
	if err := con.document(doc); err != nil {
		return err
	}
	for _, r := range doc.Reasons {
		con.infof("changed: %s", r)
	}
	if !doc.Changed {
		con.infof("no term moved significantly and no prediction changed by more than %g %%", 100*doc.Tolerance)
		return nil
	}
	if fail {
		return gatef("%d %s", len(doc.Reasons), plural(len(doc.Reasons), "change", "changes"))
	}
	return nil
}

// termRows returns the rows of the table of coefficients, without unchanged terms unless all is
// set.
func termRows(terms []export.TermDiff, all bool) []cells {
	var rows []cells
	for i := range terms {
		t := &terms[i]
		if t.Delta == 0 && !all {
			continue
		}
		moved := "unknown"
		if t.Significant != nil {
			moved = "no"
			if *t.Significant {
				moved = "yes"
			}
		}
		if t.Note != "" {
			moved += " (" + t.Note + ")"
		}
		rows = append(rows, cells{t.Model, t.Name, t.Unit, fmt.Sprintf("%.6g", t.A), fmt.Sprintf("%.6g", t.B),
			optional(t.Ratio, 1, "%.4f"), optional(t.P, 1, "%.2g"), moved})
	}
	return rows
}

// predictionRows returns the rows of the table of predictions, in ms.
func predictionRows(preds []export.Prediction) []cells {
	var rows []cells
	for _, p := range preds {
		rows = append(rows, cells{p.Scope, p.Workload, p.Metric, fmt.Sprintf("%.3f", p.AMs), fmt.Sprintf("%.3f", p.BMs),
			fmt.Sprintf("%+.2f %%", 100*p.Change)})
	}
	return rows
}
