package shard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
)

// jobOf offers n tasks of the pass "double".
func jobOf(t *testing.T, n int) (Job, []string) {
	t.Helper()
	job := Job{Dir: t.TempDir()}
	var tasks []Task
	var ids []string
	for i := range n {
		one, err := NewTask("double", "number", i)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, one)
		ids = append(ids, one.ID())
	}
	if err := job.Offer("double", tasks); err != nil {
		t.Fatal(err)
	}
	return job, ids
}

// writing is a task's work: files of the given texts.
func writing(texts map[string]string) func(string) error {
	return func(dir string) error {
		for name, text := range texts {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				return err
			}
		}
		return nil
	}
}

func (j Job) must(t *testing.T, id string, do func(string) error) *Receipt {
	t.Helper()
	task, err := j.Task(id)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Do(context.Background(), task, do)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (j Job) state(t *testing.T) *State {
	t.Helper()
	s, err := j.State("double")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var good = map[string]string{"a": "1", "b/c": "2"}

// A task done twice leaves one receipt; the pass is done when every task has one, and what
// it made is in the manifest, in the order of its tasks.
func TestTwinsAgree(t *testing.T) {
	job, ids := jobOf(t, 3)
	for _, id := range []string{ids[2], ids[0], ids[2][:12]} {
		job.must(t, id, writing(good))
	}
	if s := job.state(t); !slices.Equal(s.Open, ids[1:2]) || s.Receipts[1] != nil || s.Receipts[0].Files[1].Name != "b/c" {
		t.Fatalf("got %v open, want %v", s.Open, ids[1:2])
	}
	manifest := job.path(manifestsDir, "double.json")
	if _, err := os.Stat(manifest); err == nil {
		t.Error("a manifest of an unfinished pass")
	}
	job.must(t, ids[1], writing(good))
	s := job.state(t)
	if _, err := os.Stat(manifest); err != nil || !s.Done() {
		t.Errorf("got %v open, manifest %v", s.Open, err)
	}
	text, err := os.ReadFile(job.Path(s.Receipts[2], "b/c"))
	if err != nil || string(text) != "2" {
		t.Errorf("got %q, %v", text, err)
	}
	if garbage, err := job.Garbage(); len(garbage) > 0 || err != nil {
		t.Errorf("got garbage %v, %v", garbage, err)
	}
}

// Two different results of one task are an error that names both.
func TestDifferentTwinsAreRefused(t *testing.T) {
	job, ids := jobOf(t, 1)
	a := job.must(t, ids[0], writing(good))
	b := job.must(t, ids[0], writing(map[string]string{"a": "1", "b/c": "3"}))
	_, err := job.State("double")
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{string(codeReceiptsDiffer), "b/c", a.Folder, b.Folder} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

// Whatever is damaged counts for nothing: the task is open again, and doing it again gives
// the same receipt and whole files.
func TestDamageOpensTheTask(t *testing.T) {
	for what, damage := range map[string]func(j Job, r *Receipt, name string) error{
		"receipt cut": func(j Job, _ *Receipt, name string) error { return os.Truncate(j.path(receiptsDir, name), 20) },
		"receipt of another": func(j Job, _ *Receipt, name string) error {
			p := j.path(receiptsDir, name)
			text, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(p, []byte(strings.Replace(string(text), `"bytes": 1`, `"bytes": 2`, 1)), 0o644))
		},
		"file cut":  func(j Job, r *Receipt, _ string) error { return os.Truncate(j.Path(r, "a"), 0) },
		"file gone": func(j Job, r *Receipt, _ string) error { return os.Remove(j.Path(r, "b/c")) },
	} {
		job, ids := jobOf(t, 1)
		r := job.must(t, ids[0], writing(good))
		name, err := r.name()
		if err := errors.Join(err, damage(job, r, name+".json")); err != nil {
			t.Fatal(err)
		}
		if s := job.state(t); !slices.Equal(s.Open, ids) || len(s.Findings) != 1 || s.Findings[0].Code != codeResultDamaged {
			t.Errorf("%s: got %v open, findings %v", what, s.Open, s.Findings)
		}
		again := job.must(t, ids[0], writing(good))
		if s := job.state(t); !s.Done() || again.Folder != r.Folder || len(s.Findings) > 0 {
			t.Errorf("%s, done again: got %v open in %s, want none in %s; %v", what, s.Open, again.Folder, r.Folder, s.Findings)
		}
	}
}

// A file with other bytes of the same number is found by who reads it, not by who reads another.
func TestVerify(t *testing.T) {
	job, ids := jobOf(t, 1)
	r := job.must(t, ids[0], writing(good))
	folders := []string{r.Folder}
	err := errors.Join(job.Verify(context.Background(), folders), os.WriteFile(job.Path(r, "a"), []byte("9"), 0o644), job.Verify(context.Background(), folders, "b/c"))
	if err != nil {
		t.Fatal(err)
	}
	if s := job.state(t); !s.Done() {
		t.Errorf("got %v open before anybody looked", s.Open)
	}
	for _, want := range []string{"task " + ids[0] + " is open again", "no receipt names it"} {
		if err := job.Verify(context.Background(), folders); err == nil || !strings.Contains(err.Error(), string(codeResultDamaged)+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if s := job.state(t); !slices.Equal(s.Open, ids) {
		t.Errorf("got %v open, want %v", s.Open, ids)
	}
	job.must(t, ids[0], writing(good))
	if err := job.Verify(context.Background(), folders); err != nil {
		t.Error(err)
	}
}

// An error and a panic leave a receipt with what was being done; four of them are the
// job's failure, unless the task succeeds in the end.
func TestFailuresAreTold(t *testing.T) {
	job, ids := jobOf(t, 1)
	task, err := job.Task(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	panics := func(string) error {
		par.Each(1, 1, func(int, int) { panic("poison at byte 17") })
		return nil
	}
	for n := 1; n <= MaxFailures+1; n++ {
		if _, err := job.State("double"); err != nil {
			t.Fatalf("after %d failures: %v", n-1, err)
		}
		if _, err := job.Do(context.Background(), task, panics); err == nil {
			t.Fatal("got no error")
		}
	}
	_, err = job.State("double")
	if err == nil || !strings.Contains(err.Error(), "poison at byte 17") {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(job.path(receiptsDir, ids[0]+".failed-1.json"))
	if err != nil || !strings.Contains(string(text), "shard_test.go") || !strings.Contains(string(text), `"spec": 0`) {
		t.Errorf("got %s, %v, want stack and task", text, err)
	}
	job.must(t, ids[0], writing(good))
	if s := job.state(t); !s.Done() {
		t.Errorf("got %v open", s.Open)
	}
	if garbage, err := job.Garbage(); len(garbage) != MaxFailures+1 || err != nil {
		t.Errorf("got garbage %v, %v, want the failures", garbage, err)
	}
}

// A process that dies leaves a half-done folder, which is garbage and hinders nobody; one
// that is told to stop leaves nothing.
func TestDeathLeavesGarbage(t *testing.T) {
	job, ids := jobOf(t, 1)
	half := job.path(dataDir, halfPrefix+ids[0]+"-123")
	if err := errors.Join(os.Mkdir(half, 0o755), writing(good)(half)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	task, err := job.Task(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = job.Do(ctx, task, func(string) error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s := job.state(t); s.Failed != 0 {
		t.Errorf("got %d failures", s.Failed)
	}
	job.must(t, ids[0], writing(good))
	if garbage, err := job.Garbage(); !slices.Equal(garbage, []string{half}) || err != nil {
		t.Errorf("got garbage %v, %v, want %s", garbage, err, half)
	}
}

// A task's file that was changed is refused, and so is a name that several tasks have.
func TestTasksAreWhatTheySay(t *testing.T) {
	job, ids := jobOf(t, 2)
	if _, err := job.Task("double-"); err == nil {
		t.Error("got a task of two")
	}
	path := job.path(tasksDir, ids[0]+".json")
	repo.Write(t, `{"pass":"double","name":"number","spec":7}`, path)
	if _, err := job.Task(ids[0]); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("got %v", err)
	}
}

// A plan that was edited is refused by its tasks and by collect, whatever was edited.
func TestEditedPlan(t *testing.T) {
	in := filepath.Join(t.TempDir(), "gqa-low")
	job := t.TempDir()
	if err := os.CopyFS(in, os.DirFS(filepath.Join("../testdata/traces/real", "gqa-low"))); err != nil {
		t.Fatal(err)
	}
	o := pipeline.DefaultRunOptions()
	plan, err := MakePlan([]string{in}, job, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(job, planFile)
	text := string(repo.Read(t, path))
	for name, edited := range map[string]string{
		"an option":          strings.Replace(text, `"max_bad_frac": 0.01`, `"max_bad_frac": 1`, 1),
		"an input":           strings.Replace(text, `"kind": "traces"`, `"kind": "kv_events"`, 1),
		"a key":              strings.Replace(text, "{", `{"note": "mine",`, 1),
		"a space":            text + " ",
		"the digest":         strings.Replace(text, plan.Digest, strings.Repeat("0", len(plan.Digest)), 1),
		"without the digest": strings.Replace(text, plan.Digest, "", 1),
		"no run":             `{"build": "` + plan.Build + `"}`,
	} {
		if edited == text {
			t.Errorf("%s: nothing was edited in\n%s", name, text)
			continue
		}
		repo.Write(t, []byte(edited), path)
		if _, err := DoTask(t.Context(), job, plan.Open[0], 1); err == nil || !strings.Contains(err.Error(), "the plan was changed") {
			t.Errorf("%s: task: got %v, want an error that names the plan", name, err)
		}
		if _, err := Collect(t.Context(), job, o); err == nil || !strings.Contains(err.Error(), "the plan was changed") {
			t.Errorf("%s: collect: got %v, want an error that names the plan", name, err)
		}
	}
	repo.Write(t, []byte(text), path)
	if _, err := DoTask(t.Context(), job, plan.Open[0], 1); err != nil {
		t.Error(err)
	}
}

// Two processes do one task, one of them where the inputs were written a moment ago, or have other
// times: their results are the same.
func TestTwinsOfYoungInputs(t *testing.T) {
	t.Parallel() // it waits
	in := filepath.Join(t.TempDir(), "gqa-low")
	job := t.TempDir()
	if err := os.CopyFS(in, os.DirFS(filepath.Join("../testdata/traces/real", "gqa-low"))); err != nil {
		t.Fatal(err)
	}
	o := pipeline.DefaultRunOptions()
	plan, err := MakePlan([]string{in}, job, 0, o)
	if err != nil || len(plan.Open) != 1 {
		t.Fatalf("got a plan %+v, %v, want one with one task", plan, err)
	}
	for _, age := range []time.Duration{0, time.Hour} {
		entries, err := os.ReadDir(in)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		for _, e := range entries {
			if err := os.Chtimes(filepath.Join(in, e.Name()), at, at); err != nil {
				t.Fatal(err)
			}
		}
		if age > 0 {
			time.Sleep(2100 * time.Millisecond) // the time of an inode is not for us to set
		}
		if _, err := DoTask(t.Context(), job, plan.Open[0], 1); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Collect(t.Context(), job, o); err != nil || got.Pass != "rows" {
		t.Errorf("got %+v, %v, want the pass rows", got, err)
	}
}

// A task of another build, which a build for another architecture is, is refused.
func TestTaskOfAnotherBuild(t *testing.T) {
	task, err := NewTask(passParse, "all", parseTask{Build: "0.1.0 linux/amd64/v1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.checkBuild("0.1.0 linux/amd64/v1"); err != nil {
		t.Error(err)
	}
	if err := task.checkBuild("0.1.0 linux/amd64/v3"); err == nil {
		t.Error("a task planned for another level of the architecture was accepted")
	}
	if name := buildName(); !strings.Contains(name, result.Platform()) {
		t.Errorf("build %q does not name its platform %s", name, result.Platform())
	}
}

// TestTasksDoWhatRunDoes: the passes of a plan, whose input is divided into parts, write the documents of one process. Every
// task is offered once, and the plan is a plan of seven passes.
func TestTasksDoWhatRunDoes(t *testing.T) {
	data := filepath.Join(t.TempDir(), "smoke")
	if err := os.CopyFS(data, os.DirFS("../testdata/traces/smoke")); err != nil {
		t.Fatal(err)
	}
	options := func() pipeline.RunOptions {
		o := pipeline.DefaultRunOptions()
		o.Fit.Bootstraps = 50
		o.Extract.Config = &result.Config{File: result.Input{Name: "pipeline.yaml", Bytes: 9}, Set: []string{"--bootstraps 50"}}
		o.Fit.Config = o.Extract.Config
		return o
	}
	one := options()
	one.Extract.Out = filepath.Join(t.TempDir(), "one")
	want, err := pipeline.Run(t.Context(), []string{data}, one)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plan, err := MakePlan([]string{data}, dir, 50_000, options())
	if err != nil {
		t.Fatal(err)
	}
	if e := plan.Estimate(4); e.Tasks != len(plan.Open) || e.HereS != 41e-9*float64(plan.Bytes)/4 || e.ThereS != 41e-9*float64(plan.Bytes) ||
		e.Longest.Bytes != 50_000 || e.Advice != "one process: blis-train run" {
		t.Errorf("got %+v of %d bytes", e, plan.Bytes)
	}
	plan.Bytes = 1e12 + 1
	if e := plan.Estimate(1); e.Advice != "many processes" || e.HereS != 41e-9*1e12+41e-9 {
		t.Errorf("a terabyte: got %+v", e)
	}
	var passes []string
	var told []any
	for {
		o := options()
		o.Done = func(doc any) { told = append(told, doc) }
		got, err := Collect(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Open) == 0 {
			if got.Pass != "" || got.Validation.Verdict != want.Validation.Verdict || len(told) != 3 {
				t.Errorf("got %+v and %d documents told", got, len(told))
			}
			break
		}
		if got.Done != 0 {
			t.Errorf("pass %s: %d tasks are done before it began", got.Pass, got.Done)
		}
		passes = append(passes, got.Pass)
		for i, id := range got.Open {
			if _, err := DoTask(t.Context(), dir, id, 1); err != nil {
				t.Fatal(err)
			}
			if n, err := (Job{Dir: dir}).Done(got.Open); err != nil || n != i+1 {
				t.Errorf("pass %s: got %d tasks done and %v, want %d", got.Pass, n, err, i+1)
			}
		}
	}
	if got := strings.Join(passes, " "); got != "parse tables rows fit steps limits replay" {
		t.Errorf("got the passes %s", got)
	}
	for _, name := range []string{"extract.json", "fit.json", "validation.json", "coefficients.yaml", "inspect.json"} {
		a, errA := os.ReadFile(filepath.Join(dir, outDir, name))
		b, errB := os.ReadFile(filepath.Join(one.Extract.Out, name))
		if name == "inspect.json" && errA != nil && errB != nil {
			continue
		}
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s differs from that of one process: %v, %v", name, errA, errB)
		}
	}
}
