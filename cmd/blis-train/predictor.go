package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/result"
)

func predictorCommand() *cli.Command {
	return &cli.Command{
		Usage: "train latency predictors on traces, beside physics",
		Description: "TTFT and TPOT per request, from what a router can know when it decides. docs/predictor.md.\n\n" +
			"Example:\n   blis-train predictor fit testdata/traces/real -o out",
		Subcommands: []*cli.Command{predictorRowsCommand(), predictorFitCommand(), predictorEvaluateCommand()},
	}
}

func predictorRowsCommand() *cli.Command {
	return &cli.Command{
		Name:      "rows",
		Usage:     "make one row per request at its decision time",
		ArgsUsage: "OUT",
		Description: "Reads OUT/tables and OUT/extract.json and writes tables/run=<id>/predictor_rows.parquet and\n" +
			"predictor_rows.json: rows + drops = requests.\n\n" +
			"Example:\n   blis-train predictor rows out --features llmd --staleness-us 50000",
		Flags: flags(rowFlags(), []cli.Flag{
			outFlag("`FOLDER` of the results (default: OUT itself)"),
			&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
			&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
		}, talkFlags()),
		Action: withConsole(runPredictorRows),
	}
}

// rowFlags are the options of rows; fit and evaluate have them too.
func rowFlags() []cli.Flag {
	d := predictor.DefaultOptions()
	return []cli.Flag{
		&cli.StringFlag{Name: "target", Value: d.Target, Usage: "what is predicted, `LATENCY`: token (TTFT and TPOT) or e2e (the whole answer, " +
			"of servers that do not stream)"},
		&cli.StringFlag{Name: "features", Value: d.Features, Usage: "columns of the models, `SET`: llmd (those of llm-d) or full (what " +
			"traces offer beside them)"},
		&cli.StringFlag{Name: "state", Value: d.State, Usage: "`SOURCE` of waiting and running: auto, step or journey"},
		&cli.Int64Flag{Name: "staleness-us", Value: d.StalenessUs, Usage: "age of what is observable at the decision, `US`"},
		&cli.StringFlag{Name: "prefix-score", Value: d.PrefixScore, Usage: "`SCORE`: index (known at the decision) or actual (measured " +
			"afterwards)"},
		&cli.StringSliceFlag{Name: "shared-prefix-tokens", Usage: "first prompt tokens that requests share where nothing records it, " +
			"`[RUNGLOB=]TOKENS` (repeatable)"},
		&cli.BoolFlag{Name: "keep-saturated", Usage: "keep requests that arrived while the run was saturated"},
	}
}

func rowOptionsOf(c *cli.Context) (predictor.Options, error) {
	o := predictor.Options{Target: c.String("target"), Features: c.String("features"), State: c.String("state"),
		StalenessUs: c.Int64("staleness-us"), PrefixScore: c.String("prefix-score"), Shared: []string{}, KeepSaturated: c.Bool("keep-saturated")}
	if err := cmp.Or(o.Share(listOf(c, "shared-prefix-tokens")), o.Check()); err != nil {
		return o, &usageError{msg: err.Error()}
	}
	return o, nil
}

func runPredictorRows(c *cli.Context, con *console) error {
	if c.NArg() != 1 {
		return usagef("predictor rows: got %d arguments, want one extracted folder", c.NArg())
	}
	o, err := rowOptionsOf(c)
	if err != nil {
		return err
	}
	in := c.Args().First()
	out := outOr(c, in)
	if err := con.claim(out, c.Bool("force") || out == in); err != nil {
		return err
	}
	ext, err := readExtract(con, in)
	if err != nil {
		return err
	}
	doc, err := makeRows(c, con, in, out, ext, o)
	if err != nil {
		return err
	}
	return con.document(doc)
}

// outOr is -o, or the folder that was read.
func outOr(c *cli.Context, in string) string {
	if out := c.String("out"); out != "" {
		return out
	}
	return in
}

// makeRows makes the rows of every run and prints the account.
func makeRows(c *cli.Context, con *console, in, out string, ext *result.Extract, o predictor.Options) (*predictor.RowsDocument,
	error) {
	doc, err := predictor.MakeRows(c.Context, in, out, ext, o, con.header(predictor.RowsCommand(o)), c.Int("workers"))
	if err != nil {
		return nil, err
	}
	if err := writeDoc(filepath.Join(out, predictor.RowsFile), doc); err != nil {
		return nil, err
	}
	var rows []cells
	total, requests := 0, 0
	for _, r := range doc.Runs {
		con.warn(r.Warnings)
		a := r.Agreement
		agree := "-"
		if a.Rows > 0 {
			agree = fmt.Sprintf("%d of %d (%d between steps, %d inside schedule(), %d other)", a.Equal, a.Rows, a.Between, a.Inside, a.Other)
		}
		rows = append(rows, cells{r.ID, r.Requests, r.Rows, report.Reasons(r.Dropped), agree, percent(r.PrefixGap)})
		total, requests = total+r.Rows, requests+r.Requests
	}
	con.table("rows at the decision (requests = rows + dropped)", cells{"run", "requests", "rows", "dropped by reason",
		"step and journey state agree", "index - actual score"}, rows)
	con.sayf("predictor rows: %d rows of %d requests in %d %s", total, requests, len(doc.Runs), plural(len(doc.Runs), "run", "runs"))
	return doc, nil
}
