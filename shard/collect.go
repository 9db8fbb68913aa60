package shard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
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
		runs = append(runs, run)
		stored = append(stored, parts)
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
		spec.Run = sources[i].ID
		spec.Stride = sources[i].Stride
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
		f.Refused = e.Code
		f.Reason = e.Msg
		f.Hint = e.Hint
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

// MaxFailures is how often a task may fail before it is a failure of the job.
const MaxFailures = 3

// State is how far a pass is.
type State struct {
	Pass     string
	Names    []string   // of the tasks, in order
	Receipts []*Receipt // by task, in order; nil for an open one
	Open     []string   // ids of tasks that are not done, in order
	Failed   int        // failure receipts of open tasks
	Bad      []error    // by task, in order; why one of a run folder, which is neither open nor done, failed for good
	Findings []trace.Finding
}

// Done reports that every task of the pass has its receipt, or will never have one.
func (s *State) Done() bool { return len(s.Open) == 0 }

// State reads the receipts of a pass and checks that the files they name are there, as long as
// they were; Verify reads them. The manifest is written when no receipt is missing. Errors: two
// receipts that differ for one task; one that failed more than MaxFailures times, or last for a
// reason that is in what it reads, unless it reads one run folder: others go on.
func (j Job) State(pass string) (*State, error) {
	list, err := j.list(pass)
	if err != nil {
		return nil, err
	}
	found, err := j.receipts()
	if err != nil {
		return nil, err
	}
	s := &State{Pass: pass, Receipts: make([]*Receipt, len(list)), Bad: make([]error, len(list))}
	isWhole := true
	for i, task := range list {
		var failed []string
		if s.Receipts[i], failed, err = s.receiptOf(j, task.ID, found[task.ID]); err != nil {
			return nil, err
		}
		s.Names = append(s.Names, task.Name)
		if s.Receipts[i] != nil {
			continue
		}
		isWhole, s.Failed, s.Bad[i] = false, s.Failed+len(failed), j.failure(failed)
		switch {
		case s.Bad[i] == nil:
			s.Open = append(s.Open, task.ID)
		case pass != passParse && pass != passTables:
			return nil, s.Bad[i]
		}
	}
	if !isWhole {
		return s, nil
	}
	return s, j.write(manifestsDir, pass, s.Receipts)
}

// receipts are the receipts' names by task: first of work done, then of failures.
func (j Job) receipts() (map[string][]string, error) {
	entries, err := os.ReadDir(j.path(receiptsDir))
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, e := range entries {
		parts := strings.Split(e.Name(), ".")
		if len(parts) == 3 && parts[2] == "json" {
			found[parts[0]] = append(found[parts[0]], e.Name())
		}
	}
	return found, nil
}

// receiptOf is the receipt of a task, nil without a whole one, and the names of those of its failures.
func (s *State) receiptOf(j Job, id string, names []string) (good *Receipt, failed []string, err error) {
	for _, name := range names {
		if strings.HasPrefix(name, id+"."+failedPrefix) {
			failed = append(failed, name)
			continue
		}
		r, err := j.receipt(name)
		if err == nil {
			err = j.check(r, true)
		}
		if err != nil {
			s.Findings = append(s.Findings, trace.Findingf(codeResultDamaged, "%s: %v", j.path(receiptsDir, name), err))
			continue
		}
		if good != nil {
			return nil, nil, trace.Errorf(codeReceiptsDiffer, "task %s was done twice with different files: %s", id, different(j, good, r))
		}
		good = r
	}
	return good, failed, nil
}

// receipt reads a receipt; its name says what its text must be.
func (j Job) receipt(name string) (*Receipt, error) {
	text, err := files.Read(j.path(receiptsDir, name), maxText, false)
	if err != nil {
		return nil, err
	}
	r := &Receipt{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("got no receipt: %w", err)
	}
	if want, err := r.name(); err != nil || want+".json" != name {
		return nil, fmt.Errorf("got the text of %s.json: the file was changed", want)
	}
	hash, isOurs := strings.CutPrefix(r.Folder, r.Task+"-")
	isOurs = isOurs && CheckID(r.Task) == nil && filepath.Base(hash) == hash && filepath.IsLocal(r.Folder)
	for _, f := range r.Files {
		isOurs = isOurs && filepath.IsLocal(filepath.FromSlash(f.Name))
	}
	if !isOurs {
		return nil, fmt.Errorf("got files of %q, want those below its folder of %s", r.Folder, dataDir)
	}
	return r, nil
}

