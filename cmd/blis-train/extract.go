package main

// This file is the command extract, which turns recordings into tables.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// extractCommand returns the command extract.
func extractCommand() *cli.Command {
	o := pipeline.DefaultExtractOptions()
	groups := []group{{name: "extract", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "extract",
		ArgsUsage: "RUNDIR|PARENT|GLOB|FILE|-...",
		Usage:     "turn trace dumps into tables, accounting for every record",
		Description: `Reads OTLP dumps of the collector's file exporter (JSON lines, protobuf, zstd, gzip, rotated sets),
KV events and client files, and writes OUT/tables/run=ID/*.parquet and OUT/extract.json.
Files are recognised by content, not by name.

Example:
   blis-train extract testdata/traces/real -o out --why-rejected`,
		Flags: slices.Concat(groups[0].options, []cli.Flag{
			outFolderFlag(&o.Out), dryRunFlag(), configFlag(), verboseFlag(),
		}),
	}, groups, func(c *cli.Context, con *console) error { return runExtract(c, con, &o) })
}

// runExtract extracts the recordings in the arguments and prints the account; with --dry-run it
// only lists the runs.
func runExtract(c *cli.Context, con *console, o *pipeline.ExtractOptions) error {
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("extract: got no run folder, want RUNDIR, PARENT, a dump or -")
	}
	if err := inputsExist(c.Args().Slice()...); err != nil {
		return err
	}
	con.completeExtract(c, o)
	if c.Bool("dry-run") {
		return listRuns(con, c.Args().Slice(), *o)
	}
	defer con.flushWarnings()
	done := con.extractReporter()
	doc, err := pipeline.Extract(c.Context, c.Args().Slice(), *o)
	if doc == nil {
		return err
	}
	done(doc)
	con.flushWarnings()
	if con.brief && err == nil {
		con.infof("next: blis-train fit %s", files.Word(o.Out))
	}
	return errors.Join(err, con.document(doc))
}

// completeExtract sets the options of an extraction that are not flags: its standard input, and the
// functions to which it reports progress and warnings.
func (con *console) completeExtract(c *cli.Context, o *pipeline.ExtractOptions) {
	o.Special = con.special
	o.Config = con.settings.record
	o.Stdin = c.App.Reader
	o.Progress = con.progress()
	o.Warn = con.warn
}

// extractReporter returns a function that prints the account of an extraction. The extraction's
// time counts from now.
func (con *console) extractReporter() func(*result.Extract) {
	start := time.Now()
	return func(doc *result.Extract) {
		printExtract(con, doc)
		for _, name := range doc.Removed {
			con.infof("removed %s", name)
		}
		for _, name := range doc.Left {
			con.warn([]trace.Finding{trace.Findingf(extract.CodeNotOurs,
				"%s was left alone: it is not as this program wrote it", name)})
		}
		seconds := time.Since(start).Seconds()
		doc.Seconds = &seconds
		memory := ""
		if rss := peakRSS(); rss.OK {
			doc.PeakRSSBytes = &rss.V
			memory = fmt.Sprintf(", peak memory %.0f MB", float64(rss.V)/1e6)
		}
		if con.brief {
			con.printExtractSummary(doc)
			return
		}
		con.infof("extracted %d %s: %s read in %.1f s%s", len(doc.Runs), plural(len(doc.Runs), "run", "runs"),
			amount(float64(doc.Totals.BytesRead), "B"), seconds, memory)
	}
}

// printExtract prints the account of an extraction as tables, and its warnings.
func printExtract(con *console, doc *result.Extract) {
	con.showSections(report.Input{Extract: doc}, "data")
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].Warnings {
			f.Message = doc.Runs[i].ID + ": " + f.Message
			con.deferWarnings([]trace.Finding{f})
		}
	}
}

// dryRunDoc is what --dry-run --json prints.
type dryRunDoc struct {
	SchemaVersion string     `json:"schema_version"`
	Runs          []foundRun `json:"runs"`
}

// foundRun is a run folder that --dry-run found.
type foundRun struct {
	ID     string `json:"id"`
	Folder string `json:"folder"`
}

// listRuns prints the run folders that would be read, for --dry-run.
func listRuns(con *console, inputs []string, o pipeline.ExtractOptions) error {
	o.Out = cmp.Or(o.Out, ".") // nothing is written
	if err := o.Check(); err != nil {
		return usagef("%v", err)
	}
	runs, err := pipeline.Discover(inputs, &o)
	if err != nil {
		return err
	}
	doc := dryRunDoc{SchemaVersion: result.SchemaVersion, Runs: []foundRun{}}
	for _, r := range runs {
		doc.Runs = append(doc.Runs, foundRun{r.ID, r.Dir})
		if !con.json {
			fmt.Fprintf(con.out, "%s\t%s\n", files.Line(r.ID), files.Line(r.Dir))
		}
	}
	return con.document(doc)
}
