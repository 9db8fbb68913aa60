package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/result"
)

// ciFlags are how a validation speaks to a CI server.
func ciFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "summary", Usage: "print the verdict in this `FORMAT` on stdout and nothing else there: markdown"},
		&cli.StringFlag{Name: "junit", Usage: "also write the gates to `FILE` as a JUnit report"},
	}
}

// checkSummary refuses unknown formats before any work, and keeps stdout for the summary.
func (con *console) checkSummary(c *cli.Context) error {
	switch format := c.String("summary"); {
	case format == "":
	case format != "markdown":
		return usagef("--summary: got %q, want markdown", format)
	case con.json:
		return usagef("--summary: got --json too, want one of them: both print on stdout")
	default:
		con.summary = true
	}
	return nil
}

// tellCI writes the summary and the JUnit report that were asked for.
func (con *console) tellCI(c *cli.Context, val *result.Validation, fit *result.Fit) error {
	if con.summary {
		fmt.Fprint(con.out, report.SummaryMarkdown(report.Input{Fit: fit, Validation: val, Changes: con.changes}))
	}
	if path := c.String("junit"); path != "" {
		text, err := report.JUnit(val, c.Bool("allow-insufficient"))
		if err != nil {
			return err
		}
		return files.Write(path, text)
	}
	return nil
}
