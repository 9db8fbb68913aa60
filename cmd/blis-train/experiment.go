package main

// This file is the command experiment, which compares policies on simulated clusters.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/par"
)

// experimentCommand returns the command experiment.
func experimentCommand() *cli.Command {
	return newParent(&cli.Command{
		Name:  "experiment",
		Usage: "compare admission and routing policies on simulated clusters, with verdicts",
		Description: `Runs configurations of a cluster on equal arrivals, seed by seed (docs/clusters.md).

Example:
   blis-train experiment isolation --preset seed --seeds 20 -o out`,
		Subcommands: []*cli.Command{isolationCommand(), optimiseCommand()},
	})
}

// isolationCommand returns the command experiment isolation.
func isolationCommand() *cli.Command {
	o := cluster.DefaultIsolationOptions()
	return newCommand(&cli.Command{
		Name:  "isolation",
		Usage: "compare thirteen configurations of a cluster, with controls, frontiers and four verdicts",
		Description: `Writes OUT/experiment.json and OUT/report.html. A verdict is CONFIRMED, REFUTED, INCONCLUSIVE or NOT TESTABLE.

Example:
   blis-train experiment isolation --preset groups --seeds 20 -o out`,
		Flags: append(o.Flags(), outFolderFlag(&o.Out)),
	}, nil, func(c *cli.Context, con *console) error {
		return runExperiment(c, con, &o, &o, cluster.Isolation, showIsolation)
	})
}

// optimiseCommand returns the command experiment optimise.
func optimiseCommand() *cli.Command {
	o := cluster.DefaultOptimiseOptions()
	return newCommand(&cli.Command{
		Name:  "optimise",
		Usage: "tune an admission policy, and its rivals with the same budget",
		Description: `Maximises goodput on train seeds while critical requests lose no more than 1 point, then compares on seeds and loads
it has not seen. Writes OUT/optimise.json; an interrupted search goes on from OUT/optimise.jsonl.

Example:
   blis-train experiment optimise --policy predictive-seed --calls 30 -o out`,
		Flags: append(o.Flags(), outFolderFlag(&o.Out)),
	}, nil, func(c *cli.Context, con *console) error {
		return runExperiment(c, con, &o.IsolationOptions, &o, cluster.Optimise, showOptimise)
	})
}

// runExperiment runs the experiment do with the options o and prints its document with show. base
// are the options that all experiments have, a part of o.
func runExperiment[O, D any](c *cli.Context, con *console, base *cluster.IsolationOptions, o *O,
	do func(context.Context, O) (D, error), show func(*console, D)) error {
	base.Special = con.special
	base.Progress = con.progress()
	par.WideHeap()
	doc, err := do(c.Context, *o)
	if err != nil {
		return err
	}
	show(con, doc)
	return con.document(doc)
}

