package main

// This file is the command plan, which divides a run into tasks for many processes.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/shard"
)

// planCommand returns the command plan.
func planCommand() *cli.Command {
	o := pipeline.DefaultRunOptions()
	groups := planGroups(&o)
	return newCommand(&cli.Command{
		Name:      "plan",
		ArgsUsage: "RUNDIR|PARENT...",
		Usage:     "cut a run into tasks for many processes",
		Description: `Writes DIR/plan.json and the first tasks. ` + "`blis-train task DIR TASK`" + ` does one of them, on any machine
that sees DIR and the recordings; ` + "`blis-train collect DIR`" + ` prints what is left, and at the end writes the
files of ` + "`blis-train run`" + `, byte for byte, to DIR/out.

Example:
   blis-train plan testdata/traces/demo -o job
   while open=$(blis-train collect job) && [ -n "$open" ]; do echo "$open" | xargs -n 1 -P 8 blis-train task job; done`,
		Flags: slices.Concat(
			[]cli.Flag{
				outFlag("`FOLDER` of plan, tasks, receipts and results"),
				configFlag(), tasksDirFlag(),
				&cli.Int64Flag{Name: "part-bytes", Value: shard.DefaultPartBytes,
					Usage: "read uncompressed inputs longer than `N` bytes in parts of that length; 0: whole"},
			},
			flagsOf(groups, "max-bad-frac", "split-engines", "set", "only", "exclude", "prior", "bootstraps", "max-rows", "from",
				"holdout", "shared-prefix-tokens", "gate", "for")),
	}, groups, func(c *cli.Context, con *console) error { return runPlan(c, con, &o) })
}

// planGroups returns the groups of pipeline.yaml that a plan reads, with its options.
func planGroups(o *pipeline.RunOptions) []group {
	groups := runGroups(o)
	for i := range groups { // where the tasks run decides these, and what they write is merged
		others := []string{"why-rejected", "workers", "force", "figures", "baseline", "save-gram", "dump-rows"}
		groups[i].options = option.Without(groups[i].options, others...)
		refused := maps.Clone(groups[i].refused)
		if refused == nil {
			refused = map[string]string{}
		}
		for _, key := range others {
			refused[key] = "its tasks run elsewhere, and write the files of blis-train run without options"
		}
		groups[i].refused = refused
	}
	return groups
}

// runPlan writes the plan of a run and prints its first tasks.
func runPlan(c *cli.Context, con *console, o *pipeline.RunOptions) error {
	dir := c.String("out")
	if err := con.prepareRun(c, o); err != nil {
		return err
	}
	if dir == "" {
		return usagef("missing -o FOLDER")
	}
	if list := c.String("tasks-dir"); list != "" {
		if err := files.CheckTree(list); err != nil {
			return err
		}
	}
	plan, err := shard.MakePlan(c.Args().Slice(), dir, c.Int64("part-bytes"), *o)
	if err != nil {
		return err
	}
	e := plan.Estimate(runtime.GOMAXPROCS(0))
	con.infof("planned %d %s, %s in %d tasks", len(plan.Runs), plural(len(plan.Runs), "run", "runs"),
		amount(float64(plan.Bytes), "B"), e.Tasks)
	con.infof("estimate: one process on the %d cores here %s; tasks on as many machines as there are %s, that of "+
		"the longest (%s, %s)",
		runtime.GOMAXPROCS(0), roughTime(e.HereS), roughTime(e.ThereS), files.Word(e.Longest.Name),
		amount(float64(e.Longest.Bytes), "B"))
	con.infof("recommended: %s", e.Advice)
	return con.printOpenTasks(c, plan.Open, plan)
}

// roughTime returns a duration in words.
func roughTime(seconds float64) string {
	switch {
	case seconds < 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 6000:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// printOpenTasks prints the ids of open tasks, one per line, and writes them as files to
// --tasks-dir. doc is what it prints with --json.
func (con *console) printOpenTasks(c *cli.Context, open []string, doc any) error {
	if list := c.String("tasks-dir"); list != "" {
		if err := writeTasks(list, open); err != nil {
			return err
		}
	}
	if con.json {
		return con.document(doc)
	}
	for _, id := range open {
		fmt.Fprintln(con.out, id)
	}
	return nil
}

// writeTasks writes the ids of open tasks as files 0, 1, 2, ... of a folder, and removes the
// further files of an earlier, longer list.
func writeTasks(dir string, open []string) error {
	if err := files.Folder(dir); err != nil {
		return err
	}
	for i, id := range open {
		if err := files.Write(filepath.Join(dir, strconv.Itoa(i)), []byte(id+"\n")); err != nil {
			return err
		}
	}
	for i := len(open); ; i++ {
		if err := os.Remove(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
	}
}
