package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/heap"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/result"
)

// DoTask does one task of the plan in dir; id may be the beginning of one. Its files
// and its receipt are written when it is done.
func DoTask(ctx context.Context, dir, id string, workers int) (*shard.Receipt, error) {
	job := shard.Job{Dir: dir}
	t, err := job.Task(id)
	if err != nil {
		return nil, err
	}
	if isSmall := slices.Contains([]string{passParse, passTables, passRows}, t.Pass); isSmall {
		heap.Task() // many of them share a machine
	} else {
		heap.Lean()
	}
	return job.Do(ctx, t, func(out string) error {
		switch t.Pass {
		case passParse:
			return doParse(ctx, t, out, workers)
		case passTables:
			return doTables(ctx, job, t, out, workers)
		case passRows:
			return doRows(job, t, out, workers)
		case passFit:
			return doFit(ctx, job, t, out, workers)
		case passSteps, passLimits, passReplay:
			return doJudge(ctx, job, t, out, workers)
		}
		return fmt.Errorf("task %s: got the pass %q, which this program does not know", id, t.Pass)
	})
}

// entryFile is a run folder's part of extract.json, beside its tables.
const entryFile = "entry.json"

// doParse reads a part of an input.
func doParse(ctx context.Context, t *shard.Task, out string, workers int) error {
	spec, o := parseTask{}, DefaultExtractOptions()
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	if err := o.Options.Table().Parse(spec.Command, "extract"); err != nil {
		return err
	}
	o.Out, o.Workers = out, workers
	defer extract.BoundMemory()()
	return spec.Piece.Do(ctx, o.Options)
}

// doTables extracts a run folder.
func doTables(ctx context.Context, job shard.Job, t *shard.Task, out string, workers int) error {
	spec, o := tableTask{}, DefaultExtractOptions()
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	if err := o.Options.Table().Parse(spec.Command, "extract"); err != nil {
		return err
	}
	o.Out, o.Workers = out, workers
	run, err := spec.Run.Open(o.Set)
	if err != nil {
		return err
	}
	for _, s := range spec.Stored {
		for i, folder := range s.Folders {
			s.Folders[i] = job.Folder(folder)
		}
		run.Stored = append(run.Stored, s)
	}
	defer extract.BoundMemory()()
	entry, err := extract.One(ctx, run, o.Options)
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(out, entryFile), entry)
}

// doRows makes the rows of an engine run.
func doRows(job shard.Job, t *shard.Task, out string, workers int) error {
	spec, o := rowTask{}, DefaultFitOptions()
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	if err := errors.Join(o.learning().Parse(spec.Command, "fit"), o.resolved()); err != nil {
		return err
	}
	o.Lone, o.Stride, o.Workers = spec.Lone, spec.Stride, workers
	run := result.ExtractRun{ID: spec.Run, Deployment: spec.Deployment}
	return fit.StoreRows(fitSource(job.Folder(spec.Folder), &run), o.Options, out)
}

