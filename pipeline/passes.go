package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
)

// Passes behind the rows, in order.
const (
	passFit    = "fit"    // learns from all rows
	passSteps  = "steps"  // makes the rows that judge the fit, and inspects
	passLimits = "limits" // says over all of them what an outlier is
	passReplay = "replay" // replays the recordings
)

// Files that these passes add to those of a run's documents.
const (
	inspectionFile = "inspection.json" // a run's part of the inspection
	limitsFile     = "limits.json"
)

// fitTask is what the task of the pass fit reads.
type fitTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Config  *result.Config    `json:"config,omitempty"`
	Folders []string          `json:"folders"` // of the tables, in order
	Rows    map[string]string `json:"rows"`    // folders by run
}

// judgeTask is what tasks of the other passes read.
type judgeTask struct {
	Build   string            `json:"build"`
	Command string            `json:"command"`
	Stride  int               `json:"stride"`           // one row in so many is judged
	Fit     string            `json:"fit"`              // folder of the fit
	Folders []string          `json:"folders"`          // of the tables: of the run, or all in order
	Run     string            `json:"run,omitempty"`    // of the passes steps and replay
	Steps   map[string]string `json:"steps,omitempty"`  // folders by run: of the passes limits and replay
	Limits  string            `json:"limits,omitempty"` // folder of the limits: of the pass replay
}

// judgement is where tasks left what they made of a run.
type judgement struct{ steps, replay string }

// pathsOf are the paths of folders by run.
func pathsOf(job shard.Job, folders map[string]string) map[string]string {
	out := make(map[string]string, len(folders))
	for run, folder := range folders {
		out[run] = job.Folder(folder)
	}
	return out
}

// readTables is the document of run folders whose tables tasks wrote, and where each run's
// tables stand.
func readTables(job shard.Job, folders []string) (*result.Extract, map[string]string, error) {
	var entries []*extract.Entry
	at := map[string]string{}
	for _, f := range folders {
		e, err := readEntry(job, &shard.Receipt{Folder: f})
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
		for i := range e.Results {
			at[e.Results[i].ID] = job.Folder(f)
		}
	}
	ext, _ := extract.DocumentOf(entries, extract.Options{MaxBadFrac: 1})
	return ext, at, nil
}

// doFit fits the runs.
func doFit(ctx context.Context, job shard.Job, t *shard.Task, out string, workers int) error {
	spec, o := fitTask{}, DefaultFitOptions()
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
	_, err = fitFolder(ctx, "", ext, o)
	return err
}

// doJudge does a task of the passes steps, limits and replay.
func doJudge(ctx context.Context, job shard.Job, t *shard.Task, out string, workers int) error {
	spec, o := judgeTask{}, DefaultValidateOptions()
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return err
	}
	if err := o.Options.Table().Parse(spec.Command, "validate"); err != nil {
		return err
	}
	o.Workers, o.Stride = workers, spec.Stride
	f, err := readFit(job.Folder(spec.Fit))
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
			s.Steps = pathsOf(job, spec.Steps)[r.ID]
			sources = append(sources, s)
		}
	}
	switch t.Pass {
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
		return validate.StoreReplay(ctx, set, f, sources[0], o.Options, limits, out)
	}
	if err := validate.StoreSteps(ctx, set, f, sources[0], o.Options, out); err != nil {
		return err
	}
	inspection, err := inspectRun(at[spec.Run], ext.Run(spec.Run), f)
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(out, inspectionFile), inspection)
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

// fit has the runs fitted.
func (c *collection) fit(rows map[string]string) (open *Collected, err error) {
	spec := fitTask{c.plan.Build, c.plan.Fit, c.plan.Config, c.folders, rows}
	task, err := shard.NewTask(passFit, "all runs", spec)
	if err != nil {
		return nil, err
	}
	made, open, err := c.folderOf(passFit, []shard.Task{task})
	if open != nil || err != nil {
		return open, err
	}
	c.made = made["all runs"]
	return nil, nil
}

// judge has the fit judged.
func (c *collection) judge() (open *Collected, err error) {
	f, err := readFit(c.job.Folder(c.made))
	if err != nil {
		return nil, err
	}
	o := c.o.Validate // what is settled here is settled again, and told, by who writes the document
	if _, err := o.settle(f, c.ext); err != nil {
		return nil, err
	}
	spec := judgeTask{Build: c.plan.Build, Command: o.Options.Command(), Fit: c.made}
	spec.Stride, _ = validate.StrideOf(f, validateSources("", c.ext, f), o.Options)
	steps, open, err := c.eachRun(passSteps, spec)
	if open != nil || err != nil {
		return open, err
	}
	replays := map[string]string{}
	if !o.StepsOnly {
		spec.Folders, spec.Steps = c.folders, steps
		task, err := shard.NewTask(passLimits, "all runs", spec)
		if err != nil {
			return nil, err
		}
		limits, open, err := c.folderOf(passLimits, []shard.Task{task})
		if open != nil || err != nil {
			return open, err
		}
		spec.Limits = limits["all runs"]
		if replays, open, err = c.eachRun(passReplay, spec); open != nil || err != nil {
			return open, err
		}
	}
	c.o.Validate.judged = map[string]judgement{}
	for run, folder := range pathsOf(c.job, steps) {
		d := judgement{steps: folder}
		if r, ok := replays[run]; ok {
			d.replay = c.job.Folder(r)
		}
		c.o.Validate.judged[run] = d
	}
	return nil, nil
}

// eachRun has a task done for every run; the folders are by run.
func (c *collection) eachRun(pass string, spec judgeTask) (map[string]string, *Collected, error) {
	var tasks []shard.Task
	steps := spec.Steps
	for i := range c.ext.Runs {
		spec.Run = c.ext.Runs[i].ID
		spec.Folders = []string{c.from[spec.Run]}
		if folder, ok := steps[spec.Run]; ok {
			spec.Steps = map[string]string{spec.Run: folder}
		}
		task, err := shard.NewTask(pass, spec.Run, spec)
		if err != nil {
			return nil, nil, err
		}
		tasks = append(tasks, task)
	}
	return c.folderOf(pass, tasks)
}

// folderOf offers the tasks of a pass; when they are done, the folders are by name of the task.
func (c *collection) folderOf(pass string, tasks []shard.Task) (folders map[string]string, open *Collected, err error) {
	if err := c.job.Offer(pass, tasks); err != nil {
		return nil, nil, err
	}
	s, open, err := c.pass(pass)
	if open != nil || err != nil {
		return nil, open, err
	}
	folders = map[string]string{}
	for i, r := range s.Receipts {
		folders[s.Names[i]] = r.Folder
	}
	return folders, nil, nil
}

// adopt gives the documents of a fit that stand in another folder their names in o.Out, and
// reads fit.json.
func (o *FitOptions) adopt(from string) (*result.Fit, error) {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		var text []byte
		if err == nil {
			text, err = files.Read(filepath.Join(from, e.Name()), folder.MaxInput, false)
		}
		if err == nil {
			err = files.Write(filepath.Join(o.Out, e.Name()), text)
		}
	}
	if err != nil {
		return nil, err
	}
	return readFit(from)
}
