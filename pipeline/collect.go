package pipeline

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
)

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
		open, err = c.fit()
		if open == nil && err == nil {
			open, err = c.judge()
		}
		if open != nil || err != nil {
			return open, err
		}
	}
	o.tell(c.ext)
	if err == nil {
		err = c.fitted(ctx, got.RunResult)
	}
	if err == nil {
		err = c.judged(ctx, got.RunResult)
	}
	return got, err
}

// collection is one call of Collect, or of Run.
type collection struct {
	job  shard.Job
	plan *Plan
	o    *RunOptions
	pool *pool // does what is open; nil: others do
	ext  *result.Extract
	// Folders that tasks wrote: those of the tables in order, those of a run's tables, that of the fit.
	folders []string
	from    map[string]string
	made    string
}

// fitted writes the fit.
func (c *collection) fitted(ctx context.Context, got *RunResult) (err error) {
	if got.Fit, err = c.o.Fit.adopt(c.job.Folder(c.made)); err != nil {
		return err
	}
	if err := c.o.Fit.writeForm(ctx); err != nil {
		return err
	}
	c.o.tell(got.Fit)
	return nil
}

// judged writes what the judges found, in coefficients.yaml too.
func (c *collection) judged(ctx context.Context, got *RunResult) (err error) {
	if got.Validation, err = validateFolder(ctx, c.o.Extract.Out, c.ext, got.Fit, c.o.Validate); err != nil {
		return err
	}
	c.o.tell(got.Validation)
	return nil
}

// pass reads the receipts of a pass; open is what is left to do, nil when nothing is.
func (c *collection) pass(name string) (s *shard.State, open *Collected, err error) {
	if s, err = c.job.State(name); err != nil {
		return nil, nil, err
	}
	if c.o.Extract.Warn != nil {
		c.o.Extract.Warn(s.Findings)
	}
	if !s.Done() && c.pool != nil {
		if err = c.pool.do(name, s.Open); err == nil {
			s, err = c.job.State(name)
		}
		if err != nil {
			return nil, nil, err
		}
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
	var folders, paths []string
	for _, r := range s.Receipts {
		folders, paths = append(folders, r.Folder), append(paths, c.job.Folder(r.Folder))
	}
	entries, err := readEntries(c.job, folders)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		c.extracted(e, folders[i])
	}
	c.ext, err = extract.Assemble(entries, paths, c.o.Extract.Options)
	return nil, err
}

// extracted takes up the tables of a run folder, which stand in the folder of a task.
func (c *collection) extracted(e *extract.Entry, folder string) {
	if c.folders = append(c.folders, folder); c.from == nil {
		c.from = map[string]string{}
	}
	for i := range e.Results {
		c.from[e.Results[i].ID] = folder
	}
}

// rows has the rows of a fit made; their folders are by run.
func (c *collection) rows() (map[string]string, *Collected, error) {
	tasks, err := c.plan.rowTasks(c.ext, c.from, &c.o.Fit)
	if err != nil {
		return nil, nil, err
	}
	return c.folderOf(passRows, tasks)
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
	sources, fo, err := fit.TakingPart(FitSources("", ext), o.Options)
	if err != nil {
		return nil, err
	}
	for i := range sources {
		s := &sources[i]
		task, err := shard.NewTask(passRows, s.ID, rowTask{p.Build, command, fo.Lone, s.Stride, from[s.ID], s.ID, &s.Deployment})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// fit has the runs fitted.
func (c *collection) fit() (open *Collected, err error) {
	rows, open, err := c.rows()
	if open != nil || err != nil {
		return open, err
	}
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

// judgement is where tasks left what they made of a run.
type judgement struct{ steps, inspection, replay string }

// judge has the fit judged.
func (c *collection) judge() (open *Collected, err error) {
	if err := c.job.Verify([]string{c.made}); err != nil {
		return nil, err
	}
	f, err := c.pool.readFit(c.job.Folder(c.made))
	if err != nil {
		return nil, err
	}
	o := c.o.Validate // what is settled here is settled again, and told, by who writes the document
	if _, err := o.settle(f, c.ext); err != nil {
		return nil, err
	}
	spec := judgeTask{Build: c.plan.Build, Command: o.Options.Command(), Fit: c.made}
	sources := validateSources("", c.ext, f)
	validate.RowsJudged(f, sources, o.Options)
	stepped, open, err := c.eachRun(passSteps, spec, sources)
	if open != nil || err != nil {
		return open, err
	}
	steps := map[string]string{}
	for i := range sources {
		steps[sources[i].ID] = stepped[sources[i].ID]
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
		if replays, open, err = c.eachRun(passReplay, spec, sources); open != nil || err != nil {
			return open, err
		}
	}
	if err := c.job.Verify(slices.Concat(slices.Sorted(maps.Values(stepped)), slices.Sorted(maps.Values(replays)))); err != nil {
		return nil, err
	}
	c.o.Validate.judged = map[string]judgement{}
	for run, folder := range pathsOf(c.job, steps) {
		d := judgement{steps: folder, inspection: c.job.Folder(stepped[inspected+run])}
		if r, ok := replays[run]; ok {
			d.replay = c.job.Folder(r)
		}
		c.o.Validate.judged[run] = d
	}
	return nil, nil
}

// inspected begins the names of tasks that inspect a run.
const inspected = "inspection of "

// eachRun has a task done for every source, and in the pass steps another one that inspects it; the
// folders are by name of the task, a run's id or that behind inspected.
func (c *collection) eachRun(pass string, spec judgeTask, sources []validate.Source) (map[string]string, *Collected, error) {
	var tasks []shard.Task
	steps := spec.Steps
	for i := range sources {
		spec.Run, spec.Stride = sources[i].ID, sources[i].Stride
		spec.Folders = []string{c.from[spec.Run]}
		if folder, ok := steps[spec.Run]; ok {
			spec.Steps = map[string]string{spec.Run: folder}
		}
		names := []string{spec.Run}
		if pass == passSteps {
			names = append(names, inspected+spec.Run)
		}
		for _, name := range names {
			spec.Inspect = name != spec.Run
			task, err := shard.NewTask(pass, name, spec)
			if err != nil {
				return nil, nil, err
			}
			tasks = append(tasks, task)
		}
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
	entries, err := readEntries(shard.Job{Dir: dir}, []string{r.Folder})
	if err != nil {
		return nil, err
	}
	e := entries[0]
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
