package main

// This file is the command run: extract, fit, validate and export in one go.

import (
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// runCommand returns the command run.
func runCommand() *cli.Command {
	o := pipeline.DefaultRunOptions()
	groups := runGroups(&o)
	return newCommand(&cli.Command{
		Name:      "run",
		ArgsUsage: "RUNDIR|PARENT...",
		Usage:     "extract, fit, validate and export in one go",
		Description: `Reads recordings (traces, a server's log, results of benchmarks), fits coefficients to them, simulates the
recorded requests with these coefficients, and compares. Writes coefficients.yaml, report.html, tables,
extract.json, fit.json and validation.json to the output folder. Exits 3 unless the verdict is pass; the
files are written either way.

Example:
   blis-train run testdata/traces/demo -o out
   blis-train run run1 --hardware H100 -o out`,
		Flags: slices.Concat(
			[]cli.Flag{
				&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: &o.Extract.Out,
					Usage: "output `FOLDER`"},
				&cli.StringFlag{Name: "hardware",
					Usage: "device `NAME` of folders without run.yaml, which is then written from the server's log"},
				configFlag(), ledgerFlag(), verboseFlag(),
			},
			flagsOf(groups, "max-bad-frac", "split-engines", "set", "workers", "force", "only", "exclude", "prior", "bootstraps",
				"from", "holdout", "shared-prefix-tokens",
				"gate", "for", "baseline"),
			verdictFlags(), ciFlags()),
	}, groups, func(c *cli.Context, con *console) error { return runRun(c, con, &o) })
}

// ownFit is why a run takes no key that names what to validate.
const ownFit = "it validates the fit that it makes; blis-train validate takes another"

// runGroups returns the groups of pipeline.yaml that a run reads, with its options.
func runGroups(o *pipeline.RunOptions) []group {
	stages := o.Flags() // of extract, fit and validate
	return []group{
		{name: "extract", options: stages[0]},
		{name: "fit", options: stages[1]},
		{name: "validate", options: stages[2], refused: map[string]string{"fit": ownFit, "coefficients": ownFit}},
		{name: "run"},
	}
}

// runRun extracts, fits, validates and exports the recordings in the arguments, and returns an
// error if the verdict is not accepted.
func runRun(c *cli.Context, con *console, o *pipeline.RunOptions) error {
	if o.Validate.ListGates {
		return listGates(con)
	}
	if err := con.prepareRun(c, o); err != nil {
		return err
	}
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.flushWarnings()
	got, err := pipeline.Run(c.Context, c.Args().Slice(), *o)
	if err != nil {
		return err
	}
	coefficients := filepath.Join(o.Extract.Out, folder.CoefficientsFile)
	if err := con.appendLedger(c.String("ledger"), "run", got.Fit.Header, got.Fit, got.Validation,
		coefficients); err != nil {
		return err
	}
	if err := con.writeVerdict(c, report.Input{Fit: got.Fit, Validation: got.Validation}); err != nil {
		return err
	}
	if err := con.document(got.Brief()); err != nil {
		return err
	}
	return verdictError(c, con, got.Validation)
}

// prepareRun checks that the recordings exist, reads pipeline.yaml, and sets the functions by which
// every stage prints its document.
func (con *console) prepareRun(c *cli.Context, o *pipeline.RunOptions) error {
	if c.NArg() == 0 {
		return usagef("%s: got no argument, want at least one run directory or parent of them", c.Command.Name)
	}
	if err := inputsExist(c.Args().Slice()...); err != nil {
		return err
	}
	if c.Command.Name == "run" {
		for _, dir := range c.Args().Slice() {
			if err := con.writeMissingRunYAML(c, dir); err != nil {
				return err
			}
		}
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	con.reportStages(c, o, o.Extract.Out)
	return nil
}

// reportStages sets in the options of every stage the functions that print its progress, its
// warnings and its document. out is the folder of the results.
func (con *console) reportStages(c *cli.Context, o *pipeline.RunOptions, out string) {
	con.completeExtract(c, &o.Extract)
	con.completeValidate(&o.Validate)
	o.Fit.Progress = con.progress()
	printExtracted := con.extractReporter()
	var fit *result.Fit // that of the second stage, which the third prints
	o.Done = func(doc any) {
		switch doc := doc.(type) {
		case *result.Extract:
			par.LeanHeap() // the stages that follow work on rows
			printExtracted(doc)
			con.flushWarnings()
		case *result.Fit:
			fit = doc
			showFit(con, doc) // its warnings are printed beside the verdict
		case *result.Validation:
			con.showValidation(doc, fit, out, filepath.Join(out, folder.CoefficientsFile))
		}
	}
}
