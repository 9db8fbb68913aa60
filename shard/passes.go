package shard

// This file lists the passes of a job, and what a task of each reads and writes.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Passes, in order.
const (
	passParse  = "parse"  // reads parts of long inputs
	passTables = "tables" // extracts run folders
	passRows   = "rows"   // makes the training rows
	passFit    = "fit"    // fits all rows
	passSteps  = "steps"  // makes the rows that validate the fit, and inspects runs
	passLimits = "limits" // sets, over the rows of all runs, the limit of an outlier
	passReplay = "replay" // replays the recordings
)

// parseTask is the spec of a task of the pass parse.
type parseTask struct {
	Build   string        `json:"build"`
	Command string        `json:"command"`
	Piece   extract.Piece `json:"piece"`
}

// tableTask is the spec of a task of the pass tables.
type tableTask struct {
	Build   string           `json:"build"`
	Command string           `json:"command"`
	Run     extract.Planned  `json:"run"`
	Stored  []extract.Stored `json:"stored,omitempty"` // with folders below data
}

// rowTask is the spec of a task of the pass rows.
type rowTask struct {
	Build      string             `json:"build"`
	Command    string             `json:"command"`
	OneConfig  bool               `json:"one_config"` // all runs have one configuration
	Stride     int                `json:"stride"`     // one row in so many is kept
	Folder     string             `json:"folder"`     // written by the task of its tables
	Run        string             `json:"run"`
	Deployment *deploy.Deployment `json:"deployment"`
}

// fitTask is the spec of the task of the pass fit.
type fitTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Config  *result.Config    `json:"config,omitempty"`
	Folders []string          `json:"folders"` // of the tables, in order
	Rows    map[string]string `json:"rows"`    // folders by run
}

// reads returns the folders that the task reads completely.
func (t *fitTask) reads() []string {
	if len(t.Rows) == 0 { // a fit from requests reads the tables
		return t.Folders
	}
	return slices.Sorted(maps.Values(t.Rows))
}

// judgeTask is the spec of a task of the passes steps, limits and replay.
type judgeTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Stride  int               `json:"stride"`            // one row of the run in so many is validated
	Fit     string            `json:"fit"`               // folder of the fit
	Folders []string          `json:"folders"`           // of the tables: of the run, or all in order
	Run     string            `json:"run,omitempty"`     // of the passes steps and replay
	Inspect bool              `json:"inspect,omitempty"` // of the pass steps: inspect the run in place of making its rows
	Steps   map[string]string `json:"steps,omitempty"`   // folders by run: of the passes limits and replay
	Limits  string            `json:"limits,omitempty"`  // folder of the limits: of the pass replay
}

// reads returns the folders that the task reads completely.
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

// Files that tasks write in addition to tables and documents.
const (
	entryFile      = "entry.json"      // a run folder's part of extract.json
	inspectionFile = "inspection.json" // a run's part of the inspection
	limitsFile     = "limits.json"     // outlier limits
)

// DoTask does one task of the plan in dir and returns its receipt; id may be the unambiguous
// beginning of an id. The task's files and its receipt appear when it is done.
func DoTask(ctx context.Context, dir, id string, workers int) (*Receipt, error) {
	job := Job{Dir: dir}
	t, err := job.Task(id)
	if err != nil {
		return nil, err
	}
	if err := t.checkBuild(buildName()); err != nil {
		return nil, err
	}
	if _, err := ReadPlan(dir); err != nil {
		return nil, err
	}
	switch t.Pass {
	case passParse, passTables, passRows: // many of these tasks may share one machine
		par.TaskHeap()
	default:
		par.LeanHeap()
	}
	return job.Do(ctx, t, func(out string) error {
		switch t.Pass {
		case passParse:
			return doParse(ctx, t, out, workers)
		case passTables:
			return doTables(ctx, job, t, out, workers)
		case passRows:
			return doRows(ctx, job, t, out, workers)
		case passFit:
			return doFit(ctx, job, t, out, workers)
		case passSteps, passLimits, passReplay:
			return doJudge(ctx, job, t, out, workers)
		}
		return fmt.Errorf("task %s: got the pass %q, which this program does not know", t.ID(), t.Pass)
	})
}

