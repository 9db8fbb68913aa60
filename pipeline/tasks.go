package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/heap"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Passes, in order.
const (
	passParse  = "parse"  // reads parts of long inputs
	passTables = "tables" // extracts run folders
	passRows   = "rows"   // makes the rows of a fit
	passFit    = "fit"    // learns from all rows
	passSteps  = "steps"  // makes the rows that judge the fit, and inspects runs
	passLimits = "limits" // says over all of them what an outlier is
	passReplay = "replay" // replays the recordings
)

// parseTask is what a task of the pass parse reads.
type parseTask struct {
	Build   string        `json:"build"`
	Command string        `json:"command"`
	Piece   extract.Piece `json:"piece"`
}

// tableTask is what a task of the pass tables reads.
type tableTask struct {
	Build   string           `json:"build"`
	Command string           `json:"command"`
	Run     extract.Planned  `json:"run"`
	Stored  []extract.Stored `json:"stored,omitempty"` // with folders below data
}

// rowTask is what a task of the pass rows reads.
type rowTask struct {
	Build      string             `json:"build"`
	Command    string             `json:"command"`
	Lone       bool               `json:"lone"`   // all runs have one configuration
	Stride     int                `json:"stride"` // one row in so many is kept
	Folder     string             `json:"folder"` // that its tables' task wrote
	Run        string             `json:"run"`
	Deployment *deploy.Deployment `json:"deployment"`
}

// fitTask is what the task of the pass fit reads.
type fitTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Config  *result.Config    `json:"config,omitempty"`
	Folders []string          `json:"folders"` // of the tables, in order
	Rows    map[string]string `json:"rows"`    // folders by run
}

// reads are the folders whose every file the task reads.
func (t *fitTask) reads() []string {
	if len(t.Rows) == 0 { // requests teach
		return t.Folders
	}
	return slices.Sorted(maps.Values(t.Rows))
}

// judgeTask is what tasks of the other passes read.
type judgeTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Stride  int               `json:"stride"`            // one row of the run in so many is judged
	Fit     string            `json:"fit"`               // folder of the fit
	Folders []string          `json:"folders"`           // of the tables: of the run, or all in order
	Run     string            `json:"run,omitempty"`     // of the passes steps and replay
	Inspect bool              `json:"inspect,omitempty"` // of the pass steps: inspect the run in place of making its rows
	Steps   map[string]string `json:"steps,omitempty"`   // folders by run: of the passes limits and replay
	Limits  string            `json:"limits,omitempty"`  // folder of the limits: of the pass replay
}

// reads are the folders whose every file the task reads.
func (t *judgeTask) reads() []string {
	all := append(slices.Sorted(maps.Values(t.Steps)), t.Fit)
	if t.Run != "" {
		all = append(all, t.Folders...)
	}
	if t.Limits != "" {
		all = append(all, t.Limits)
	}
	return all
}

// Reading is what a task reads of inputs: a piece of one, a run folder, or neither.
type Reading struct {
	Piece  *extract.Piece
	Run    *extract.Planned
	Stored []string // inputs of the run, by name, whose records, read before, are read in their place
}

// ReadingOf is what a task of a plan reads of inputs.
func ReadingOf(t *shard.Task) (r Reading, err error) {
	switch t.Pass {
	case passParse:
		var spec parseTask
		err = json.Unmarshal(t.Spec, &spec)
		r.Piece = &spec.Piece
	case passTables:
		var spec tableTask
		err = json.Unmarshal(t.Spec, &spec)
		r.Run = &spec.Run
		for i := range spec.Stored {
			r.Stored = append(r.Stored, spec.Stored[i].Name)
		}
	}
	return r, err
}

// Files that tasks write beside tables and documents.
const (
	entryFile      = "entry.json"      // a run folder's part of extract.json
	inspectionFile = "inspection.json" // a run's part of the inspection
	limitsFile     = "limits.json"
)

// DoTask does one task of the plan in dir; id may be the beginning of one. Its files
// and its receipt are written when it is done.
func DoTask(ctx context.Context, dir, id string, workers int) (*shard.Receipt, error) {
	job := shard.Job{Dir: dir}
	t, err := job.Task(id)
	if err != nil {
		return nil, err
	}
	switch t.Pass {
	case passParse, passTables, passRows: // many of them share a machine
		heap.Task()
	default:
		heap.Lean()
	}
	return doOne(ctx, job, t, workers, nil)
}

// doOne does a task; p is the pool that it is done in, nil in a process of its own.
func doOne(ctx context.Context, job shard.Job, t *shard.Task, workers int, p *pool) (*shard.Receipt, error) {
	return job.Do(ctx, t, func(out string) error {
		switch t.Pass {
		case passParse:
			return doParse(ctx, t, out, workers)
		case passTables:
			return doTables(ctx, job, t, out, workers)
		case passRows:
			return doRows(job, t, out, workers)
		case passFit:
			return doFit(ctx, job, t, out, workers, p)
		case passSteps, passLimits, passReplay:
			return doJudge(ctx, job, t, out, workers, p)
		}
		return fmt.Errorf("task %s: got the pass %q, which this program does not know", t.ID(), t.Pass)
	})
}

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
		if err := job.Verify(s.Folders); err != nil {
			return err
		}
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
	return writeEntry(out, entry)
}

