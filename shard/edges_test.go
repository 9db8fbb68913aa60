package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/trace"
)

// TestReceiptsOfOneTask: a folder is verified by its own receipt alone: neither what a twin wrote elsewhere nor a
// receipt that cannot be read counts.
func TestReceiptsOfOneTask(t *testing.T) {
	job, ids := jobOf(t, 1)
	r := job.must(t, ids[0], writing(good))
	own, err := r.name()
	if err != nil {
		t.Fatal(err)
	}
	repo.Write(t, []byte("{"), job.path(receiptsDir, ids[0]+".0.json"))
	// The names of receipts are hashes, and the twin's has to be read before the task's own.
	for i := range 1000 {
		twin := Receipt{Task: ids[0], Folder: fmt.Sprintf("%s-%04d", ids[0], i), Files: r.Files}
		name, err := twin.name()
		text, failed := json.Marshal(twin)
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		if name < own {
			repo.Write(t, text, job.path(receiptsDir, name+".json"))
			if _, err := job.receipt(name + ".json"); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := job.Verify(stopped, []string{r.Folder}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v, want %v", err, context.Canceled)
	}
	if err := job.Verify(context.Background(), []string{r.Folder}); err != nil {
		t.Errorf("got %v", err)
	}
	if err := job.Verify(context.Background(), []string{ids[0] + "-none"}); trace.CodeOf(err) != codeResultDamaged || !strings.Contains(err.Error(), "no receipt names it any more") {
		t.Errorf("a folder of no receipt: got %v", err)
	}
}

// TestRunsThatCannotBePlanned: the plan fails with the error of each such run, and nothing is written.
func TestRunsThatCannotBePlanned(t *testing.T) {
	smoke := filepath.Join("..", "testdata", "traces", "smoke")
	var runs []string
	for _, name := range []string{"one", "two"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace("\n"+string(repo.Read(t, smoke, deploy.RunFile)), "\nname: ", "\nname: "+name+"-", 1)
		repo.Write(t, []byte(text), dir, deploy.RunFile)
		runs = append(runs, dir)
	}
	dir := t.TempDir()
	o := pipeline.DefaultRunOptions()
	for _, c := range []struct {
		inputs []string
		want   string
	}{
		{[]string{smoke, runs[0]}, "1 of 2 runs could not be extracted"},
		{[]string{smoke, runs[0], runs[1]}, "2 of 3 runs could not be extracted"},
		{runs[:1], runs[0]},
	} {
		plan, err := MakePlan(c.inputs, dir, 0, o)
		if plan != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %+v, %v, want %s", c.inputs, plan, err, c.want)
		}
		if _, err := os.Stat(filepath.Join(dir, planFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: a plan was written (%v)", c.inputs, err)
		}
	}
}
