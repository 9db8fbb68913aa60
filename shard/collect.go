package shard

// This file collects the results of a plan's tasks, or lists those that are open.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// Collected is the progress of a plan, and its documents once all tasks are done.
type Collected struct {
	Pass string   `json:"pass"` // with open tasks; "" when everything is done
	Open []string `json:"open"` // ids of its tasks that are not done
	Done int      `json:"done"` // number of its tasks that are done
	*pipeline.RunResult
}

// Collect reads the receipts of the plan in dir. It returns the open tasks of the first pass that
// has any. If no pass has, it writes the documents of the run to dir/out. Of o it uses only options
// that do not change a result (workers, figures, baseline, callbacks) and the filter of runs
// (o.Extract.Filter); all others are those of the plan. While one call runs, a second one returns
// an error.
func Collect(ctx context.Context, dir string, o pipeline.RunOptions) (*Collected, error) {
	plan, err := ReadPlan(dir)
	if err != nil {
		return nil, err
	}
	if err := plan.options(dir, &o); err != nil {
		return nil, err
	}
	if plan.Runs, err = plan.runsLeft(&o.Extract); err != nil {
		return nil, err
	}
	if err := files.CheckTree(o.Extract.Out); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Extract.Out, false)
	if err != nil {
		return nil, err
	}
	defer release()
	c := &collection{job: Job{Dir: dir}, plan: plan, o: &o, from: map[string]string{}}
	got, err := c.documents(ctx)
	if open := (*openPass)(nil); errors.As(err, &open) {
		return &Collected{Pass: open.Pass, Open: open.Open, Done: len(open.Receipts) - len(open.Open)}, nil
	}
	return &Collected{Open: []string{}, RunResult: got}, err
}

// collection is one call of Collect.
type collection struct {
	job     Job
	plan    *Plan
	o       *pipeline.RunOptions
	folders []string          // of the tables, in order of the run folders
	from    map[string]string // by run: the folder of its tables
	bad     []extract.Failed  // run folders without any usable run
}

// openPass is the error that ends a call of Collect at a pass with open tasks.
type openPass struct{ *State }

// Error returns the name of the pass and the number of open tasks.
func (e *openPass) Error() string {
	return fmt.Sprintf("pass %s: %d tasks are open", e.Pass, len(e.Open))
}

// documents writes the documents of the run and returns them, once every pass is done. It does what
// pipeline.Run does, with results of tasks in place of computations. Before it writes anything of
// the fit, it returns an openPass error if tasks are open.
func (c *collection) documents(ctx context.Context) (*pipeline.RunResult, error) {
	got := &pipeline.RunResult{}
	old, err := c.o.Validate.ReadBaseline()
	if err == nil {
		err = c.parse(ctx)
	}
	if err != nil {
		return got, err
	}
	if got.Extract, err = c.tables(ctx); err != nil {
		if got.Extract != nil {
			c.o.Tell(got.Extract)
		}
		return got, err
	}
	made, err := c.fit(got.Extract)
	if err != nil {
		return got, err
	}
	if err := c.job.Verify(ctx, []string{made}); err != nil {
		return got, err
	}
	if got.Fit, err = readFit(c.job.Folder(made)); err != nil {
		return got, err
	}
	in := pipeline.ValidationInput{Tables: pipeline.Tables{Extract: got.Extract, Dir: c.o.Extract.Out}, Fit: got.Fit, Old: old}
	if err := c.judge(ctx, &in, made); err != nil {
		return got, err
	}
	if err := c.job.Verify(ctx, c.folders); err != nil { // the tables, which were copied to dir/out
		return got, err
	}
	c.o.Tell(got.Extract)
	if err := pipeline.WriteFit(ctx, got.Fit, c.o.Fit); err != nil {
		return got, err
	}
	c.o.Tell(got.Fit)
	if got.Validation, err = pipeline.ValidateAndWrite(ctx, in, c.o.Validate); err != nil {
		return got, err
	}
	c.o.Tell(got.Validation)
	return got, nil
}

