package extract

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// outputs reads every file below out except the cache, by relative name.
func outputs(t testing.TB, out string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.Walk(out, func(p string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() || filepath.Base(p) == cacheName {
			return err
		}
		rel, _ := filepath.Rel(out, p)
		files[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func extractTo(t testing.TB, parent string, change func(*Options)) string {
	t.Helper()
	runs, err := Discover([]string{parent}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac = filepath.Join(t.TempDir(), "out"), 1
	if change != nil {
		change(&o)
	}
	if _, err := Run(context.Background(), runs, o); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

func compareOutputs(t testing.TB, want, got map[string][]byte, skip string) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
	for _, name := range names {
		if name != skip && !bytes.Equal(want[name], got[name]) {
			t.Errorf("%s differs (%d and %d bytes)", name, len(want[name]), len(got[name]))
		}
	}
}

// TestSameBytesForAnyWorkers: the same inputs give the same bytes whatever the
// number of workers, and whether sorted tables spill or not.
func TestSameBytesForAnyWorkers(t *testing.T) {
	for _, set := range []string{"smoke60", "real_vllm_cpu/mha-mixed"} {
		dir := repo.Shared(t, "data", set)
		want := outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = 1 }))
		for _, n := range []int{2, 8} {
			compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = n })), "")
		}
		compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers, o.Memory = 2, 4096 })), "")
	}
}

// TestUnchangedInputIsNotParsedAgain, and a changed one is.
func TestUnchangedInputIsNotParsedAgain(t *testing.T) {
	src := repo.Shared(t, "data", "smoke")
	dir := t.TempDir()
	for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Discover([]string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac = filepath.Join(t.TempDir(), "out"), 1
	parsed := 0
	o.Progress = func(stage string, _, _ int64, _ string) { parsed++ }
	run := func(want bool) map[string][]byte {
		t.Helper()
		parsed = 0
		if _, err := Run(context.Background(), runs, o); err != nil {
			t.Fatal(err)
		}
		if (parsed > 0) != want {
			t.Errorf("parsed: got %v, want %v", parsed > 0, want)
		}
		return outputs(t, o.Out)
	}
	first := run(true)
	compareOutputs(t, first, run(false), "")
	o.Force = true
	compareOutputs(t, first, run(true), "")
	o.Force = false
	traces := filepath.Join(dir, "traces.jsonl")
	b, _ := os.ReadFile(traces)
	if err := os.WriteFile(traces, b, 0o644); err != nil { // new time, same bytes
		t.Fatal(err)
	}
	compareOutputs(t, first, run(false), "")
	if err := os.WriteFile(traces, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	run(true)
}