// different names the first file in which two receipts differ, and both folders.
func different(j Job, a, b *Receipt) string {
	what := "their lists of files"
	for _, f := range a.Files {
		if !slices.Contains(b.Files, f) {
			what = f.Name
			break
		}
	}
	return fmt.Sprintf("%s in %s and %s", what, j.path(dataDir, a.Folder), j.path(dataDir, b.Folder))
}

// failure is the error of a task that failed too often, or once and for good; nil: it may be tried again.
func (j Job) failure(names []string) error {
	if len(names) == 0 {
		return nil
	}
	last := names[len(names)-1]
	f := Failure{}
	text, err := files.Read(j.path(receiptsDir, last), maxText, false)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	switch {
	case err != nil && len(names) <= MaxFailures: // half-written: it counts
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", j.path(receiptsDir, last), err)
	case f.Refused != "":
		return fmt.Errorf("%s %s: %w", f.Task.Pass, f.Task.Name, &trace.Error{Code: f.Refused, Msg: f.Reason, Hint: f.Hint})
	case len(names) <= MaxFailures:
		return nil
	}
	return trace.Errorf(codeTaskFailed, "%s %s failed %d times, last: %s (all of it in %s)", f.Task.Pass, f.Task.Name, len(names), f.Error,
		j.path(receiptsDir, last)).WithHint(fmt.Sprintf("do it here to see why: blis-train task %s %s", j.Dir, f.Task.ID()))
}

// Garbage lists what no pass needs: half-done folders, folders and receipts of tasks that
// no pass has, folders without a receipt, receipts that are damaged, failures of tasks that
// were done in the end. A task under way has a half-done folder too.
func (j Job) Garbage() ([]string, error) {
	wanted, err := j.offered()
	if err != nil {
		return nil, err
	}
	found, err := j.receipts()
	if err != nil {
		return nil, err
	}
	var garbage []string
	folders := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		var failed []string
		done := false
		for _, name := range found[id] {
			if strings.HasPrefix(name, id+"."+failedPrefix) {
				failed = append(failed, j.path(receiptsDir, name))
				continue
			}
			r, err := j.receipt(name)
			if err != nil || !wanted[id] {
				garbage = append(garbage, j.path(receiptsDir, name))
				continue
			}
			folders[r.Folder], done = true, true
		}
		if done || !wanted[id] {
			garbage = append(garbage, failed...)
		}
	}
	entries, err := os.ReadDir(j.path(dataDir))
	for _, e := range entries {
		if !folders[e.Name()] {
			garbage = append(garbage, j.path(dataDir, e.Name()))
		}
	}
	return garbage, err
}

// offered are the tasks of every pass.
func (j Job) offered() (map[string]bool, error) {
	entries, err := os.ReadDir(j.path(passesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: got no plan: %w", j.Dir, err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		list, err := j.list(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())))
		if err != nil {
			return nil, err
		}
		for _, task := range list {
			out[task.ID] = true
		}
	}
	return out, err
}

// Done is how many of the tasks have left a receipt, which nobody has read yet.
func (j Job) Done(ids []string) (n int, err error) {
	found, err := j.receipts()
	for _, id := range ids {
		if slices.ContainsFunc(found[id], func(name string) bool { return !strings.HasPrefix(name, id+"."+failedPrefix) }) {
			n++
		}
	}
	return n, err
}

// Folders of a job.
const (
	tasksDir     = "tasks"
	passesDir    = "passes"
	dataDir      = "data"
	receiptsDir  = "receipts"
	manifestsDir = "manifests"
)

var jobDirs = []string{tasksDir, passesDir, dataDir, receiptsDir, manifestsDir}

// hashDigits is how much of a SHA-256 stands in a name, hexadecimal digits.
const hashDigits = 16

// maxText is far above any task, receipt or manifest, bytes.
const maxText = 4 << 30

// Job is a folder of tasks and what was made of them.
type Job struct{ Dir string }

// Task is one piece of work.
type Task struct {
	Pass string          `json:"pass"` // of letters
	Name string          `json:"name"` // for people
	Spec json.RawMessage `json:"spec"` // what the pass's function reads
}

// NewTask is a task of a pass; spec is what its function reads, as JSON.
func NewTask(pass, name string, spec any) (Task, error) {
	b, err := json.Marshal(spec)
	return Task{Pass: pass, Name: name, Spec: b}, err
}

// text is the task as it stands in its file.
func (t *Task) text() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("shard: task %s: %v", t.Name, err)) // NewTask made the only part that could fail
	}
	return append(b, '\n')
}

