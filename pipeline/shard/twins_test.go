package shard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/blis-train/blis-train/pipeline"
)

// Two processes do one task, one of them where the inputs were written a moment ago, or have other
// times: their results are the same.
func TestTwinsOfYoungInputs(t *testing.T) {
	t.Parallel() // it waits
	in, job := filepath.Join(t.TempDir(), "gqa-low"), t.TempDir()
	if err := os.CopyFS(in, os.DirFS(filepath.Join("../../testdata/traces/real", "gqa-low"))); err != nil {
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
