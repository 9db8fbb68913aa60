package main

// This file is the command log, which prints a ledger of fits and validations.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// logCommand returns the command log.
func logCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "log",
		ArgsUsage: "LEDGER",
		Usage:     "print a ledger as a table and a trend",
		Description: `Reads the file that fit, validate and run append to with --ledger FILE.

Example:
   blis-train log nightly.jsonl --last 30`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "last", Usage: "only the last `N` entries; 0: all"},
			&cli.StringFlag{Name: "stage", Usage: "only entries of this `STAGE`: " + trace.OneOf(ledgerStages)},
		},
	}, nil, runLog)
}

// runLog prints the ledger in the argument.
func runLog(c *cli.Context, con *console) error {
	if c.NArg() != 1 {
		return usagef("log: got %d arguments, want one ledger file", c.NArg())
	}
	if c.Int("last") < 0 {
		return usagef("--last: got %d, want 0 or more", c.Int("last"))
	}
	if s := c.String("stage"); s != "" && !slices.Contains(ledgerStages, s) {
		return usagef("--stage: got %q, want %s", s, trace.OneOf(ledgerStages))
	}
	return printLog(con, c.Args().First(), c.String("stage"), c.Int("last"))
}

// ledgerStages are the commands that append to a ledger.
var ledgerStages = []string{"fit", "validate", "run"}

// ledgerDoc is what log --json prints.
type ledgerDoc struct {
	SchemaVersion string         `json:"schema_version"`
	Entries       []export.Entry `json:"entries"`
	Trends        []export.Trend `json:"trends"`
	BadLines      []string       `json:"bad_lines"`
}

// printLog prints the entries of a ledger and their trends: the last entries of one stage, or all
// if stage is "" and last is 0.
func printLog(con *console, path, stage string, last int) error {
	f, err := files.Open(path, con.special)
	if err != nil {
		return err
	}
	defer f.Close()
	entries, bad := export.Read(f, path)
	doc := ledgerDoc{SchemaVersion: result.SchemaVersion, Entries: []export.Entry{}, Trends: []export.Trend{},
		BadLines: []string{}}
	for i, e := range bad {
		if i < 3 {
			con.message("warning", e.Error())
		}
		doc.BadLines = append(doc.BadLines, e.Error())
	}
	if n := len(bad) - 3; n > 0 {
		con.message("warning", fmt.Sprintf("%s: %d more lines are no ledger entries", path, n))
	}
	if len(entries) == 0 {
		return trace.Errorf(export.BadLedger, "%s: no entry",
			path).WithHint("blis-train fit OUT --ledger " + path + " appends one")
	}
	for _, e := range entries {
		if stage == "" || e.Stage == stage {
			doc.Entries = append(doc.Entries, e)
		}
	}
	if last > 0 && len(doc.Entries) > last {
		doc.Entries = doc.Entries[len(doc.Entries)-last:]
	}
	doc.Trends = export.Trends(doc.Entries)
	con.table("Ledger "+path, ledgerHeader, ledgerRows(doc.Entries))
	con.table("Trend, oldest to newest", cells{"figure", "n", "first", "last", "best", "per entry",
		""}, trendRows(doc.Trends))
	return con.document(doc)
}

// ledgerHeader are the headings of the table of entries.
var ledgerHeader = cells{"time (UTC)", "stage", "inputs", "configs", "rows", "MAPE", "const", "skill", "loco",
	"KS ttft/itl/e2e",
	"verdict", "artifact"}

// ledgerRows returns a row for each entry.
func ledgerRows(entries []export.Entry) []cells {
	rows := make([]cells, 0, len(entries))
	for _, e := range entries {
		h := e.Headline
		artifact := ""
		if e.Artifact != nil {
			artifact = e.Artifact.SHA256[:min(12, len(e.Artifact.SHA256))]
		}
		rows = append(rows, cells{e.Time, e.Stage, len(e.Inputs), h.Configs, h.Rows, hundredths(h.BetaMAPE),
			hundredths(h.BetaMAPEConst),
			decimals(h.BetaSkill), hundredths(h.LocoMedian),
			decimals(h.KSTTFT) + " / " + decimals(h.KSITL) + " / " + decimals(h.KSE2E), h.Verdict, artifact})
	}
	return rows
}

// hundredths returns a share in percent with two decimals, because changes from night to night are
// small.
func hundredths(v *float64) string { return optional(v, 100, "%.2f %%") }

// decimals returns a number as text with three decimals, or a dash if it is unknown (nil).
func decimals(v *float64) string { return optional(v, 1, "%.3f") }

// trendRows returns a row for each figure with its first, last and best value and its slope.
func trendRows(ts []export.Trend) []cells {
	var rows []cells
	for _, t := range ts {
		rows = append(rows, cells{t.Figure, t.N, fmt.Sprintf("%.4f", t.First), fmt.Sprintf("%.4f", t.Last),
			fmt.Sprintf("%.4f", t.Best), fmt.Sprintf("%+.5f", t.Slope), sparkline(t.Values)})
	}
	return rows
}

// sparkline returns the last 60 values as one character each.
func sparkline(v []float64) string {
	v = v[max(0, len(v)-60):]
	lo := math.Inf(1)
	hi := math.Inf(-1)
	for _, x := range v {
		lo = math.Min(lo, x)
		hi = math.Max(hi, x)
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, x := range v {
		i := 3 // the middle, if all are equal
		if hi > lo {
			i = int((x - lo) / (hi - lo) * float64(len(bars)-1))
		}
		b.WriteRune(bars[i])
	}
	return b.String()
}

// appendLedger appends one line to the ledger at path; it does nothing if path is "". stage is fit,
// validate or run. head is the header of the document that the stage wrote. fit and val may be nil.
// artifact is the file that the stage wrote; "" for none.
func (con *console) appendLedger(path, stage string, head result.Header, fit *result.Fit, val *result.Validation,
	artifact string) error {
	if path == "" {
		return nil
	}
	e := export.Entry{
		SchemaVersion: result.SchemaVersion, Time: time.Now().UTC().Format(time.RFC3339), Stage: stage,
		ToolVersion: head.ToolVersion, Command: head.Command, Inputs: head.Inputs,
		Headline: export.NewHeadline(fit, val),
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
