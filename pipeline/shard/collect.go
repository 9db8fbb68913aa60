package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/trace"
)

// Collected is how far the work of a plan is.
type Collected struct {
	Pass string   `json:"pass"` // the one at hand; "" when everything is done
	Open []string `json:"open"` // its tasks that are not done, by id
	Done int      `json:"done"` // how many are
	*pipeline.RunResult
}

// Collect reads the receipts of the plan in dir. While tasks of a pass are open it says
// which; after the last pass it writes the documents of the run to dir/out. o has what
// does not change a result: workers, figures, baseline, and who is told, and which runs to do
// without (o.Extract.Filter); the plan has the rest. Two at a time are refused.
func Collect(ctx context.Context, dir string, o pipeline.RunOptions) (*Collected, error) {
	plan, err := ReadPlan(dir)
	if err != nil {
		return nil, err
	}
	if err := plan.options(dir, &o); err != nil {
		return nil, err
	}
	if plan.Runs, err = plan.chosen(&o.Extract); err != nil {
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
	folders []string          // that tasks wrote the tables to, in order
	from    map[string]string // that of each run's tables
	bad     []extract.Failed  // run folders that give nothing
}

// openPass ends a collection: tasks of a pass are not done.
type openPass struct{ *State }

func (e *openPass) Error() string {
	return fmt.Sprintf("pass %s: %d tasks are open", e.Pass, len(e.Open))
}

// documents writes those of the run when every pass is done. It is pipeline.Run with the results of tasks in place
// of the work. Errors: openPass before anything of the fit is written.
func (c *collection) documents(ctx context.Context) (*pipeline.RunResult, error) {
	got := &pipeline.RunResult{}
	old, err := c.o.Validate.ReadBaseline()
	if err == nil {
		err = c.parse()
	}
	if err != nil {
		return got, err
	}
	if got.Extract, err = c.tables(); err != nil {
		if got.Extract != nil {
			c.o.Tell(got.Extract)
		}
		return got, err
	}
	made, err := c.fit(got.Extract)
	if err != nil {
		return got, err
	}
	if err := c.job.Verify([]string{made}); err != nil {
		return got, err
	}
	if got.Fit, err = readFit(c.job.Folder(made)); err != nil {
		return got, err
	}
	in := pipeline.Judged{Tables: pipeline.Tables{Extract: got.Extract, Dir: c.o.Extract.Out}, Fit: got.Fit, Old: old}
	if err := c.judge(&in, made); err != nil {
		return got, err
	}
	if err := c.job.Verify(c.folders); err != nil { // the tables, which stand in dir/out by now
		return got, err
	}
	c.o.Tell(got.Extract)
	if err := pipeline.WriteFit(ctx, got.Fit, c.o.Fit); err != nil {
		return got, err
	}
	c.o.Tell(got.Fit)
	if got.Validation, err = pipeline.Judge(ctx, in, c.o.Validate); err != nil {
		return got, err
	}
	c.o.Tell(got.Validation)
	return got, nil
}

// pass reads the receipts of a pass. Errors: openPass.
func (c *collection) pass(name string) (*State, error) {
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

// foldersOf are those that the tasks of a pass wrote, by name of the task.
func (c *collection) foldersOf(pass string, tasks []Task) (map[string]string, error) {
	if err := c.job.Offer(pass, tasks); err != nil {
		return nil, err
	}
	s, err := c.pass(pass)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for i, r := range s.Receipts {
		folders[s.Names[i]] = r.Folder
	}
	return folders, nil
}

// parse has long inputs read, and offers the run folders when they are.
func (c *collection) parse() error {
	stored := make([][]extract.Stored, len(c.plan.Runs))
	if !c.plan.isCut() {
		_, err := c.plan.offerTables(c.job, stored)
		return err
	}
	if _, err := c.plan.offerParse(c.job); err != nil {
		return err
	}
	s, err := c.pass(passParse)
	if err != nil {
		return err
	}
	var runs []extract.Planned
	stored, at := nil, 0
	for _, run := range c.plan.Runs {
		from := at
		at += len(run.Pieces)
		folders := stat.Map(stat.Filter(s.Receipts[from:at], func(r *Receipt) bool { return r != nil }), func(r *Receipt) string {
			return r.Folder
		})
		if i := slices.IndexFunc(s.Bad[from:at], func(err error) bool { return err != nil }); i >= 0 {
			c.bad = append(c.bad, extract.Failed{ID: run.ID, Err: s.Bad[from+i]})
			continue
		}
		if err := c.job.Verify(folders, extract.SumFile); err != nil {
			return err
		}
		parts, err := extract.Gather(run.Pieces, folders, c.job.Folder)
		if err != nil {
			return err
		}
		runs, stored = append(runs, run), append(stored, parts)
	}
	c.plan.Runs = runs
	_, err = c.plan.offerTables(c.job, stored)
	return err
}

// tables writes tables and extract.json when their pass is done. Its error may stand beside
// the document.
func (c *collection) tables() (*result.Extract, error) {
	s, err := c.pass(passTables)
	if err != nil {
		return nil, err
	}
	var paths []string
	for i, r := range s.Receipts {
		if r == nil {
			c.bad = append(c.bad, extract.Failed{ID: s.Names[i], Err: s.Bad[i]})
			continue
		}
		c.folders, paths = append(c.folders, r.Folder), append(paths, c.job.Folder(r.Folder))
	}
	entries, err := readEntries(c.job, c.folders)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		for k := range e.Results {
			c.from[e.Results[k].ID] = c.folders[i]
		}
	}
	slices.SortFunc(c.bad, func(a, b extract.Failed) int { return strings.Compare(a.ID, b.ID) })
	return extract.Assemble(entries, paths, c.bad, c.o.Extract.Options)
}

// fit has the runs fitted and returns the folder of the documents.
func (c *collection) fit(ext *result.Extract) (string, error) {
	tasks, err := c.rowTasks(ext)
	if err != nil {
		return "", err
	}
	rows, err := c.foldersOf(passRows, tasks)
	if err != nil {
		return "", err
	}
	task, err := NewTask(passFit, "all runs", fitTask{c.plan.Build, c.plan.Fit, c.plan.Config, c.folders, rows})
	if err != nil {
		return "", err
	}
	made, err := c.foldersOf(passFit, []Task{task})
	return made["all runs"], err
}

// rowTasks are the tasks of the rows of a fit: every run that takes part, or none when
// requests are fitted.
func (c *collection) rowTasks(ext *result.Extract) (tasks []Task, err error) {
	o := c.o.Fit
	if err := o.ResolveFor(ext); err != nil {
		return nil, err
	}
	requests, err := o.FromRequests(ext)
	if requests || err != nil {
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
		task, err := NewTask(passRows, s.ID, rowTask{c.plan.Build, command, fo.OneConfig, s.Stride, c.from[s.ID], s.ID, &s.Deployment})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// judge has the fit judged that stands in the folder made: in gets what the tasks found of every run.
func (c *collection) judge(in *pipeline.Judged, made string) error {
	o := c.o.Validate // pipeline.Judge resolves, and warns, itself
	if _, err := o.ResolveFor(in.Fit, in.Extract); err != nil {
		return err
	}
	spec := judgeTask{Build: c.plan.Build, Command: o.Options.Command(), Fit: made}
	in.Sources = in.ValidateSources(in.Fit)
	strided := slices.Clone(in.Sources)
	validate.RowsJudged(in.Fit, strided, o.Options)
	stepped, err := c.eachRun(passSteps, spec, strided)
	if err != nil {
		return err
	}
	replays := map[string]string{}
	if !o.StepsOnly {
		spec.Folders, spec.Steps = c.folders, map[string]string{}
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
	return c.job.Verify(slices.Concat(slices.Sorted(maps.Values(stepped)), slices.Sorted(maps.Values(replays))))
}

// inspected begins the names of tasks that inspect a run.
const inspected = "inspection of "

// eachRun has a task done for every source, and in the pass steps another one that inspects it; the
// folders are by name of the task, a run's id or that behind inspected.
func (c *collection) eachRun(pass string, spec judgeTask, sources []validate.Source) (map[string]string, error) {
	var tasks []Task
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
			task, err := NewTask(pass, name, spec)
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, task)
		}
	}
	return c.foldersOf(pass, tasks)
}

// File is one file that a task wrote, its name with slashes, below the task's folder.
type File = result.Input

// Receipt says that a task is done (spec#scale-out). Two processes that do the same task
// write the same receipt: it holds no time and no place.
type Receipt struct {
	Task   string `json:"task"`
	Folder string `json:"folder"` // of the files, below data
	Files  []File `json:"files"`  // by name
}

// Failure says that a task was tried and is not done.
type Failure struct {
	Task  Task   `json:"task"` // whole, so that it can be done again elsewhere
	Error string `json:"error"`
	Stack string `json:"stack,omitempty"` // of a panic
	// What the task reads cannot give what it should, as Error says under this code: nobody tries again.
	Refused trace.Code `json:"refused,omitempty"`
	Reason  string     `json:"reason,omitempty"` // Error without the code
	Hint    string     `json:"hint,omitempty"`
}

// Path is where a file of the receipt stands.
func (j Job) Path(r *Receipt, name string) string {
	return filepath.Join(j.Folder(r.Folder), filepath.FromSlash(name))
}

// Folder is where the folder of a receipt stands.
func (j Job) Folder(name string) string { return j.path(dataDir, name) }

// Do does a task: do writes files into a folder of its own, which get their names when all
// are complete. An error or a panic of do leaves a failure receipt; that of a context that
// ended does not.
func (j Job) Do(ctx context.Context, t *Task, do func(dir string) error) (*Receipt, error) {
	id := t.ID()
	if err := errors.Join(files.Folder(j.path(dataDir)), files.Folder(j.path(receiptsDir))); err != nil {
		return nil, err
	}
	dir, remove, err := files.Temporary(j.path(dataDir), halfPrefix+id+"-")
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := guarded(func() error { return do(dir) }); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errors.Join(err, j.fail(t, id, err))
	}
	r := &Receipt{Task: id}
	if r.Files, err = filesBelow(dir); err != nil {
		return nil, err
	}
	list, err := json.Marshal(r.Files)
	if err != nil {
		return nil, err
	}
	r.Folder = id + "-" + shortHash(list)
	if err := j.publish(dir, r); err != nil {
		return nil, err
	}
	name, err := r.name()
	if err != nil {
		return nil, err
	}
	return r, j.write(receiptsDir, name, r)
}