// checkBuild returns an error for a task that was planned by another build or for another
// architecture, because its result would differ from that of the other tasks in the last digits.
func (t *Task) checkBuild(here string) error {
	var planned struct {
		Build string `json:"build"`
	}
	if err := json.Unmarshal(t.Spec, &planned); err != nil {
		return fmt.Errorf("task %s: %w", t.ID(), err)
	}
	if planned.Build != here {
		return fmt.Errorf("task %s: planned by build %q, this is %q: use that build for every task of the plan",
			t.ID(), planned.Build, here)
	}
	return nil
}

// readSpec decodes the task's spec, and sets the options of the stage from the command line that
// the spec records.
func (t *Task) readSpec(spec any, command *string, flags []cli.Flag, stage string) error {
	if err := json.Unmarshal(t.Spec, spec); err != nil {
		return err
	}
	return option.Parse(*command, stage, flags)
}

// doParse does a task of the pass parse: it reads a part of an input.
func doParse(ctx context.Context, t *Task, out string, workers int) error {
	spec := parseTask{}
	o := pipeline.DefaultExtractOptions()
	if err := t.readSpec(&spec, &spec.Command, o.Options.Flags(), "extract"); err != nil {
		return err
	}
	o.Out, o.Workers = out, workers
	defer extract.BoundMemory()()
	return spec.Piece.Do(ctx, o.Options)
}

