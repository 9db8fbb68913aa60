package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestEstimateOfAPlan: the cost on one machine and on many, and what is recommended from a terabyte on.
func TestEstimateOfAPlan(t *testing.T) {
	sized := func(bytes ...int64) (out []extract.Sized) {
		for i, n := range bytes {
			out = append(out, extract.Sized{Kind: "traces", Name: fmt.Sprint(i), Bytes: n})
		}
		return out
	}
	p := &Plan{Bytes: 1e12, Open: []string{"a", "b", "c"}, Runs: []extract.Planned{{ID: "x", Inputs: sized(100, 700)}, {ID: "y", Inputs: sized(500, 400)}}}
	want := Estimate{Tasks: 3, HereS: 41e-9 * 1e12 / 8, ThereS: 41e-9 * 900, Longest: extract.Sized{Kind: "traces", Name: "1", Bytes: 700}, Advice: "one process: blis-train run"}
	if got := p.Estimate(8); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Bytes++
	if got := p.Estimate(8); got.Advice != "many processes" {
		t.Errorf("got %s", got.Advice)
	}
	p.Runs[1].Pieces = []extract.Piece{{Path: "/in/a.jsonl", Name: "a.jsonl", Part: &source.Part{From: 0, To: 300}}, {Name: "a.jsonl"}}
	job := Job{Dir: t.TempDir()}
	ids, err := p.offerParse(job)
	if err != nil || len(ids) != 2 || !p.isCut() {
		t.Fatalf("got %v, %v", ids, err)
	}
	for i, want := range []string{"y a.jsonl [0, 300)", "y a.jsonl"} {
		task, err := job.Task(ids[i])
		if err != nil || task.Name != want || task.Pass != passParse {
			t.Errorf("got %+v, %v, want %s", task, err, want)
		}
	}
	o := pipeline.DefaultExtractOptions()
	o.Exclude = []string{"x"}
	if left, err := p.runsLeft(&o); err != nil || len(left) != 1 || left[0].ID != "y" || len(p.Runs) != 2 {
		t.Errorf("got %+v, %v", left, err)
	}
	if p.Runs = p.Runs[:1]; p.isCut() {
		t.Error("no input has parts: got a plan with parts")
	}
}

