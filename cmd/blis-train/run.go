package main

import (
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/result"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "extract, fit, validate and export in one go",
		ArgsUsage: "RUNDIR|PARENT...",
		Description: "Writes tables, extract.json, fit.json, validation.json, coefficients.yaml and report.html\n" +
			"to the output folder. Exit 3 when a gate fails; every file is still written.\n\n" +
			"Example:\n   blis-train run testdata/traces/real -o out",
		Flags: uniqueFlags(flags([]cli.Flag{outFlag("output `FOLDER`"), configFlag(), ledgerFlag()},
			extractFlags(), fitFlags(), validateFlags(), workFlags(), talkFlags())),
		Action: runRun,
	}
}

// uniqueFlags keeps the first flag of each name: stages share some.
func uniqueFlags(all []cli.Flag) []cli.Flag {
	seen := map[string]bool{}
	var out []cli.Flag
	for _, f := range all {
		if name := f.Names()[0]; !seen[name] {
			seen[name] = true
			out = append(out, f)
		}
	}
	return out
}

func runRun(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("run: got no argument, want at least one run directory or parent of them")
	}
	if con.settings, err = applyConfig(c, con, c.String("config"), "extract", "fit", "validate", "run"); err != nil {
		return err
	}
	fo, err := fitOptions(c)
	if err != nil {
		return err
	}
	vo, err := validateOptions(c, con.settings)
	if err != nil {
		return err
	}
	ext, err := doExtract(c, con)
	if ext == nil || err != nil {
		return err
	}
	out := c.String("out")
	doc, err := doFit(c, con, out, out, ext, fo)
	if err != nil {
		return err
	}
	showFit(con, doc)
	val, err := doValidate(c, con, out, out, ext, doc, vo)
	if err != nil {
		return err
	}
	if err := writeArtifact(filepath.Join(out, coefficientsFile), doc, val); err != nil {
		return err
	}
	if err := con.appendLedger(c.String("ledger"), "run", doc.Header, doc, val, filepath.Join(out, coefficientsFile)); err != nil {
		return err
	}
	if err := con.document(runDocument{ext, doc, val}); err != nil {
		return err
	}
	return verdict(c, con, val)
}

// runDocument is what run --json prints.
type runDocument struct {
	Extract    *result.Extract    `json:"extract"`
	Fit        *result.Fit        `json:"fit"`
	Validation *result.Validation `json:"validation"`
}

// writeReport writes report.html from the documents, and the figures when asked.
func writeReport(c *cli.Context, dir string, in input.Input) error {
	html, err := pipeline.Report(in)
	if err != nil {
		return err
	}
	if err := files.Write(filepath.Join(dir, reportFile), html); err != nil {
		return err
	}
	figures := c.String("figures")
	if figures == "" {
		return nil
	}
	if err := os.MkdirAll(figures, 0o777); err != nil {
		return err
	}
	return report.Figures(func(name string, data []byte) error { return files.Write(filepath.Join(figures, name), data) }, in)
}
