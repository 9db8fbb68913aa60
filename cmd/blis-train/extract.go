package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

func extractCommand() *cli.Command {
	return &cli.Command{
		Usage:     "turn trace dumps into tables, accounting for every record",
		ArgsUsage: "RUNDIR|PARENT|GLOB|FILE|-...",
		Description: "Reads OTLP dumps of the collector's file exporter (JSON lines, protobuf, zstd, gzip, rotated sets),\n" +
			"KV events and client files, and writes OUT/tables/run=<id>/*.parquet and OUT/extract.json.\n" +
			"What a file is decides its content, not its name.\n\n" +
			"Example:\n   blis-train extract testdata/traces/real -o out --why-rejected",
		Flags:  flags(extractFlags(), []cli.Flag{outFlag("output `FOLDER`"), configFlag(), verboseFlag()}, talkFlags()),
		Action: withConsole(runExtract),
	}
}

func runExtract(c *cli.Context, con *console) error {
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("extract: got no run folder, want RUNDIR, PARENT, a dump or -")
	}
	if err := inputsExist(c.Args().Slice()...); err != nil {
		return err
	}
	o, err := con.extractOptions(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return listRuns(con, c.Args().Slice(), o)
	}
	defer con.release()
	done := con.extracted()
	doc, err := pipeline.Extract(c.Context, c.Args().Slice(), o)
	if doc == nil {
		return err
	}
	done(doc)
	con.release()
	if con.brief && err == nil {
		con.sayf("next: blis-train fit %s", files.Word(o.Out))
	}
	return errors.Join(err, con.document(doc))
}

// extractFlags are the options of an extraction.
func extractFlags() []cli.Flag {
	return append(stageFlags("extract"), &cli.BoolFlag{Name: "dry-run", Usage: "list what would be read and stop"})
}

// extractOptions are the options of an extraction as the command line has them.
func (con *console) extractOptions(c *cli.Context) (pipeline.ExtractOptions, error) {
	o := pipeline.DefaultExtractOptions()
	o.Out, o.Special, o.Config = c.String("out"), con.special, con.settings.record
	o.Stdin, o.Progress, o.Warn = c.App.Reader, con.progress(), con.warn
	return o, con.setOptions(c, o.Table())
}

// extracted returns what prints the account of an extraction that begins now.
func (con *console) extracted() func(*result.Extract) {
	start := time.Now()
	return func(doc *result.Extract) {
		printExtract(con, doc)
		for _, name := range doc.Removed {
			con.sayf("removed %s", name)
		}
		for _, name := range doc.Left {
			con.warn([]trace.Finding{trace.Findingf(extract.CodeNotOurs, "%s was left alone: this program did not write it as it stands", name)})
		}
		seconds, memory := time.Since(start).Seconds(), ""
		doc.Seconds = &seconds
		if rss := peakRSS(); rss.OK {
			doc.PeakRSSBytes, memory = &rss.V, fmt.Sprintf(", peak memory %.0f MB", float64(rss.V)/1e6)
		}
		if con.brief {
			con.extractedLine(doc)
			return
		}
		con.sayf("extracted %d %s: %s read in %.1f s%s", len(doc.Runs), plural(len(doc.Runs), "run", "runs"),
			amount(float64(doc.Totals.BytesRead), "B"), seconds, memory)
	}
}

// printExtract prints the account as tables and the warnings.
func printExtract(con *console, doc *result.Extract) {
	var rows []cells
	for i := range doc.Runs {
		r := &doc.Runs[i]
		rows = append(rows, cells{r.ID, r.Records.Read, r.Records.Kept, dropText(r.Records.Dropped), r.Steps.Summaries, r.Steps.Missing,
			r.Steps.WithSnapshots, optText(r.Steps.Reconstructed), optText(r.Steps.Unknown),
			r.Tables[table.Snapshots], r.Requests.Engine + r.Requests.APIOnly + r.Requests.Stock, r.Requests.Finished, r.Requests.Failed,
			r.Tables[table.KVEvents], r.Tables[table.ObservedRequests], r.Tables[table.Iterations]})
	}
	con.table("records: read = kept + dropped", cells{"run", "read", "kept", "dropped", "steps", "missing", "with snapshots",
		"rebuilt", "unknown", "snapshots", "requests", "succeeded", "failed", "kv events", "observed", "iterations"}, rows)
	var drops []cells
	for i := range doc.Runs {
		for _, e := range doc.Runs[i].Examples {
			drops = append(drops, cells{doc.Runs[i].ID, e.Reason, e.Place, clip(e.What, 90)})
		}
	}
	const most = 20
	if len(drops) > most {
		drops = drops[:most]
	}
	con.table("dropped, first examples (all: --why-rejected)", cells{"run", "reason", "place", "what"}, drops)
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].Warnings {
			f.Message = doc.Runs[i].ID + ": " + f.Message
			con.hold([]trace.Finding{f})
		}
	}
}

func dropText(dropped map[string]int64) string {
	var parts []string
	for reason, n := range dropped {
		parts = append(parts, fmt.Sprintf("%s %d", reason, n))
	}
	sort.Strings(parts)
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// optText is a number, or - where nobody knows.
func optText(n trace.Opt[int64]) string {
	if !n.OK {
		return "-"
	}
	return fmt.Sprint(n.V)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
