package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// ledgerFlag is --ledger of fit, validate and run.
func ledgerFlag() cli.Flag {
	return &cli.StringFlag{Name: "ledger", Usage: "append one JSON line about this run to `FILE` (see log)"}
}

// appendLedger writes one line to the file of --ledger, if one was given. stage
// is fit, validate or run; fit and val may be nil; out is the folder that holds
// the stage's files. The artifact is coefficients.yaml, or validation.json of a
// validate.
func appendLedger(c *cli.Context, stage string, fit *result.Fit, val *result.Validation, out string) error {
	path := c.String("ledger")
	if path == "" {
		return nil
	}
	e := export.LedgerEntry{
		SchemaVersion: result.SchemaVersion, Time: time.Now().UTC().Format(time.RFC3339), Stage: stage,
		ToolVersion: toolVersion, Inputs: []result.Input{}, Headline: export.NewHeadline(fit, val),
	}
	name := coefficientsFile
	switch {
	case stage == "validate" && val != nil:
		e.Command, e.Inputs, name = val.Command, val.Inputs, validationFile
	case fit != nil:
		e.Command, e.Inputs = fit.Command, fit.Inputs
	}
	_, in, err := readInput(filepath.Join(out, name))
	switch {
	case err == nil:
		e.Artifact = &in
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return export.Append(path, e)
}