// halfPrefix begins the names of folders in which a task is being done.
const halfPrefix = ".half-"

// publish gives the folder its name, unless a twin was faster and its files are whole.
func (j Job) publish(dir string, r *Receipt) error {
	to := j.path(dataDir, r.Folder)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	err := os.Rename(dir, to)
	if err == nil || j.check(r, false) == nil {
		return nil
	}
	if _, missing := os.Stat(to); missing != nil {
		return err // what stands in the way is no folder of a twin
	}
	if err := os.RemoveAll(to); err != nil { // damaged: the name says what must be in it
		return err
	}
	return os.Rename(dir, to)
}

// name is the receipt's file without its ending: the task and a hash of the text.
func (r *Receipt) name() (string, error) {
	b, err := json.Marshal(r)
	return r.Task + "." + shortHash(b), err
}

// PanicError is a panic of a task.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Reading does work that reads the folders and verifies them meanwhile: what was made of
// damaged files counts for nothing. Errors: those of Verify before those of the work.
func (j Job) Reading(folders []string, work func() error) error {
	verified := make(chan error, 1)
	go func() { verified <- j.Verify(folders) }()
	err := guarded(work)
	if damaged := <-verified; damaged != nil {
		return damaged
	}
	return err
}

// guarded turns a panic into an error.
func guarded(do func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *par.Panic:
			err = &PanicError{v.Value, string(v.Stack)}
		default:
			err = &PanicError{v, string(debug.Stack())}
		}
	}()
	return do()
}