// ID names the task, its receipts and its files: the pass and a hash of the text.
func (t *Task) ID() string { return t.Pass + "-" + shortHash(t.text()) }

func shortHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:hashDigits]
}

func (j Job) path(elem ...string) string { return filepath.Join(append([]string{j.Dir}, elem...)...) }

// Offer writes the tasks of a pass, in order. Tasks that were offered before keep their
// receipts.
func (j Job) Offer(pass string, tasks []Task) error {
	for _, dir := range jobDirs {
		if err := files.Folder(j.path(dir)); err != nil {
			return err
		}
	}
	list := make([]listed, len(tasks))
	for i := range tasks {
		list[i] = listed{tasks[i].ID(), tasks[i].Name}
	}
	there, err := names(j.path(tasksDir))
	if err != nil {
		return err
	}
	old, err := j.list(pass)
	isOld := err == nil && slices.Equal(old, list)
	for i := range tasks {
		if isOld && there[list[i].ID+".json"] {
			continue
		}
		if err := files.Write(j.path(tasksDir, list[i].ID+".json"), tasks[i].text()); err != nil {
			return err
		}
	}
	if isOld {
		return nil
	}
	return j.write(passesDir, pass, list)
}

// names are those in a folder.
func names(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	return stat.Keyed(entries, func(e os.DirEntry) (string, bool) { return e.Name(), true }), err
}

// taskID is what scripts hand to programs, and paths are made of: a pass and a hash, or its beginning.
var taskID = regexp.MustCompile(`^[a-z]+(-[0-9a-f]{0,16})?$`)

// CheckID refuses what is no id of a task and no beginning of one. Code: task_failed.
func CheckID(id string) error {
	if taskID.MatchString(id) {
		return nil
	}
	return trace.Errorf(codeTaskFailed, "got %q, want the id of a task, as tables-0a1b2c3d4e5f6071", id)
}

// listed is a task in the list of its pass.
type listed struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// write writes a JSON document of the job.
func (j Job) write(dir, name string, doc any) error {
	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return err
	}
	return files.Write(j.path(dir, name+".json"), append(b, '\n'))
}

// Task reads the task with an id, or with the only id that begins so.
func (j Job) Task(id string) (*Task, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	text, err := files.Read(j.path(tasksDir, id+".json"), maxText, false)
	if errors.Is(err, fs.ErrNotExist) {
		whole, err := j.complete(id)
		if err != nil {
			return nil, err
		}
		return j.Task(whole)
	}
	if err != nil {
		return nil, err
	}
	t := &Task{}
	if err := trace.UnmarshalJSON(text, t); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(tasksDir, id+".json"), err)
	}
	if t.ID() != id {
		return nil, trace.Errorf(codeTaskFailed, "%s: got the text of task %s: the file was changed", j.path(tasksDir, id+".json"), t.ID())
	}
	return t, nil
}

// complete is the only id that begins with prefix.
func (j Job) complete(prefix string) (string, error) {
	entries, err := os.ReadDir(j.path(tasksDir))
	if err != nil {
		return "", trace.Hinted(err, "blis-train plan RUN... -o "+j.Dir)
	}
	var found []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && strings.HasPrefix(id, prefix) {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		return "", trace.Errorf(codeTaskFailed, "%s: got task %q, which %d of its %d tasks begin with, want one", j.Dir, prefix, len(found),
			len(entries)).WithHint("blis-train collect " + j.Dir + " prints the ids of open tasks")
	}
	return found[0], nil
}

// list is the tasks of a pass, in order.
func (j Job) list(pass string) ([]listed, error) {
	text, err := files.Read(j.path(passesDir, pass+".json"), maxText, false)
	if err != nil {
		return nil, err
	}
	var list []listed
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
	}
	for _, t := range list {
		if err := CheckID(t.ID); err != nil {
			return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
		}
	}
	return list, nil
}