// doTables does a task of the pass tables: it extracts a run folder.
func doTables(ctx context.Context, job Job, t *Task, out string, workers int) error {
	spec := tableTask{}
	o := pipeline.DefaultExtractOptions()
	if err := t.readSpec(&spec, &spec.Command, o.Options.Flags(), "extract"); err != nil {
		return err
	}
	o.Out, o.Workers = out, workers
	run, err := spec.Run.Open(o.Set)
	if err != nil {
		return err
	}
	for _, s := range spec.Stored {
		if err := job.Verify(ctx, s.Folders); err != nil {
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
	// The modification times of the inputs are omitted, because a second process that does the
	// same task may see other times but has to write the same bytes.
	timeless := *entry
	timeless.Stamps = nil
	return files.WriteJSON(filepath.Join(out, entryFile), &timeless)
}

// doRows does a task of the pass rows: it makes the rows of an engine run.
func doRows(ctx context.Context, job Job, t *Task, out string, workers int) error {
	spec := rowTask{}
	o := pipeline.DefaultFitOptions()
	if err := errors.Join(t.readSpec(&spec, &spec.Command, o.LearningFlags(), "fit"), o.ResolveFor(nil)); err != nil {
		return err
	}
	o.OneConfig, o.Workers = spec.OneConfig, workers
	run := result.ExtractRun{ID: spec.Run, Deployment: spec.Deployment}
	src := pipeline.FitSource(table.RunDir(job.Folder(spec.Folder), spec.Run), &run)
	src.Stride = spec.Stride
	return job.Reading(ctx, []string{spec.Folder}, func() error { return fit.StoreRows(ctx, src, o.Options, out) })
}

// doFit does the task of the pass fit: it fits all runs.
func doFit(ctx context.Context, job Job, t *Task, out string, workers int) error {
	spec := fitTask{}
	o := pipeline.DefaultFitOptions()
	if err := t.readSpec(&spec, &spec.Command, o.LearningFlags(), "fit"); err != nil {
		return err
	}
	o.Out = out
	o.Workers = workers
	o.Config = spec.Config
	tables, err := readTables(ctx, job, spec.Folders)
	if err != nil {
		return err
	}
	sources := tables.FitSources()
	for i := range sources {
		if folder, ok := spec.Rows[sources[i].ID]; ok {
			sources[i].Rows = job.Folder(folder)
		}
	}
	return job.Reading(ctx, spec.reads(), func() error {
		doc, err := pipeline.FitDocument(ctx, tables, sources, o)
		if err != nil {
			return err
		}
		o.Form = pipeline.FormPhysics // Collect writes BLIS's form
		return pipeline.WriteFit(ctx, doc, o)
	})
}

// doJudge does a task of the passes steps, limits and replay.
func doJudge(ctx context.Context, job Job, t *Task, out string, workers int) error {
	spec := judgeTask{}
	o := pipeline.DefaultValidateOptions()
	if err := t.readSpec(&spec, &spec.Command, o.Options.Flags(), "validate"); err != nil {
		return err
	}
	o.Workers = workers
	return job.Reading(ctx, spec.reads(), func() error { return spec.doPass(ctx, job, t.Pass, out, o.Options) })
}

// doPass does the work of a judgeTask in one of the passes steps, limits and replay.
func (spec *judgeTask) doPass(ctx context.Context, job Job, pass, out string, o validate.Options) error {
	f, err := readFit(job.Folder(spec.Fit))
	if err != nil {
		return err
	}
	set, err := fit.Native(f, nil)
	if err != nil {
		return err
	}
	tables, err := readTables(ctx, job, spec.Folders)
	if err != nil {
		return err
	}
	var sources []validate.Source
	for _, s := range tables.ValidateSources(f) {
		if spec.Run == "" || spec.Run == s.ID {
			if folder, ok := spec.Steps[s.ID]; ok {
				s.Steps = job.Folder(folder)
			}
			s.Stride = spec.Stride
			sources = append(sources, s)
		}
	}
	switch pass {
	case passLimits:
		limits, err := validate.OutlierLimits(ctx, set, f, sources, o)
		if err != nil {
			return err
		}
		return files.WriteJSON(filepath.Join(out, limitsFile), limits)
	case passReplay:
		var limits []validate.Limits
		if err := files.ReadJSON(filepath.Join(job.Folder(spec.Limits), limitsFile), &limits); err != nil {
			return err
		}
		sources[0].Load = startLoading(sources[0].Load)
		return validate.StoreReplay(ctx, set, f, sources[0], o, limits, out)
	}
	if !spec.Inspect {
		return validate.StoreSteps(ctx, set, f, sources[0], o, out)
	}
	inspection, err := pipeline.InspectRun(ctx, table.RunDir(tables.At[spec.Run], spec.Run), tables.Run(spec.Run), f)
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(out, inspectionFile), inspection)
}

// startLoading calls load in the background and returns a function that waits for its result, to be
// called once.
func startLoading(load func() (*trace.Run, *deploy.Deployment, error)) func() (*trace.Run, *deploy.Deployment, error) {
	type loaded struct {
		run *trace.Run
		dep *deploy.Deployment
		err error
		bad *par.Panic // raised again in the goroutine that waits
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

// readEntries returns the parts of extract.json that tasks wrote.
func readEntries(ctx context.Context, job Job, folders []string) ([]*extract.Entry, error) {
	if err := job.Verify(ctx, folders, entryFile); err != nil {
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

// readTables returns the tables that tasks wrote, in the form of an extraction.
func readTables(ctx context.Context, job Job, folders []string) (pipeline.Tables, error) {
	entries, err := readEntries(ctx, job, folders)
	if err != nil {
		return pipeline.Tables{}, err
	}
	t := pipeline.Tables{At: map[string]string{}}
	for i, e := range entries {
		for k := range e.Results {
			t.At[e.Results[k].ID] = job.Folder(folders[i])
		}
	}
	t.Extract, _ = extract.DocumentOf(entries, extract.Options{}) // whether too much is bad is decided by Collect
	return t, nil
}

// readFit returns the fit.json that a task wrote.
func readFit(dir string) (*result.Fit, error) {
	f := &result.Fit{}
	return f, files.ReadJSON(filepath.Join(dir, folder.FitFile), f)
}
