package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// ledgerFlag is --ledger of fit, validate and run.
func ledgerFlag() cli.Flag {
	return &cli.StringFlag{Name: "ledger", Usage: "append one JSON line about this run to `FILE` (see log)"}
}

// appendLedger writes one line to the ledger when path is not empty. stage is
// fit, validate or run; head is the header of the document the stage wrote; fit
// and val may be nil; artifact is the file the stage is about, "" for none.
func (con *console) appendLedger(path, stage string, head result.Header, fit *result.Fit, val *result.Validation, artifact string) error {
	if path == "" {
		return nil
	}
	e := export.Entry{
		SchemaVersion: result.SchemaVersion, Time: time.Now().UTC().Format(time.RFC3339), Stage: stage,
		ToolVersion: head.ToolVersion, Command: head.Command, Inputs: head.Inputs, Headline: export.NewHeadline(fit, val),
	}
	if e.Inputs == nil {
		e.Inputs = []result.Input{}
	}
	if artifact != "" {
		_, in, err := con.readInput(artifact)
		if err != nil {
			return err
		}
		e.Artifact = &in
	}
	return export.Append(path, e)
}
