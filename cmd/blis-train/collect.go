package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/shard"
)

func collectCommand() *cli.Command {
	o := pipeline.DefaultRunOptions()
	return &cli.Command{
		Usage:     "say which tasks of a plan are open, or write its results",
		ArgsUsage: "DIR",
		Description: "Reads the receipts in DIR and prints the ids of open tasks, one a line. When the last pass is done it prints\n" +
			"none, writes what `blis-train run` writes to DIR/out and says on stderr what that says; exit 3 when a gate fails.\n\n" +
			"Example:\n   blis-train collect job",
		Flags: flags([]cli.Flag{tasksDirFlag(), verboseFlag(),
			&cli.BoolFlag{Name: "gc", Usage: "only list what killed and repeated tasks left over: half-written folders, folders without a " +
				"receipt, damaged receipts, failures of tasks that were done in the end"},
			&cli.BoolFlag{Name: "remove", Usage: "with --gc: remove what is listed; only when no task is under way, which has a half-written " +
				"folder too"}},
			flagsOf(append(o.Extract.Table().Only("workers"), o.Validate.Table().Only("figures", "baseline")...)), judgeFlags(), ciFlags(),
			talkFlags()),
		Action: withConsole(runCollect),
	}
}

func runCollect(c *cli.Context, con *console) error {
	par.LeanHeap()
	con.text, con.outWidth = con.err, columns(con.err) // stdout is ids alone, for loops that end when there are none
	if c.NArg() != 1 {
		return usagef("collect: got %d arguments, want one folder with a plan", c.NArg())
	}
	if c.Bool("gc") {
		return listGarbage(c, con)
	}
	if err := goesWith(c, "--gc", "remove"); err != nil {
		return err
	}
	o, err := con.runOptions(c, filepath.Join(c.Args().First(), "out"))
	if err != nil {
		return err
	}
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.release()
	got, err := shard.Collect(c.Context, c.Args().First(), o)
	if err != nil {
		return err
	}
	if len(got.Open) > 0 {
		con.sayf("pass %s: %d of %d tasks done", got.Pass, got.Done, got.Done+len(got.Open))
		return con.tellOpen(c, got.Open, got)
	}
	if err := con.tellOpen(c, nil, got); err != nil {
		return err
	}
	if err := con.tellCI(c, got.Validation, got.Fit); err != nil {
		return err
	}
	return exitFor(c, con, got.Validation)
}

// listGarbage prints what tasks left over in the folder of a plan, and removes it with --remove.
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