// finishedPass returns the receipts of a pass. It returns an openPass error if tasks are open.
func (c *collection) finishedPass(name string) (*State, error) {
	s, err := c.job.State(name)
	if err != nil {
		return nil, err
	}
	if c.o.Extract.Warn != nil {
		c.o.Extract.Warn(s.Findings)
	}
	if !s.Done() {
		return nil, &openPass{s}
	}
	return s, nil
}

// foldersOf offers the tasks of a pass (makes them available to processes, see Job.Offer) and
// returns the folders they wrote, by the task's name. It returns an openPass error if tasks are
// open.
func (c *collection) foldersOf(pass string, tasks []Task) (map[string]string, error) {
	if err := c.job.Offer(pass, tasks); err != nil {
		return nil, err
	}
	s, err := c.finishedPass(pass)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for i, r := range s.Receipts {
		folders[s.Names[i]] = r.Folder
	}
	return folders, nil
}

// parse offers the tasks that read parts of long inputs and, once they are done, those of the run
// folders.
func (c *collection) parse(ctx context.Context) error {
	stored := make([][]extract.Stored, len(c.plan.Runs))
	if !c.plan.isCut() {
		_, err := c.plan.offerTables(c.job, stored)
		return err
	}
	if _, err := c.plan.offerParse(c.job); err != nil {
		return err
	}
	s, err := c.finishedPass(passParse)
	if err != nil {
		return err
	}
	// The receipts are in the order of the runs and of the pieces of each.
	var runs []extract.Planned
	stored = nil
	at := 0
	for _, run := range c.plan.Runs {
		from := at
		at += len(run.Pieces)
		var folders []string
		for _, r := range s.Receipts[from:at] {
			if r != nil {
				folders = append(folders, r.Folder)
			}
		}
		if i := slices.IndexFunc(s.Bad[from:at], func(err error) bool { return err != nil }); i >= 0 {
			c.bad = append(c.bad, extract.Failed{ID: run.ID, Err: s.Bad[from+i]})
			continue
		}
		if err := c.job.Verify(ctx, folders, extract.SumFile); err != nil {
			return err
		}
		parts, err := extract.Gather(run.Pieces, folders, c.job.Folder)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		stored = append(stored, parts)
	}
	c.plan.Runs = runs
	_, err = c.plan.offerTables(c.job, stored)
	return err
}

// tables writes the tables and extract.json once their pass is done, and returns extract.json. If
// too many records are bad, it returns the document together with an error.
func (c *collection) tables(ctx context.Context) (*result.Extract, error) {
	s, err := c.finishedPass(passTables)
	if err != nil {
		return nil, err
	}
	var paths []string
	for i, r := range s.Receipts {
		if r == nil {
			c.bad = append(c.bad, extract.Failed{ID: s.Names[i], Err: s.Bad[i]})
			continue
		}
		c.folders = append(c.folders, r.Folder)
		paths = append(paths, c.job.Folder(r.Folder))
	}
	entries, err := readEntries(ctx, c.job, c.folders)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		for k := range e.Results {
			c.from[e.Results[k].ID] = c.folders[i]
		}
	}
	stat.SortStable(c.bad, func(a, b extract.Failed) int { return strings.Compare(a.ID, b.ID) })
	return extract.Assemble(entries, paths, c.bad, c.o.Extract.Options)
}

// fit offers the passes rows and fit, and returns the folder of fit.json.
func (c *collection) fit(ext *result.Extract) (string, error) {
	tasks, err := c.rowTasks(ext)
	if err != nil {
		return "", err
	}
	rows, err := c.foldersOf(passRows, tasks)
	if err != nil {
		return "", err
	}
	task, err := NewTask(passFit, "all runs", fitTask{
		Build:   c.plan.Build,
		Command: c.plan.Fit,
		Config:  c.plan.Config,
		Folders: c.folders,
		Rows:    rows,
	})
	if err != nil {
		return "", err
	}
	made, err := c.foldersOf(passFit, []Task{task})
	return made["all runs"], err
}

