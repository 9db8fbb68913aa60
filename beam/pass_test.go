package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/testing/ptest"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/shard"
)

func TestMain(m *testing.M) { ptest.MainWithDefault(m, "prism") }

// smoke is a recording with a long line or two and KV events.
const smoke = "../testdata/traces/smoke"

// options are those of a quick run.
func options(out string) pipeline.RunOptions {
	o := pipeline.DefaultRunOptions()
	o.Extract.Out, o.Fit.Bootstraps = out, 50
	return o
}

// sameAs compares the documents of two output folders.
func sameAs(t *testing.T, got, want string) {
	t.Helper()
	for _, name := range []string{"extract.json", "fit.json", "coefficients.yaml", "validation.json"} {
		a, errA := os.ReadFile(filepath.Join(got, name))
		b, errB := os.ReadFile(filepath.Join(want, name))
		if err := errors.Join(errA, errB); err != nil {
			t.Error(err)
		} else if !bytes.Equal(a, b) {
			t.Errorf("%s differs from that of one process", name)
		}
	}
}

// TestPrismGivesTheSameBytes: Prism's workers, with parts that cut every long line and every
// task given twice in random order, give the documents of pipeline.Run.
func TestPrismGivesTheSameBytes(t *testing.T) {
	data, one := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "one")
	if err := os.CopyFS(data, os.DirFS(smoke)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(data, "traces.jsonl")
	dump, err := os.ReadFile(name)
	if err = errors.Join(err, os.WriteFile(name, append(dump, "{\"resourceSpans\":[\n"...), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := pipeline.Run(context.Background(), []string{data}, options(one)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(24, 7))
	for _, part := range []int64{0, 9000, 100_000} {
		dir := t.TempDir()
		if _, err := shard.MakePlan([]string{data}, dir, part, options("")); err != nil {
			t.Fatal(err)
		}
		var talk bytes.Buffer
		passes := 0
		for {
			got, err := shard.Collect(context.Background(), dir, options(""))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Open) == 0 {
				break
			}
			ids := slices.Concat(got.Open, got.Open)
			rng.Shuffle(len(ids), func(a, b int) { ids[a], ids[b] = ids[b], ids[a] })
			if err := runPass(context.Background(), dir, got.Pass, ids, &talk); err != nil {
				t.Fatal(err)
			}
			passes++
		}
		if want := map[bool]int{true: 6, false: 7}[part == 0]; passes != want {
			t.Errorf("parts of %d bytes: got %d passes, want %d", part, passes, want)
		}
		sameAs(t, filepath.Join(dir, "out"), one)
		for _, name := range []string{"  bytes ", "  kept ", "  lines ", "  dropped_unreadable "} {
			if !strings.Contains(talk.String(), name) {
				t.Errorf("parts of %d bytes: no counter %q in %q", part, name, talk.String())
			}
		}
	}
}

// TestATaskThatFailsEndsThePass: a recording that changed after planning is an error that
// names the pass, and leaves the reason in a receipt.
func TestATaskThatFailsEndsThePass(t *testing.T) {
	data, dir := filepath.Join(t.TempDir(), "data"), t.TempDir()
	if err := os.CopyFS(data, os.DirFS(smoke)); err != nil {
		t.Fatal(err)
	}
	plan, err := shard.MakePlan([]string{data}, dir, 0, options(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(data, "traces.jsonl"), 1000); err != nil {
		t.Fatal(err)
	}
	err = runPass(context.Background(), dir, "tables", plan.Open, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "tables") {
		t.Errorf("got %v, want an error that names the pass", err)
	}
	failed, err := filepath.Glob(filepath.Join(dir, "receipts", "*.failed-1.json"))
	if err != nil || len(failed) != 1 {
		t.Errorf("got %v, %v, want one receipt of a failure", failed, err)
	}
}
