package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	prettytable "github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

func extractCommand() *cli.Command {
	return &cli.Command{
		Name:      "extract",
		Usage:     "turn trace dumps into tables, accounting for every record",
		ArgsUsage: "RUNDIR|PARENT|GLOB|FILE|-...",
		Description: "Reads OTLP dumps of the collector's file exporter (JSON lines, protobuf, zstd, gzip, rotated sets),\n" +
			"KV events and client files, and writes OUT/tables/run=<id>/*.parquet and OUT/extract.json.\n" +
			"What a file is decides its content, not its name.\n\n" +
			"Example:\n   blis-train extract testdata/traces/real -o out --why-rejected",
		Flags:  flags(extractFlags(), []cli.Flag{outFlag("output `FOLDER`"), configFlag()}, workFlags(), talkFlags()),
		Action: runExtract,
	}
}

// extractFlags are the options of an extraction; run has them too.
func extractFlags() []cli.Flag {
	d := extract.DefaultOptions()
	return []cli.Flag{
		&cli.StringFlag{Name: "format", Value: string(d.Format), Usage: "table `FORMAT`: parquet or arrow"},
		&cli.StringFlag{Name: "parser", Value: d.Parser, Usage: "fast, or pdata: OpenTelemetry's own decoder, the slow reference"},
		&cli.Float64Flag{Name: "max-bad-frac", Value: d.MaxBadFrac, Usage: "fail above this `SHARE` of unreadable input; 0 is any loss"},
		&cli.Int64Flag{Name: "max-line", Value: d.MaxLine, Usage: "drop lines and messages of more `BYTES`"},
		&cli.Int64Flag{Name: "max-expansion", Value: d.MaxExpansion, Usage: "stop a compressed file that grows beyond `N` times its size"},
		&cli.BoolFlag{Name: "split-engines", Usage: "accept several engines whose stamps overlap: <id>.1, <id>.2"},
		&cli.BoolFlag{Name: "why-rejected", Usage: "write every dropped record with its reason to OUT/rejected.jsonl"},
		&cli.StringSliceFlag{Name: "set", Usage: "supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)"},
	}
}

func extractOptions(c *cli.Context, con *console) extract.Options {
	o := extract.DefaultOptions()
	o.Out, o.Workers, o.Force = c.String("out"), c.Int("workers"), c.Bool("force")
	o.Format, o.Parser = table.Format(c.String("format")), c.String("parser")
	o.MaxBadFrac, o.MaxLine, o.MaxExpansion = c.Float64("max-bad-frac"), c.Int64("max-line"), c.Int64("max-expansion")
	o.SplitEngines, o.WhyRejected = c.Bool("split-engines"), c.Bool("why-rejected")
	o.Set, o.Config = c.StringSlice("set"), con.settings.record
	o.ToolVersion, o.Stdin, o.Progress, o.Batches = toolVersion, c.App.Reader, con.progress(), pipeline.Batches
	return o
}

func runExtract(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if con.settings, err = applyConfig(c, con, c.String("config"), "extract"); err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("extract: got no run folder, want RUNDIR, PARENT, a dump or -")
	}
	doc, err := doExtract(c, con)
	if doc == nil {
		return err
	}
	return errors.Join(err, con.document(doc))
}

// doExtract discovers the runs, extracts them and prints the account; run
// calls it too. The document is there beside an error when only the loss is
// too high.
func doExtract(c *cli.Context, con *console) (*result.Extract, error) {
	o := extractOptions(c, con)
	if o.Out == "" {
		return nil, usagef("missing -o OUT")
	}
	if err := o.Check(); err != nil {
		return nil, &usageError{msg: err.Error()}
	}
	runs, err := discover(c, c.Args().Slice())
	if err != nil {
		return nil, err
	}
	if c.Bool("dry-run") {
		return nil, listRuns(con, runs)
	}
	if err := con.claim(o.Out, o.Force); err != nil {
		return nil, err
	}
	start := time.Now()
	defer extract.BoundMemory()()
	doc, err := extract.Run(c.Context, runs, o)
	if doc == nil {
		return nil, err
	}
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
	con.sayf("extracted %d %s: %s read in %.1f s%s", len(doc.Runs), plural(len(doc.Runs), "run", "runs"),
		amount(float64(doc.Totals.BytesRead), "B"), seconds, memory)
	return doc, err
}

// printExtract prints the account as tables and the warnings.
func printExtract(con *console, doc *result.Extract) {
	var rows []prettytable.Row
	for i := range doc.Runs {
		r := &doc.Runs[i]
		rows = append(rows, prettytable.Row{r.ID, r.Records.Read, r.Records.Kept, dropText(r.Records.Dropped), r.Steps.Summaries, r.Steps.Missing, r.Steps.WithSnapshots, optText(r.Steps.Reconstructed), optText(r.Steps.Unknown),
			r.Tables[table.Snapshots], r.Requests.Engine + r.Requests.APIOnly + r.Requests.Stock, r.Requests.Finished, r.Requests.Failed, r.Tables[table.KVEvents], r.Tables[table.ObservedRequests]})
	}
	con.table("records: read = kept + dropped", prettytable.Row{"run", "read", "kept", "dropped", "steps", "missing", "with snapshots", "rebuilt", "unknown", "snapshots", "requests", "succeeded", "failed", "kv events", "observed"}, rows)
	var drops []prettytable.Row
	for i := range doc.Runs {
		for _, e := range doc.Runs[i].Examples {
			drops = append(drops, prettytable.Row{doc.Runs[i].ID, e.Reason, e.Place, clip(e.What, 90)})
		}
	}
	const most = 20
	if len(drops) > most {
		drops = drops[:most]
	}
	con.table("dropped, first examples (all: --why-rejected)", prettytable.Row{"run", "reason", "place", "what"}, drops)
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].Warnings {
			f.Message = doc.Runs[i].ID + ": " + f.Message
			con.warn(append(doc.Runs[i].Warnings[:0:0], f))
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