// rowTasks are the tasks of the rows of a fit: every run that takes part, or none when
// requests are fitted. from is the folder of the tables by run.
func (p *Plan) rowTasks(ext *result.Extract, from map[string]string, o *FitOptions) (tasks []shard.Task, err error) {
	if err := o.settle(ext); err != nil {
		return nil, err
	}
	requests, err := o.fromRequests(ext)
	if requests || err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	sources, fo, err := fit.TakingPart(fitSources("", ext), o.Options)
	if err != nil {
		return nil, err
	}
	for i := range sources {
		s := &sources[i]
		task, err := shard.NewTask(passRows, s.ID, rowTask{p.Build, command, fo.Lone, fo.Stride, from[s.ID], s.ID, &s.Deployment})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// Collected is how far the work of a plan is.
type Collected struct {
	Pass string   `json:"pass"` // the one at hand; "" when everything is done
	Open []string `json:"open"` // its tasks that are not done, by id
	Done int      `json:"done"` // how many are
	*RunResult
}

// Collect reads the receipts of the plan in dir. While tasks of a pass are open it says
// which; after the last pass it writes the documents of the run to dir/out. o has what
// does not change a result: workers, figures, baseline, and who is told; the plan has the
// rest. Two at a time are refused.
func Collect(ctx context.Context, dir string, o RunOptions) (*Collected, error) {
	plan, err := ReadPlan(dir)
	if err != nil {
		return nil, err
	}
	if err := plan.options(dir, &o); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Extract.Out, false)
	if err != nil {
		return nil, err
	}
	defer release()
	c := &collection{job: shard.Job{Dir: dir}, plan: plan, o: &o}
	open, err := c.parse()
	if open != nil || err != nil {
		return open, err
	}
	open, err = c.tables()
	if open != nil || err != nil && c.ext == nil {
		return open, err
	}
	got := &Collected{Open: []string{}, RunResult: &RunResult{Extract: c.ext}}
	if err == nil {
		if open, err := c.learn(); open != nil || err != nil {
			return open, err
		}
	}
	return got, o.learn(ctx, got.RunResult, err)
}

// learn has the passes behind the tables done.
func (c *collection) learn() (open *Collected, err error) {
	rows, open, err := c.rows()
	if open == nil && err == nil {
		open, err = c.fit(rows)
	}
	if open == nil && err == nil {
		open, err = c.judge()
	}
	c.o.Fit.made = c.job.Folder(c.made)
	return open, err
}

// collection is one call of Collect.
type collection struct {
	job  shard.Job
	plan *Plan
	o    *RunOptions
	ext  *result.Extract
	// Folders that tasks wrote: those of the tables in order, those of a run's tables, that of the fit.
	folders []string
	from    map[string]string
	made    string
}

// pass reads the receipts of a pass; open is what is left to do, nil when nothing is.
func (c *collection) pass(name string) (s *shard.State, open *Collected, err error) {
	if s, err = c.job.State(name); err != nil {
		return nil, nil, err
	}
	if c.o.Extract.Warn != nil {
		c.o.Extract.Warn(s.Findings)
	}
	if !s.Done() {
		open = &Collected{Pass: name, Open: s.Open, Done: len(s.Receipts) - len(s.Open)}
	}
	return s, open, nil
}

// parse has long inputs read, and offers the run folders when they are.
func (c *collection) parse() (open *Collected, err error) {
	if !c.plan.isCut() {
		return nil, nil
	}
	s, open, err := c.pass(passParse)
	if open != nil || err != nil {
		return open, err
	}
	var folders []string
	for _, r := range s.Receipts {
		folders = append(folders, r.Folder)
	}
	stored := make([][]extract.Stored, len(c.plan.Runs))
	for i, run := range c.plan.Runs {
		n := len(run.Pieces)
		stored[i], err = extract.Gather(run.Pieces, folders[:n], c.job.Folder)
		if err != nil {
			return nil, err
		}
		folders = folders[n:]
	}
	_, err = c.plan.offerTables(c.job, stored)
	return nil, err
}

// tables writes tables and extract.json when their pass is done. Its error may stand beside
// the document.
func (c *collection) tables() (open *Collected, err error) {
	s, open, err := c.pass(passTables)
	if open != nil || err != nil {
		return open, err
	}
	var entries []*extract.Entry
	var paths []string
	c.from = map[string]string{}
	for _, r := range s.Receipts {
		e, err := readEntry(c.job, r)
		if err != nil {
			return nil, err
		}
		entries, paths, c.folders = append(entries, e), append(paths, c.job.Folder(r.Folder)), append(c.folders, r.Folder)
		for i := range e.Results {
			c.from[e.Results[i].ID] = r.Folder
		}
	}
	c.ext, err = extract.Assemble(entries, paths, c.o.Extract.Options)
	return nil, err
}

// rows has the rows of a fit made; their folders are by run.
func (c *collection) rows() (map[string]string, *Collected, error) {
	tasks, err := c.plan.rowTasks(c.ext, c.from, &c.o.Fit)
	if err != nil {
		return nil, nil, err
	}
	return c.folderOf(passRows, tasks)
}

// Count is one figure of a task, for those who watch it.
type Count struct {
	Name string // bytes, lines, kept, dropped_CODE
	N    int64
}

// CountsOf are the figures of a task that is done: what of its inputs was read, kept and
// dropped by reason; none but of the pass that reads recordings.
func CountsOf(dir string, r *shard.Receipt) ([]Count, error) {
	if !slices.ContainsFunc(r.Files, func(f shard.File) bool { return f.Name == entryFile }) {
		return nil, nil
	}
	e, err := readEntry(shard.Job{Dir: dir}, r)
	if err != nil {
		return nil, err
	}
	out := []Count{{"bytes", e.Bytes}, {"lines", e.Lines}}
	for i := range e.Results {
		records := &e.Results[i].Records
		out = append(out, Count{"kept", records.Kept})
		for _, code := range slices.Sorted(maps.Keys(records.Dropped)) {
			out = append(out, Count{"dropped_" + code, records.Dropped[code]})
		}
	}
	return out, nil
}

// readEntry reads what a task found in a run folder.
func readEntry(job shard.Job, r *shard.Receipt) (*extract.Entry, error) {
	e := &extract.Entry{}
	return e, files.ReadJSON(job.Path(r, entryFile), e)
}