// showIsolation prints the cells (configurations of the cluster), the frontiers and the verdicts of
// experiment isolation.
func showIsolation(con *console, d *cluster.Document) {
	con.warn(d.Warnings)
	var rows []cells
	for _, c := range d.Cells {
		f := func(key string) *float64 { return c.Figures[key].Mean }
		if c.Role != "frontier" { // the points of a frontier are in the report only
			no := ""
			if c.PublishedNumber > 0 {
				no = fmt.Sprint(c.PublishedNumber)
			}
			rows = append(rows,
				cells{no, c.Name, percent(f("goodput")), percent(f("admitted_share")), percent(f("miss_share")),
					percent(f("miss_share_by_rule")), decimals(f("ttft_p99_critical_ms")),
					decimals(f("ttft_p99_admitted_ms")),
					percent(f("cached_share")), percent(f("potential_share")), decimals(f("output_tokens_per_s"))})
		}
	}
	con.table(fmt.Sprintf("%s, %s: %.0f requests/s on %d engines, rho %.2f, %d seeds", d.Preset, d.Label, d.RateRPS,
		d.Instances, d.Rho,
		len(d.Seeds)),
		cells{"seed no.", "configuration", "goodput", "admitted", "missed of admitted", "floor apart",
			"P99 critical ms",
			"P99 admitted ms", "cached", "potential", "tokens/s"}, rows)
	rows = nil
	for _, c := range d.Controllers {
		rows = append(rows, cells{c.Kind, decimals(c.Goodput.Effect), decimals(c.Goodput.Lo),
			decimals(c.Goodput.Hi), percent(c.MedianAPE),
			percent(c.Bias), percent(c.Coverage), percent(c.ShadowAPE), percent(c.ShadowCov)})
	}
	con.table("predictive - always-admit, by the gate's coefficients", cells{"gate", "goodput", "lo", "hi",
		"median APE", "bias",
		"P90 coverage", "shadow APE", "shadow coverage"}, rows)
	rows = nil
	for _, r := range d.Reliability {
		rows = append(rows, cells{fmt.Sprintf("%.1f to %.1f", r.From, r.To), fmt.Sprintf("%.0f", r.Requests),
			percent(&r.Expected),
			percent(&r.Met)})
	}
	con.table("reliability of predictive: probability of meeting the target, admitted requests and shadows",
		cells{"estimated", "requests", "expected", "met"}, rows)
	if h := d.Hindsight; h != nil {
		con.infof("best threshold in hindsight: %s, goodput %s", h.Cell, percent(&h.Goodput))
	}
	rows = nil
	for _, p := range d.Published {
		rows = append(rows, cells{p.Cell, p.PublishedMs, p.Statistic, percent(p.Rejected), decimals(p.CriticalMs),
			decimals(p.PooledMs), decimals(p.WorstMs), percent(p.OurRejected)})
	}
	if len(rows) > 0 {
		con.table("published P99 of TTFT (ms) and ours, and the shares rejected", cells{"configuration", "published", "of",
			"published rejected", "critical", "all admitted", "worst instance", "rejected"}, rows)
	}
	rows = nil
	for _, v := range d.Verdicts {
		rows = append(rows, cells{v.ID, v.Verdict, v.Why})
	}
	con.table("verdicts", cells{"", "verdict", "why"}, rows)
}

// showOptimise prints the tuned policies, their parameters and their goodput on other loads.
func showOptimise(con *console, d *cluster.OptimiseDoc) {
	con.warn(d.Warnings)
	var rows, transfer, knobs []cells
	for _, p := range d.Tuned {
		name := p.Policy
		how := "as it is"
		if p.Method != "" {
			how = "tuned, " + p.Method
		}
		var words []string
		for _, name := range slices.Sorted(maps.Keys(p.Parameters)) {
			words = append(words, fmt.Sprintf("%s %.4g", name, p.Parameters[name]))
		}
		rows = append(rows, cells{name, how, percent(p.Gap), percent(p.Train), percent(p.Test), percent(p.Critical),
			strings.Join(words, ", ")})
		for _, t := range p.Transfer {
			goodput := percent(t.Goodput)
			if !t.Tested {
				goodput = "not tested: nothing needs rejecting"
			}
			seats := percent(t.Seats)
			if t.Seats != nil && *t.Seats < 1 {
				seats += ", not filled"
			}
			transfer = append(transfer, cells{name, t.To, goodput, percent(t.Always), seats})
		}
		for _, s := range p.Sensitivity {
			knobs = append(knobs, cells{name, s.Name, s.Lo, s.Hi, percent(s.Moves), percent(s.Band), s.Effect})
		}
	}
	con.table(fmt.Sprintf("goodput; always-admit %s, %d calls each", percent(d.Baseline), d.Calls), cells{"policy",
		"", "optimism gap",
		"train", "test", "critical", "parameters"}, rows)
	con.table("elsewhere", cells{"policy", "load", "goodput", "always-admit", "max_num_seqs in use"}, transfer)
	con.table("what a parameter's full range moves", cells{"policy", "parameter", "from", "to", "goodput",
		"interval", "effect"}, knobs)
}