// TestPlansThatAreRefused: options of one process, another plan in the folder, runs without inputs, and what is no plan.
func TestPlansThatAreRefused(t *testing.T) {
	smoke := "../testdata/traces/smoke"
	dir := t.TempDir()
	o := pipeline.DefaultRunOptions()
	o.Extract.WhyRejected = true
	if _, err := MakePlan([]string{smoke}, dir, 0, o); err == nil || err.Error() != "plan: --why-rejected goes with one process only: blis-train extract" {
		t.Errorf("got %v", err)
	}
	o.Extract.WhyRejected = false
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.CopyFS(empty, os.DirFS(smoke)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(empty)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != deploy.RunFile {
			if err := os.RemoveAll(filepath.Join(empty, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := MakePlan([]string{smoke, empty}, dir, 0, o); err == nil {
		t.Error("a run without inputs: got a plan")
	}
	plan, err := MakePlan([]string{smoke}, dir, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := MakePlan([]string{smoke}, dir, 0, o); err != nil || !slices.Equal(again.Open, plan.Open) {
		t.Errorf("the same plan: got %+v, %v", again, err)
	}
	o.Fit.Bootstraps = 77
	misuse := (*option.Misuse)(nil)
	if _, err := MakePlan([]string{smoke}, dir, 0, o); !errors.As(err, &misuse) || misuse.Msg != dir+": got a folder with another plan, want an empty or new folder" || misuse.Hint != "blis-train collect "+dir+" continues that plan" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadPlan(filepath.Join(dir, "none")); err == nil || trace.HintOf(err) != "blis-train plan RUN... -o "+filepath.Join(dir, "none") {
		t.Errorf("got %v", err)
	}
	path := filepath.Join(dir, planFile)
	text := string(repo.Read(t, path))
	for edited, want := range map[string]string{"[]": path + ": got no plan: ", strings.Replace(text, `"build": "`, `"build": "old `, 1): path + ": the plan was made by build old " + buildName() + ", this is " + buildName() + ": use that build for every task of the plan"} {
		repo.Write(t, []byte(edited), path)
		if _, err := ReadPlan(dir); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	repo.Write(t, []byte(text), path)
	read, err := ReadPlan(dir)
	if err != nil || read.Bytes != plan.Bytes || read.Digest != plan.Digest || len(read.Digest) != 64 {
		t.Errorf("got %+v, %v", read, err)
	}
	got := pipeline.DefaultRunOptions()
	read.MaxBadFrac, read.GatesFrom = 0.25, map[string]string{"bias": "--gate"}
	if err := read.options("job", &got); err != nil || got.Extract.Out != filepath.Join("job", "out") || got.Extract.MaxBadFrac != 0.25 || got.Validate.ThresholdsFrom["bias"] != "--gate" || got.Fit.Bootstraps != pipeline.DefaultRunOptions().Fit.Bootstraps {
		t.Errorf("got %+v, %v", got, err)
	}
	read.Validate = "fit --seed 1"
	if err := read.options("job", &got); err == nil || !strings.Contains(err.Error(), "validate") {
		t.Errorf("got %v", err)
	}
	if _, err := (Job{Dir: empty}).Garbage(); err == nil || !strings.HasPrefix(err.Error(), empty+": not the folder of a plan: ") {
		t.Errorf("got %v", err)
	}
}

// TestWhatTasksRead: the folders that each task verifies while it reads them.
func TestWhatTasksRead(t *testing.T) {
	for _, c := range []struct {
		of   interface{ reads() []string }
		want string
	}{
		{&fitTask{Folders: []string{"t1", "t2"}}, "t1 t2"}, {&fitTask{Folders: []string{"t1"}, Rows: map[string]string{"b": "r2", "a": "r1"}}, "r1 r2"},
		{&judgeTask{Fit: "f", Folders: []string{"t1", "t2"}}, "f"}, {&judgeTask{Fit: "f", Folders: []string{"t1"}, Run: "a"}, "f t1"}, {&judgeTask{Fit: "f", Folders: []string{"t1"}, Run: "a", Steps: map[string]string{"a": "s2", "b": "s1"}, Limits: "l"}, "s1 s2 f t1 l"},
	} {
		if got := strings.Join(c.of.reads(), " "); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.of, got, c.want)
		}
	}
	run, dep, failed := &trace.Run{}, &deploy.Deployment{}, errors.New("x")
	gotRun, gotDep, err := startLoading(func() (*trace.Run, *deploy.Deployment, error) { return run, dep, failed })()
	if gotRun != run || gotDep != dep || !errors.Is(err, failed) {
		t.Errorf("got %v, %v, %v", gotRun, gotDep, err)
	}
	func() {
		defer func() {
			if p, ok := recover().(*par.Panic); !ok || p.Value != "poison" || len(p.Stack) == 0 {
				t.Errorf("got %v", p)
			}
		}()
		_, _, _ = startLoading(func() (*trace.Run, *deploy.Deployment, error) { panic("poison") })()
		t.Error("a panic of the loading is lost")
	}()
	if _, err := readFit(t.TempDir()); err == nil {
		t.Error("no fit.json: got a fit")
	}
}

// TestTasksThatCannotBeDone: of another pass, of another program, and with a damaged text.
func TestTasksThatCannotBeDone(t *testing.T) {
	smoke := "../testdata/traces/smoke"
	dir := t.TempDir()
	if _, err := MakePlan([]string{smoke}, dir, 0, pipeline.DefaultRunOptions()); err != nil {
		t.Fatal(err)
	}
	job := Job{Dir: dir}
	var tasks []Task
	for _, spec := range []any{map[string]string{"build": buildName()}, map[string]string{"build": "other"}, 7} {
		task, err := NewTask("later", "x", spec)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	if err := job.Offer("later", tasks); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`got the pass "later", which this program does not know`, `planned by build "other", this is "` + buildName() + `": use that build for every task of the plan`, "cannot unmarshal number"} {
		id := tasks[i].ID()
		if _, err := DoTask(t.Context(), dir, id, 1); err == nil || !strings.HasPrefix(err.Error(), "task "+id+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := CheckID("tables-0a1b2c3d4e5f6071"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"", "../x", "tables-0a1b2c3d4e5f60711", "Tables", "tables-xyz", "tables-0a/b"} {
		if err := CheckID(id); trace.CodeOf(err) != codeTaskFailed || !strings.Contains(err.Error(), fmt.Sprintf("task id: got %q, want an id such as tables-0a1b2c3d4e5f6071", id)) {
			t.Errorf("%s: got %v", id, err)
		}
		if _, err := job.Task(id); trace.CodeOf(err) != codeTaskFailed {
			t.Errorf("%s: got %v", id, err)
		}
	}
	if _, err := job.Task("nope-"); trace.CodeOf(err) != codeTaskFailed || !strings.Contains(err.Error(), `got task "nope-", the beginning of 0 of its 4 task ids, want exactly one`) || trace.HintOf(err) != "blis-train collect "+dir+" prints the ids of open tasks" {
		t.Errorf("got %v", err)
	}
	path := job.path(tasksDir, tasks[0].ID()+".json")
	repo.Write(t, "[]", path)
	if _, err := job.Task(tasks[0].ID()); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("got %v", err)
	}
	list := job.path(passesDir, "later.json")
	for text, want := range map[string]string{"{": list + ": ", `[{"id": "../x", "name": "n"}]`: list + `: task_failed: task id: got "../x"`} {
		repo.Write(t, text, list)
		if _, err := job.State("later"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got := (&openPass{&State{Pass: "fit", Open: []string{"a", "b"}}}).Error(); got != "pass fit: 2 tasks are open" {
		t.Errorf("got %s", got)
	}
}

// failing returns the work of a task that an error of its inputs ends.
func failing(err error) func(string) error { return func(string) error { return err } }

// TestFailuresOfInputs: an error of the inputs is not tried again. Of a run folder the others go on; in a later pass it ends
// the job. A receipt of a failure that was half written counts as one attempt.
func TestFailuresOfInputs(t *testing.T) {
	refused := trace.Errorf("bad_input", "line 7").WithHint("look at it")
	of := func(pass string) (Job, *Task) {
		task, err := NewTask(pass, "run-1", 1)
		if err != nil {
			t.Fatal(err)
		}
		job := Job{Dir: t.TempDir()}
		if err := job.Offer(pass, []Task{task}); err != nil {
			t.Fatal(err)
		}
		return job, &task
	}
	for _, pass := range []string{passParse, passTables, passRows} {
		job, task := of(pass)
		if _, err := job.Do(context.Background(), task, failing(refused)); !errors.Is(err, refused) {
			t.Errorf("got %v", err)
		}
		s, err := job.State(pass)
		if pass != passRows {
			if err != nil || !s.Done() || s.Failed != 1 {
				t.Fatalf("%s: got %+v, %v", pass, s, err)
			}
			err = s.Bad[0]
		}
		if err == nil || err.Error() != pass+" run-1: bad_input: line 7" || trace.HintOf(err) != "look at it" {
			t.Errorf("%s: got %v with the hint %q", pass, err, trace.HintOf(err))
		}
	}
	// A damaged result of another task is no reason to give this one up.
	job, task := of(passTables)
	for n := range MaxFailures + 1 {
		s, err := job.State(passTables)
		if err != nil || s.Done() || s.Failed != n || s.Bad[0] != nil {
			t.Fatalf("after %d failures: got %+v, %v", n, s, err)
		}
		if _, err := job.Do(context.Background(), task, failing(trace.Errorf(codeResultDamaged, "x"))); err == nil {
			t.Fatal("got no error")
		}
	}
	s, err := job.State(passTables)
	if err != nil || !s.Done() || s.Failed != 4 {
		t.Fatalf("got %+v, %v", s, err)
	}
	last := job.path(receiptsDir, task.ID()+".failed-4.json")
	want := "task_failed: tables run-1 failed 4 times, last: result_damaged: x (all of it in " + last + ")"
	if got := s.Bad[0]; got == nil || got.Error() != want || trace.HintOf(got) != "do it here to see why: blis-train task "+job.Dir+" "+task.ID() {
		t.Errorf("got %v with the hint %q", got, trace.HintOf(got))
	}
	repo.Write(t, "{", last)
	if s, err := job.State(passTables); err != nil || s.Bad[0] == nil || !strings.HasPrefix(s.Bad[0].Error(), last+": ") {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, "{", job.path(receiptsDir, task.ID()+".failed-3.json"))
	if s, err := job.State(passTables); err != nil || s.Bad[0] != nil || s.Failed != 3 || s.Done() {
		t.Errorf("got %+v, %v", s, err)
	}
	// The run folders that failed are named in the order of their ids, whichever pass they failed in.
	job, task = of(passTables)
	if _, err := job.Do(context.Background(), task, failing(refused)); err == nil {
		t.Fatal("got no error")
	}
	var told []trace.Finding
	o := pipeline.DefaultRunOptions()
	o.Extract.Out = filepath.Join(job.Dir, outDir)
	o.Extract.Warn = func(found []trace.Finding) { told = append(told, found...) }
	repo.Write(t, "{}", job.path(receiptsDir, task.ID()+".0123.json"))
	c := &collection{job: job, plan: &Plan{}, o: &o, from: map[string]string{}, bad: []extract.Failed{{ID: "z", Err: errors.New("of parse")}}}
	_, err = c.tables(context.Background())
	if err == nil || trace.HintOf(err) != "to go on without them: --exclude run-1 --exclude z" || !strings.Contains(err.Error(), "2 of 2 runs could not be extracted") {
		t.Errorf("got %v with the hint %q", err, trace.HintOf(err))
	}
	if len(told) != 1 || told[0].Code != codeResultDamaged {
		t.Errorf("got %v", told)
	}
}

// TestReceiptsOfOtherFolders: a receipt names files below the folder of its own task alone.
func TestReceiptsOfOtherFolders(t *testing.T) {
	job, ids := jobOf(t, 1)
	id := ids[0]
	for name, c := range map[string]struct {
		r  Receipt
		ok bool
	}{
		"its own":              {Receipt{id, id + "-0123", []File{{Name: "a"}, {Name: "b/c"}}}, true},
		"no files":             {Receipt{id, id + "-0123", []File{}}, true},
		"another task":         {Receipt{id, "other-0123", nil}, false},
		"a folder above":       {Receipt{id, id + "-../../x", nil}, false},
		"a folder within":      {Receipt{id, id + "-0/1", nil}, false},
		"a file above":         {Receipt{id, id + "-0123", []File{{Name: "../a"}, {Name: "b"}}}, false},
		"a file above, last":   {Receipt{id, id + "-0123", []File{{Name: "b"}, {Name: "../a"}}}, false},
		"an absolute file":     {Receipt{id, id + "-0123", []File{{Name: "/etc/passwd"}}}, false},
		"an id that is a path": {Receipt{"../x", "../x-0123", nil}, false},
	} {
		base, err := c.r.name()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c.r)
		if err != nil {
			t.Fatal(err)
		}
		base = filepath.Base(base) + ".json"
		repo.Write(t, text, job.path(receiptsDir, base))
		r, err := job.receipt(base)
		if (err == nil) != c.ok || c.ok && r.Folder != c.r.Folder {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
		if err != nil && name != "an id that is a path" && err.Error() != fmt.Sprintf("got files of %q, want those below its folder of data", c.r.Folder) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	a, b := &Receipt{Folder: "x", Files: []File{{Name: "1", Bytes: 1}, {Name: "2"}}}, &Receipt{Folder: "y", Files: []File{{Name: "1", Bytes: 1}, {Name: "2"}, {Name: "3"}}}
	if got := firstDifference(Job{Dir: "d"}, a, b); got != "their lists of files in d/data/x and d/data/y" {
		t.Errorf("got %s", got)
	}
	if got := firstDifference(Job{Dir: "d"}, b, a); got != "3 in d/data/y and d/data/x" {
		t.Errorf("got %s", got)
	}
	// What a work reads is verified beside it, and damage is the error, whatever the work returns.
	r := job.must(t, id, writing(good))
	failed := errors.New("work")
	if err := job.Reading(context.Background(), []string{r.Folder}, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if err := job.Reading(context.Background(), []string{r.Folder}, func() error { panic("poison") }); err == nil || err.Error() != "panic: poison" {
		t.Errorf("got %v", err)
	}
	if err := os.Truncate(job.Path(r, "a"), 0); err != nil {
		t.Fatal(err)
	}
	if err := job.Reading(context.Background(), []string{r.Folder}, func() error { return failed }); trace.CodeOf(err) != codeResultDamaged || errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// TestGarbageOfAJob: damaged receipts, what tasks of no pass left, failures of tasks that are done, and folders without a
// receipt; not what other programs have among the receipts.
func TestGarbageOfAJob(t *testing.T) {
	job, ids := jobOf(t, 3)
	done := job.must(t, ids[0], writing(good))
	damaged := job.must(t, ids[1], writing(good))
	open, err := job.Task(ids[2])
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewTask("gone", "x", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []*Task{open, &other} {
		if _, err := job.Do(t.Context(), task, failing(errors.New("x"))); err == nil {
			t.Fatal("got no error")
		}
	}
	unwanted, err := job.Do(t.Context(), &other, writing(good))
	if err != nil {
		t.Fatal(err)
	}
	receipt := func(r *Receipt) string {
		name, err := r.name()
		if err != nil {
			t.Fatal(err)
		}
		return job.path(receiptsDir, name+".json")
	}
	repo.Write(t, "{}", job.path(receiptsDir, ids[0]+".failed-1.json"))
	repo.Write(t, "{}", job.path(receiptsDir, ids[0]+".0123.txt"))
	repo.Write(t, "{}", job.path(receiptsDir, "notes.json"))
	repo.Write(t, "[]", receipt(damaged))
	want := []string{job.path(receiptsDir, ids[0]+".failed-1.json"), receipt(damaged), receipt(unwanted), job.path(receiptsDir, other.ID()+".failed-1.json"), job.Folder(damaged.Folder), job.Folder(unwanted.Folder)}
	got, err := job.Garbage()
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if n, err := job.Done(append(ids, other.ID(), "none")); n != 3 || err != nil { // a receipt counts, whatever is in it
		t.Errorf("got %d, %v", n, err)
	}
	if s := job.state(t); s.Receipts[0].Folder != done.Folder || !slices.Equal(s.Open, ids[1:]) || s.Failed != 1 {
		t.Errorf("got %+v", s)
	}
	// Tasks that are offered again keep their files; one that is missing is written.
	path := job.path(tasksDir, ids[1]+".json")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var again []Task
	for i := range 3 {
		task, err := NewTask("double", "number", i)
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, task)
	}
	if err := job.Offer("double", again); err != nil {
		t.Fatal(err)
	}
	if task, err := job.Task(ids[1]); err != nil || string(task.Spec) != "1" {
		t.Errorf("got %+v, %v", task, err)
	}
	if err := job.Offer("double", again[:2]); err != nil {
		t.Fatal(err)
	}
	if s := job.state(t); len(s.Names) != 2 {
		t.Errorf("a pass of fewer tasks: got %q", s.Names)
	}
}

// TestPartsThatFail: of a run whose parts fail the first error counts, whichever part it is of, and the run has no task in the
// next pass.
func TestPartsThatFail(t *testing.T) {
	job := Job{Dir: t.TempDir()}
	plan := &Plan{Runs: []extract.Planned{
		{ID: "first", Pieces: []extract.Piece{{Name: "a"}, {Name: "b"}}}, {ID: "second", Pieces: []extract.Piece{{Name: "c"}, {Name: "d"}, {Name: "e"}}}, {ID: "whole"},
	}}
	ids, err := plan.offerParse(job)
	if err != nil || len(ids) != 5 {
		t.Fatalf("got %q, %v", ids, err)
	}
	for i, id := range ids {
		task, err := job.Task(id)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 || i == 2 {
			job.must(t, id, writing(good))
			continue
		}
		if _, err := job.Do(t.Context(), task, failing(trace.Errorf("bad_part", "part %d", i))); err == nil {
			t.Fatal("got no error")
		}
	}
	o := pipeline.DefaultRunOptions()
	c := &collection{job: job, plan: plan, o: &o}
	if err := c.parse(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(c.bad) != 2 || c.bad[0].ID != "first" || !strings.HasSuffix(c.bad[0].Err.Error(), "bad_part: part 0") || c.bad[1].ID != "second" || !strings.HasSuffix(c.bad[1].Err.Error(), "bad_part: part 3") {
		t.Errorf("got %v", c.bad)
	}
	s, err := job.State(passTables)
	if err != nil || !slices.Equal(s.Names, []string{"whole"}) || len(c.plan.Runs) != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestTasksOfBadCommands: the recorded command of a task is one of its stage, in every pass.
func TestTasksOfBadCommands(t *testing.T) {
	dir := t.TempDir()
	if _, err := MakePlan([]string{"../testdata/traces/smoke"}, dir, 0, pipeline.DefaultRunOptions()); err != nil {
		t.Fatal(err)
	}
	for pass, stage := range map[string]string{passParse: "extract", passTables: "extract", passRows: "fit", passFit: "fit", passSteps: "validate", passLimits: "validate", passReplay: "validate"} {
		for command, want := range map[string]string{"simulate": `command: got "simulate", want ` + stage + " and its options", stage + " --nope": `got "--nope", want an option of ` + stage} {
			task, err := NewTask(pass, "x", map[string]string{"build": buildName(), "command": command})
			if err != nil {
				t.Fatal(err)
			}
			job := Job{Dir: dir}
			if err := job.Offer(pass+"s", []Task{task}); err != nil {
				t.Fatal(err)
			}
			if _, err := DoTask(t.Context(), dir, task.ID(), 1); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: got %v, want %q", command, pass, err, want)
			}
		}
	}
	if DefaultPartBytes != 268_435_456 {
		t.Errorf("inputs are read in parts of %d bytes, want 256 MiB", DefaultPartBytes)
	}
}

// TestTablesOfLostParts: a run folder is not extracted from parts of an input whose receipt is gone.
func TestTablesOfLostParts(t *testing.T) {
	dir := t.TempDir()
	plan, err := MakePlan([]string{"../testdata/traces/smoke"}, dir, 0, pipeline.DefaultRunOptions())
	if err != nil {
		t.Fatal(err)
	}
	job := Job{Dir: dir}
	planned, err := job.Task(plan.Open[0])
	if err != nil {
		t.Fatal(err)
	}
	spec := tableTask{}
	if err := json.Unmarshal(planned.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	spec.Stored = []extract.Stored{{Kind: "traces", Name: "traces.jsonl", Folders: []string{"parse-0a1b2c3d4e5f6071-1"}}}
	task, err := NewTask(passTables, "smoke", spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := doTables(t.Context(), job, &task, t.TempDir(), 1); trace.CodeOf(err) != codeResultDamaged || !strings.HasSuffix(err.Error(), "parse-0a1b2c3d4e5f6071-1: no receipt names it any more") {
		t.Errorf("got %v", err)
	}
}

// TestOffersOfTasks: a task is written again only where its file is gone or the list is another one.
func TestOffersOfTasks(t *testing.T) {
	job := Job{Dir: t.TempDir()}
	var tasks []Task
	for i := range 3 {
		task, err := NewTask("double", fmt.Sprint("t", i), i)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	offer := func(list ...Task) {
		t.Helper()
		if err := job.Offer("double", list); err != nil {
			t.Fatal(err)
		}
	}
	offer(tasks[:2]...)
	first, second := job.path(tasksDir, tasks[0].ID()+".json"), job.path(tasksDir, tasks[1].ID()+".json")
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	repo.Write(t, "mine", second)
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Task(tasks[0].ID()); err == nil || !strings.Contains(err.Error(), job.Dir+`: got task "`+tasks[0].ID()+`", the beginning of 0 of its 1 task ids, want exactly one`) {
		t.Errorf("got %v", err)
	}
	offer(tasks[:2]...)
	if again, err := os.ReadFile(first); err != nil || string(again) != string(text) {
		t.Errorf("got %q, %v, want the text of before", again, err)
	}
	if kept, err := os.ReadFile(second); err != nil || string(kept) != "mine" {
		t.Errorf("got %q, %v, want the file as it was", kept, err)
	}
	if _, err := job.Task(tasks[1].ID()); err == nil || !strings.HasPrefix(err.Error(), second+": ") {
		t.Errorf("got %v", err)
	}
	repo.Write(t, string(text), second)
	if _, err := job.Task(tasks[1].ID()); err == nil || !strings.HasSuffix(err.Error(), second+": got the text of task "+tasks[0].ID()+": the file was changed") {
		t.Errorf("got %v", err)
	}
	offer(tasks...)
	for _, want := range tasks {
		if got, err := job.Task(want.ID()); err != nil || got.Name != want.Name {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if list, err := job.tasksOf("double"); err != nil || len(list) != 3 || list[2] != (listed{tasks[2].ID(), "t2"}) {
		t.Errorf("got %v, %v", list, err)
	}
	if got, err := job.Task(tasks[2].ID()[:len(tasks[2].ID())-3]); err != nil || got.Name != "t2" {
		t.Errorf("a beginning that one task has: got %+v, %v", got, err)
	}
	if _, err := job.Task("double"); err == nil || !strings.Contains(err.Error(), `got task "double", the beginning of 3 of its 3 task ids`) {
		t.Errorf("got %v", err)
	}
	// Receipts are files of three parts.
	for _, name := range []string{"a.1.json", "a.2.json", "b.1.json", "b.json", "b.1.tmp", "b.1.2.json", "c"} {
		repo.Write(t, "{", job.path(receiptsDir, name))
	}
	found, err := job.receipts()
	if err != nil || len(found) != 2 || !slices.Equal(found["a"], []string{"a.1.json", "a.2.json"}) || !slices.Equal(found["b"], []string{"b.1.json"}) {
		t.Errorf("got %v, %v", found, err)
	}
	// A half-written receipt of a failure is one failure; too many of them are an error.
	many := slices.Repeat([]string{"a.1.json"}, MaxFailures)
	if err := job.failure(nil); err != nil {
		t.Errorf("got %v", err)
	}
	if err := job.failure(many); err != nil {
		t.Errorf("got %v after %d failures", err, len(many))
	}
	if err := job.failure(append(many, "a.2.json")); err == nil || !strings.HasPrefix(err.Error(), job.path(receiptsDir, "a.2.json")+": ") {
		t.Errorf("got %v", err)
	}
	repo.Write(t, `{"error": "out of memory"}`, job.path(receiptsDir, "a.1.json"))
	if err := job.failure(many); err != nil {
		t.Errorf("got %v after %d failures", err, len(many))
	}
	if err := job.failure(append(many, "a.1.json")); err == nil || !strings.Contains(err.Error(), "failed 4 times, last: out of memory (all of it in "+job.path(receiptsDir, "a.1.json")+")") {
		t.Errorf("got %v", err)
	}
}