// fail writes a failure receipt under a name of its own.
func (j Job) fail(t *Task, id string, why error) error {
	f := Failure{Task: *t, Error: why.Error()}
	if p := (*PanicError)(nil); errors.As(why, &p) {
		f.Stack = p.Stack
	}
	if e := (*trace.Error)(nil); errors.As(why, &e) && e.Code != codeResultDamaged {
		f.Refused, f.Reason, f.Hint = e.Code, e.Msg, e.Hint
	}
	for n := 1; ; n++ {
		name := j.path(receiptsDir, fmt.Sprintf("%s.%s%d.json", id, failedPrefix, n))
		out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", " ")
		return errors.Join(enc.Encode(f), out.Close())
	}
}

// failedPrefix begins the second part of the name of a failure receipt.
const failedPrefix = "failed-"

// filesBelow lists the regular files of a folder by name.
func filesBelow(dir string) ([]File, error) {
	out := []File{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		f := File{Name: filepath.ToSlash(rel)}
		f.Bytes, f.SHA256, err = files.Hash(p)
		out = append(out, f)
		return err
	})
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// check reports what is wrong with files of a receipt, all of them or those named; nil: they
// have the size, and unless sized their content, that was written.
func (j Job) check(r *Receipt, sized bool, names ...string) error {
	for _, want := range r.Files {
		if len(names) > 0 && !slices.Contains(names, want.Name) {
			continue
		}
		name := j.Path(r, want.Name)
		st, err := os.Stat(name)
		if err != nil {
			return err
		}
		got := File{Name: want.Name, Bytes: st.Size(), SHA256: want.SHA256}
		if !sized && got == want {
			got.Bytes, got.SHA256, err = files.Hash(name)
		}
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: got %d bytes with SHA-256 %s, want %d with %s", name, got.Bytes, got.SHA256, want.Bytes, want.SHA256)
		}
	}
	return nil
}

// Verify reads files of folders that tasks wrote, all of them or those named: whoever uses
// them checks them, so that nobody reads everything. Where one is not what was written the
// receipt goes, so that the task is open again. Errors: result_damaged.
func (j Job) Verify(folders []string, names ...string) error {
	found, err := j.receipts()
	if err != nil {
		return err
	}
	return par.Try(context.Background(), 0, len(folders), func(i int) error {
		id := folders[i][:strings.LastIndex(folders[i], "-")]
		for _, name := range found[id] {
			r, err := j.receipt(name)
			if err != nil || r.Folder != folders[i] {
				continue
			}
			if err = j.check(r, false, names...); err == nil {
				return nil
			}
			return errors.Join(trace.Errorf(codeResultDamaged, "%v; task %s is open again", err, id), os.Remove(j.path(receiptsDir, name)))
		}
		return trace.Errorf(codeResultDamaged, "%s: no receipt names it any more", j.Folder(folders[i]))
	}, nil)
}
