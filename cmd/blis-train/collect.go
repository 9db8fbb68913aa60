package main

// This file is the command collect, which prints the open tasks of a plan or writes its results.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/shard"
)

// collectCommand returns the command collect.
func collectCommand() *cli.Command {
	o := pipeline.DefaultRunOptions()
	groups := runGroups(&o)
	return newCommand(&cli.Command{
		Name:      "collect",
		ArgsUsage: "DIR",
		Usage:     "print which tasks of a plan are open, or write its results",
		Description: `Reads the receipts in DIR and prints the ids of open tasks, one per line. After the last pass it prints none,
writes the files of ` + "`blis-train run`" + ` to DIR/out and reports on stderr as run does; exit status 3 when a gate fails.

Example:
   blis-train collect job`,
		Flags: slices.Concat(
			[]cli.Flag{
				tasksDirFlag(), verboseFlag(),
				&cli.BoolFlag{Name: "gc",
					Usage: "only list what killed and repeated tasks left: half-written folders, folders without " +
						"a receipt, damaged receipts, failures of tasks that were done in the end"},
				&cli.BoolFlag{Name: "remove",
					Usage: "with --gc: remove what is listed; only when no task is under way, which has a " +
						"half-written folder too"},
			},
			flagsOf(groups, "workers", "exclude", "figures", "baseline"),
			verdictFlags(), ciFlags()),
	}, nil, func(c *cli.Context, con *console) error {
		o.Fit.Workers = o.Extract.Workers
		o.Validate.Workers = o.Extract.Workers
		return runCollect(c, con, &o)
	})
}

// runCollect prints the open tasks of a plan or, when none is open, writes the results and reports
// as run does.
func runCollect(c *cli.Context, con *console, o *pipeline.RunOptions) error {
	par.LeanHeap()
	// stdout has only the ids of open tasks: shell loops end when there are none. Everything for people is printed on
	// stderr.
	con.text = con.err
	con.outWidth = columns(con.err)
	if c.NArg() != 1 {
		return usagef("collect: got %d arguments, want one folder with a plan", c.NArg())
	}
	if c.Bool("gc") {
		return listGarbage(c, con)
	}
	if err := goesWith(c, "--gc", "remove"); err != nil {
		return err
	}
	con.reportStages(c, o, filepath.Join(c.Args().First(), "out"))
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.flushWarnings()
	got, err := shard.Collect(c.Context, c.Args().First(), *o)
	if err != nil {
		return err
	}
	if len(got.Open) > 0 {
		con.infof("pass %s: %d of %d tasks done", got.Pass, got.Done, got.Done+len(got.Open))
		return con.printOpenTasks(c, got.Open, got)
	}
	if err := con.printOpenTasks(c, nil, got); err != nil {
		return err
	}
	if err := con.writeVerdict(c, report.Input{Fit: got.Fit, Validation: got.Validation}); err != nil {
		return err
	}
	return verdictError(c, con, got.Validation)
}

// listGarbage prints the files and folders that tasks left in the folder of a plan, and removes
// them with --remove.
func listGarbage(c *cli.Context, con *console) error {
	garbage, err := shard.Job{Dir: c.Args().First()}.Garbage()
	if err != nil {
		return err
	}
	if con.json {
		err = con.document(append([]string{}, garbage...))
	}
	for _, name := range garbage {
		if !con.json {
			fmt.Fprintln(con.out, name)
		}
		if c.Bool("remove") && err == nil {
			err = os.RemoveAll(name)
		}
	}
	return err
}
