package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/shard"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Usage:     "cut a run into tasks for many processes",
		ArgsUsage: "RUNDIR|PARENT...",
		Description: "Writes DIR/plan.json and the first tasks. `blis-train task DIR TASK` does one of them, on any machine\n" +
			"that sees DIR and the recordings; `blis-train collect DIR` says what is left, and at the end writes the\n" +
			"files of `blis-train run`, byte for byte, to DIR/out.\n\n" +
			"Example:\n   blis-train plan testdata/traces/demo -o job\n" +
			"   while open=$(blis-train collect job) && [ -n \"$open\" ]; do echo \"$open\" | xargs -n 1 -P 8 blis-train task job; done",
		Flags: flags([]cli.Flag{outFlag("`FOLDER` of plan, tasks, receipts and results"), configFlag(), tasksDirFlag(),
			&cli.Int64Flag{Name: "part-bytes", Usage: "read longer uncompressed inputs in parts of `N` bytes; 0: whole",
				Value: shard.DefaultPartBytes}},
			stageFlags("plan"), talkFlags()),
		Action: withConsole(runPlan),
	}
}

// tasksDirFlag is where open tasks are listed for schedulers.
func tasksDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "tasks-dir", Usage: "also write the open tasks to `DIR`, as files 0, 1, 2, ... that hold an id"}
}

func runPlan(c *cli.Context, con *console) error {
	dir := c.String("out")
	o, err := con.newRun(c)
	if err != nil {
		return err
	}
	if dir == "" {
		return usagef("missing -o FOLDER")
	}
	plan, err := shard.MakePlan(c.Args().Slice(), dir, c.Int64("part-bytes"), o)
	if err != nil {
		return err
	}
	con.sayPlan(plan)
	return con.tellOpen(c, plan.Open, plan)
}

// sayPlan prints what the work is, how long it may take and what to do with it.
func (con *console) sayPlan(p *shard.Plan) {
	e := p.Estimate(runtime.GOMAXPROCS(0))
	con.sayf("planned %d %s, %s in %d tasks", len(p.Runs), plural(len(p.Runs), "run", "runs"), amount(float64(p.Bytes), "B"), e.Tasks)
	con.sayf("estimate: one process on the %d cores here %s; tasks on as many machines as there are %s, that of the longest (%s, %s)",
		runtime.GOMAXPROCS(0), roughTime(e.HereS), roughTime(e.ThereS), files.Word(e.Longest.Name), amount(float64(e.Longest.Bytes), "B"))
	con.sayf("recommended: %s", e.Advice)
}

// roughTime is a duration in words.
func roughTime(seconds float64) string {
	switch {
	case seconds < 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 6000:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// tellOpen prints the open tasks, one a line, and lists them for a scheduler where that is
// asked for.
func (con *console) tellOpen(c *cli.Context, open []string, doc any) error {
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

// writeTasks lists tasks as files 0, 1, 2, ... of a folder, and removes the files of a
// longer list.
func writeTasks(dir string, open []string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
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
