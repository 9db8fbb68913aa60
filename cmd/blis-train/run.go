package main

import (
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

func runRun(c *cli.Context, con *console) error {
	if done, err := listGates(c, con); done || err != nil {
		return err
	}
	o, err := con.newRun(c)
	if err != nil {
		return err
	}
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.release()
	got, err := pipeline.Run(c.Context, c.Args().Slice(), o)
	if err != nil {
		return err
	}
	coefficients := filepath.Join(o.Extract.Out, folder.CoefficientsFile)
	if err := con.appendLedger(c.String("ledger"), "run", got.Fit.Header, got.Fit, got.Validation, coefficients); err != nil {
		return err
	}
	if err := con.tellCI(c, got.Validation, got.Fit); err != nil {
		return err
	}
	if err := con.document(got.Brief()); err != nil {
		return err
	}
	return exitFor(c, con, got.Validation)
}

// newRun are the options of a run over the arguments, which are there.
func (con *console) newRun(c *cli.Context) (o pipeline.RunOptions, err error) {
	if c.NArg() == 0 {
		return o, usagef("%s: got no argument, want at least one run directory or parent of them", c.Command.Name)
	}
	if err := inputsExist(c.Args().Slice()...); err != nil {
		return o, err
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return o, err
	}
	return con.runOptions(c, c.String("out"))
}

// runOptions are the options of every stage as the command line has them, and
// what prints each stage's document, of results in out.
func (con *console) runOptions(c *cli.Context, out string) (pipeline.RunOptions, error) {
	o := pipeline.DefaultRunOptions()
	o.Validate = con.validateOptions()
	extract, err := con.extractOptions(c)
	if err != nil {
		return o, err
	}
	o.Extract, o.Fit.Progress = extract, con.progress()
	extracted := con.extracted()
	var fit *result.Fit
	o.Done = func(doc any) {
		switch doc := doc.(type) {
		case *result.Extract:
			par.LeanHeap()
			extracted(doc)
			con.release()
		case *result.Fit:
			fit = doc
			showFit(con, doc)
			con.release()
		case *result.Validation:
			con.judged(doc, fit, out)
		}
	}
	return o, con.setOptions(c, o.Tables()...)
}
