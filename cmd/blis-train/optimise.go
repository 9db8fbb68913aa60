package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/par"
)

func optimiseCommand() *cli.Command {
	o := cluster.DefaultOptimiseOptions()
	return &cli.Command{
		Name:  "optimise",
		Usage: "tune an admission policy, and its rivals with the same budget",
		Description: "Maximises goodput on train seeds while critical requests lose no more than 1 point, then judges on seeds and loads\n" +
			"it has not seen. Writes OUT/optimise.json; an interrupted search goes on from OUT/optimise.jsonl.\n\n" +
			"Example:\n   blis-train experiment optimise --policy predictive-seed --calls 30 -o out",
		Flags:  flags(flagsOf(o.Table()), []cli.Flag{outFlag("output `FOLDER`")}, talkFlags()),
		Action: withConsole(runOptimise),
	}
}

func runOptimise(c *cli.Context, con *console) error {
	if c.NArg() > 0 {
		return usagef("experiment optimise: got argument %q, want flags only", c.Args().First())
	}
	o := cluster.DefaultOptimiseOptions()
	o.Out, o.Special, o.Progress = c.String("out"), con.special, con.progress()
	if err := con.setOptions(c, o.Table()); err != nil {
		return err
	}
	par.WideHeap()
	doc, err := cluster.Optimise(c.Context, o)
	if err != nil {
		return err
	}
	con.warn(doc.Warnings)
	showOptimise(con, doc)
	return con.document(doc)
}

func showOptimise(con *console, d *cluster.OptimiseDoc) {
	var rows, transfer, knobs []cells
	for _, p := range d.Tuned {
		name, how := p.Policy, "as it is"
		if p.Method != "" {
			how = "tuned, " + p.Method
		}
		var words []string
		for _, k := range slices.Sorted(maps.Keys(p.Parameters)) {
			words = append(words, fmt.Sprintf("%s %.4g", k, p.Parameters[k]))
		}
		rows = append(rows, cells{name, how, percent(p.Gap), percent(p.Train), percent(p.Test), percent(p.Critical), strings.Join(words,
			", ")})
		for _, t := range p.Transfer {
			transfer = append(transfer, cells{name, t.To, percent(t.Goodput), percent(t.Always)})
		}
		for _, s := range p.Sensitivity {
			knobs = append(knobs, cells{name, s.Name, s.Lo, s.Hi, percent(s.Moves), percent(s.Band), s.Effect})
		}
	}
	con.table(fmt.Sprintf("goodput; always-admit %s, %d calls each", percent(d.Baseline), d.Calls), cells{"policy", "", "optimism gap",
		"train",
		"test", "critical", "parameters"}, rows)
	con.table("elsewhere", cells{"policy", "load", "goodput", "always-admit"}, transfer)
	con.table("what a parameter's full range moves", cells{"policy", "parameter", "from", "to", "goodput", "interval", "effect"}, knobs)
}