// writeEntry writes what a task found in a run folder, without the times of its files: of a twin on
// another machine, or of one before they had settled, they are others.
func writeEntry(dir string, e *extract.Entry) error {
	timeless := *e
	timeless.Stamps = nil
	return files.WriteJSON(filepath.Join(dir, entryFile), &timeless)
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
	o.Lone, o.Workers = spec.Lone, workers
	run := result.ExtractRun{ID: spec.Run, Deployment: spec.Deployment}
	src := fitSource(job.Folder(spec.Folder), &run)
	src.Stride = spec.Stride
	return job.Reading([]string{spec.Folder}, func() error { return fit.StoreRows(src, o.Options, out) })
}

// doFit fits the runs.
func doFit(ctx context.Context, job shard.Job, t *shard.Task, out string, workers int, p *pool) error {
	spec, o := fitTask{}, DefaultFitOptions()
	if p != nil {
		o.Progress = p.progress
	}
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	if err := errors.Join(o.learning().Parse(spec.Command, "fit"), o.resolved()); err != nil {
		return err
	}
	ext, at, err := readTables(job, spec.Folders)
	if err != nil {
		return err
	}
	o.Out, o.Workers, o.Config, o.tables, o.rows = out, workers, spec.Config, at, pathsOf(job, spec.Rows)
	return job.Reading(spec.reads(), func() error {
		_, err := fitFolder(ctx, "", ext, o)
		return err
	})
}

// doJudge does a task of the passes steps, limits and replay.
func doJudge(ctx context.Context, job shard.Job, t *shard.Task, out string, workers int, p *pool) error {
	var spec judgeTask
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	return job.Reading(spec.reads(), func() error { return spec.do(ctx, job, t.Pass, out, workers, p) })
}

// do does the task of a pass.
func (spec *judgeTask) do(ctx context.Context, job shard.Job, pass, out string, workers int, p *pool) error {
	o := DefaultValidateOptions()
	if err := o.Options.Table().Parse(spec.Command, "validate"); err != nil {
		return err
	}
	o.Workers = workers
	f, err := p.readFit(job.Folder(spec.Fit))
	if err != nil {
		return err
	}
	set, err := export.Native(f, nil)
	if err != nil {
		return err
	}
	ext, at, err := readTables(job, spec.Folders)
	if err != nil {
		return err
	}
	var sources []validate.Source
	for i := range ext.Runs {
		if r := &ext.Runs[i]; spec.Run == "" || spec.Run == r.ID {
			s := validateSource(at[r.ID], r, f)
			s.Steps, s.Stride = pathsOf(job, spec.Steps)[r.ID], spec.Stride
			sources = append(sources, s)
		}
	}
	switch pass {
	case passLimits:
		limits, err := validate.OutlierLimits(ctx, set, f, sources, o.Options)
		if err != nil {
			return err
		}
		return files.WriteJSON(filepath.Join(out, limitsFile), limits)
	case passReplay:
		var limits []validate.Limits
		if err := files.ReadJSON(filepath.Join(job.Folder(spec.Limits), limitsFile), &limits); err != nil {
			return err
		}
		sources[0].Load = begun(sources[0].Load)
		return validate.StoreReplay(ctx, set, f, sources[0], o.Options, limits, out)
	}
	if !spec.Inspect {
		return validate.StoreSteps(ctx, set, f, sources[0], o.Options, out)
	}
	inspection, err := inspectRun(at[spec.Run], ext.Run(spec.Run), f)
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(out, inspectionFile), inspection)
}

// begun is a load, to be called once, that is under way.
func begun(load func() (*trace.Run, *deploy.Deployment, error)) func() (*trace.Run, *deploy.Deployment, error) {
	type loaded struct {
		run *trace.Run
		dep *deploy.Deployment
		err error
		bad *par.Panic // raised where it is waited for
	}
	done := make(chan loaded, 1)
	go func() {
		var l loaded
		defer func() {
			if v := recover(); v != nil {
				l.bad = &par.Panic{Value: v, Stack: debug.Stack()}
			}
			done <- l
		}()
		l.run, l.dep, l.err = load()
	}()
	return func() (*trace.Run, *deploy.Deployment, error) {
		l := <-done
		if l.bad != nil {
			panic(l.bad)
		}
		return l.run, l.dep, l.err
	}
}

// readEntries reads what tasks found in run folders.
func readEntries(job shard.Job, folders []string) ([]*extract.Entry, error) {
	if err := job.Verify(folders, entryFile); err != nil {
		return nil, err
	}
	entries := make([]*extract.Entry, len(folders))
	for i, f := range folders {
		if err := files.ReadJSON(filepath.Join(job.Folder(f), entryFile), &entries[i]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// readTables is the document of run folders whose tables tasks wrote, and where each run's
// tables stand.
func readTables(job shard.Job, folders []string) (*result.Extract, map[string]string, error) {
	entries, err := readEntries(job, folders)
	if err != nil {
		return nil, nil, err
	}
	at := map[string]string{}
	for i, e := range entries {
		for k := range e.Results {
			at[e.Results[k].ID] = job.Folder(folders[i])
		}
	}
	ext, _ := extract.DocumentOf(entries, extract.Options{MaxBadFrac: 1})
	return ext, at, nil
}

// pathsOf are the paths of folders by run.
func pathsOf(job shard.Job, folders map[string]string) map[string]string {
	out := make(map[string]string, len(folders))
	for run, folder := range folders {
		out[run] = job.Folder(folder)
	}
	return out
}

// readFit reads the fit.json that a task wrote.
func readFit(dir string) (*result.Fit, error) {
	f := &result.Fit{}
	return f, files.ReadJSON(filepath.Join(dir, folder.FitFile), f)
}

// readInspection reads the inspection of a run that a task wrote.
func readInspection(dir string) (r result.InspectRun, err error) {
	return r, files.ReadJSON(filepath.Join(dir, inspectionFile), &r)
}
