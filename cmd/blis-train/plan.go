package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/shard"
)

func planCommand() *cli.Command {
	o := pipeline.DefaultRunOptions()
	groups := runGroups(&o)
	for i := range groups { // where the tasks run decides these
		groups[i].options = option.Without(groups[i].options, "why-rejected", "workers", "force", "figures", "baseline")
	}
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
			flagsOf(groups, "max-bad-frac", "set", "only", "exclude", "prior", "bootstraps", "max-rows", "from", "holdout", "gate", "for")),
	}, groups, func(c *cli.Context, con *console) error { return runPlan(c, con, &o) })
}

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
	// prints what the work is, how long it may take and what to do with it
	e := plan.Estimate(runtime.GOMAXPROCS(0))
	con.sayf("planned %d %s, %s in %d tasks", len(plan.Runs), plural(len(plan.Runs), "run", "runs"), amount(float64(plan.Bytes), "B"), e.Tasks)
	con.sayf("estimate: one process on the %d cores here %s; tasks on as many machines as there are %s, that of the longest (%s, %s)",
		runtime.GOMAXPROCS(0), roughTime(e.HereS), roughTime(e.ThereS), files.Word(e.Longest.Name), amount(float64(e.Longest.Bytes), "B"))
	con.sayf("recommended: %s", e.Advice)
	return con.tellOpen(c, plan.Open, plan)
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

func taskCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "task",
		ArgsUsage: "DIR TASK | DIR --tasks-dir LIST --share I/N",
		Usage:     "run one task of a plan, or one share of a list of tasks",
		Description: `Writes the task's files and then its receipt, under names that hold hashes of task and content. A task may be
run twice, or killed: only complete files get their final names. A task that fails leaves a receipt with the reason
and, for a bug of ours, the stack. In a job array, number I of N does every N-th task of the list.

Example:
   blis-train task job tables-0a1b`,
		Flags: []cli.Flag{
			workersFlag(),
			&cli.StringFlag{Name: "tasks-dir", Usage: "`LIST` of open tasks that plan or collect wrote"},
			&cli.StringFlag{Name: "share", Value: "0/1", Usage: "do this share of the tasks of the list: number `I/N` of an array, from 0"},
		},
	}, nil, runTasks)
}

func runTasks(c *cli.Context, con *console) error {
	var err error
	dir := c.Args().First()
	list := c.String("tasks-dir")
	var ids []string
	switch {
	case list != "" && c.NArg() == 1:
		ids, err = shareOf(list, c.String("share"))
	case list == "" && c.NArg() == 2:
		ids = []string{c.Args().Get(1)}
	default:
		return usagef("task: got %d arguments, want DIR TASK, or DIR with --tasks-dir", c.NArg())
	}
	if err != nil {
		return err
	}
	done := []*shard.Receipt{}
	var errs []error
	for _, id := range ids {
		r, err := shard.DoTask(c.Context, dir, id, c.Int("workers"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		con.sayf("task %s: %d files in %s", r.Task, len(r.Files), r.Folder)
		done = append(done, r)
	}
	return errors.Join(append(errs, con.document(done))...)
}

// shareOf are the tasks of a list that number i of n does, given as i/n.
func shareOf(list, share string) ([]string, error) {
	a, b, _ := strings.Cut(share, "/")
	i, errI := strconv.Atoi(a)
	n, errN := strconv.Atoi(b)
	if errI != nil || errN != nil || i < 0 || i >= n {
		return nil, usagef("--share: got %q, want I/N with 0 <= I < N", share)
	}
	if _, err := os.Stat(list); err != nil {
		return nil, fmt.Errorf("--tasks-dir: %w", err)
	}
	var ids []string
	for ; ; i += n {
		text, err := files.ReadAll(filepath.Join(list, strconv.Itoa(i)))
		if errors.Is(err, fs.ErrNotExist) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		id := strings.TrimSpace(string(text))
		if err := shard.CheckID(id); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(list, strconv.Itoa(i)), err)
		}
		ids = append(ids, id)
	}
}

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
					Usage: "only list what killed and repeated tasks left: half-written folders, folders without a receipt, damaged " +
						"receipts, failures of tasks that were done in the end"},
				&cli.BoolFlag{Name: "remove",
					Usage: "with --gc: remove what is listed; only when no task is under way, which has a half-written folder too"},
			},
			flagsOf(groups, "workers", "exclude", "figures", "baseline"),
			verdictFlags(), ciFlags()),
	}, nil, func(c *cli.Context, con *console) error {
		o.Fit.Workers = o.Extract.Workers
		o.Validate.Workers = o.Extract.Workers
		return runCollect(c, con, &o)
	})
}

func runCollect(c *cli.Context, con *console, o *pipeline.RunOptions) error {
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
	con.reportStages(c, o, filepath.Join(c.Args().First(), "out"))
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.release()
	got, err := shard.Collect(c.Context, c.Args().First(), *o)
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