// rowTasks returns the tasks that make the rows of a fit: one for every run that takes part. A fit
// from requests has none, because it reads the tables itself.
func (c *collection) rowTasks(ext *result.Extract) (tasks []Task, err error) {
	o := c.o.Fit
	if err := o.ResolveFor(ext); err != nil {
		return nil, err
	}
	kind, err := o.KindFor(ext)
	if err != nil || kind.Name != fit.FromSteps.Name {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	t := pipeline.Tables{Extract: ext}
	sources, fo, err := fit.TakingPart(t.FitSources(), o.Options)
	if err != nil {
		return nil, err
	}
	for i := range sources {
		s := &sources[i]
		task, err := NewTask(passRows, s.ID, rowTask{
			Build:      c.plan.Build,
			Command:    command,
			OneConfig:  fo.OneConfig,
			Stride:     s.Stride,
			Folder:     c.from[s.ID],
			Run:        s.ID,
			Deployment: &s.Deployment,
		})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// judge offers the passes that validate the fit in the folder made, and stores in `in` the folders
// of their results.
func (c *collection) judge(ctx context.Context, in *pipeline.ValidationInput, made string) error {
	o := c.o.Validate // a copy, because pipeline.ValidateAndWrite resolves the options again, with warnings
	if _, err := o.ResolveFor(in.Fit, in.Extract); err != nil {
		return err
	}
	spec := judgeTask{Build: c.plan.Build, Command: o.Options.Command(), Fit: made}
	in.Sources = in.ValidateSources(in.Fit)
	// Steps: the rows of each run, thinned as one process would thin them, and the inspection of each run.
	strided := slices.Clone(in.Sources)
	validate.RowsJudged(in.Fit, strided, o.Options)
	stepped, err := c.eachRun(passSteps, spec, strided)
	if err != nil {
		return err
	}
	// Replays: the limit of an outlier needs the rows of all runs, so it has a pass of its own before them.
	replays := map[string]string{}
	if !o.StepsOnly {
		spec.Folders = c.folders
		spec.Steps = map[string]string{}
		for _, s := range strided {
			spec.Steps[s.ID] = stepped[s.ID]
		}
		task, err := NewTask(passLimits, "all runs", spec)
		if err != nil {
			return err
		}
		limits, err := c.foldersOf(passLimits, []Task{task})
		if err != nil {
			return err
		}
		spec.Limits = limits["all runs"]
		if replays, err = c.eachRun(passReplay, spec, strided); err != nil {
			return err
		}
	}
	for i := range in.Sources {
		s := &in.Sources[i]
		s.Steps = c.job.Folder(stepped[s.ID])
		if r, ok := replays[s.ID]; ok {
			s.Replay = c.job.Folder(r)
		}
	}
	in.Inspect = func(r *result.ExtractRun) (run result.InspectRun, err error) {
		return run, files.ReadJSON(filepath.Join(c.job.Folder(stepped[inspected+r.ID]), inspectionFile), &run)
	}
	return c.job.Verify(ctx, slices.Concat(slices.Sorted(maps.Values(stepped)), slices.Sorted(maps.Values(replays))))
}

// inspected is the prefix of the names of tasks that inspect a run.
const inspected = "inspection of "

// eachRun offers a task for every source, and in the pass steps a second one that inspects the run.
// It returns the folders of their results by the task's name: the run's id, in the second case with
// the prefix inspected.
func (c *collection) eachRun(pass string, spec judgeTask, sources []validate.Source) (map[string]string, error) {
	var tasks []Task
	steps := spec.Steps // of all runs; each task gets that of its own
	for i := range sources {
		spec.Run = sources[i].ID
		spec.Stride = sources[i].Stride
		spec.Folders = []string{c.from[spec.Run]}
		spec.Steps = nil
		if folder, ok := steps[spec.Run]; ok {
			spec.Steps = map[string]string{spec.Run: folder}
		}
		names := []string{spec.Run}
		if pass == passSteps {
			names = append(names, inspected+spec.Run)
		}
		for _, name := range names {
			spec.Inspect = name != spec.Run
			task, err := NewTask(pass, name, spec)
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, task)
		}
	}
	return c.foldersOf(pass, tasks)
}
