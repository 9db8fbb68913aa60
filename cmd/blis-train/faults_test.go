// The files faults*_test.go try hand-made faults on the program: damaged, foreign and hostile
// recordings, tables, settings and surroundings, each with what must happen. A sample runs
// with every test, all of them with `make eval`.
package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// programOf is the program: the tests' own binary, which TestMain makes the command when it is
// called by that name.
func programOf(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(t.TempDir(), "blis-train")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.Symlink(self, program); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	return program
}

const recording = "../../testdata/traces/smoke"

// newWorld copies the recording and lays strangers' files around it.
func newWorld(t testing.TB, program, dir string, clean *state) *world {
	w := &world{t: t, program: program, dir: dir, in: filepath.Join(dir, "in"), out: filepath.Join(dir, "out"), clean: clean}
	must(t, os.MkdirAll(w.in, 0o755))
	entries, err := os.ReadDir(recording)
	must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(recording, e.Name()))
		must(t, err)
		w.put(e.Name(), string(b))
	}
	return w
}

// all are the faults of every group.
func all() []fault {
	return slices.Concat(damaged(), order(), foreign(), tables(), cache(), settings(), names(), surroundings(), numbers(), interrupts())
}

// tryAll tries faults and counts those that pass, by group in order.
func tryAll(t *testing.T, list []fault) {
	program := programOf(t)
	first := newWorld(t, program, t.TempDir(), nil)
	r, err := first.extract()
	must(t, err)
	if r.code != 0 {
		t.Fatalf("the clean recording: %s", r.stderr)
	}
	clean, err := stateOf(first.out)
	must(t, err)
	var groups []string
	tried, passed := map[string]int{}, map[string]int{}
	slowest := time.Duration(0)
	for i, f := range list {
		if !slices.Contains(groups, f.group) {
			groups = append(groups, f.group)
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		w := newWorld(t, program, dir, clean)
		w.strangers()
		start := time.Now()
		err := f.try(w)
		slowest = max(slowest, time.Since(start))
		if err == nil {
			err = w.strangersStay()
		}
		tried[f.group]++
		if err != nil {
			t.Errorf("%s: %s: %v", f.group, f.name, err)
		} else {
			passed[f.group]++
		}
		os.RemoveAll(dir)
	}
	sum, good := 0, 0
	for _, g := range groups {
		t.Logf("%-36s %3d of %3d", g, passed[g], tried[g])
		sum, good = sum+tried[g], good+passed[g]
	}
	t.Logf("%-36s %3d of %3d, the slowest took %.1f s", "all", good, sum, slowest.Seconds())
}

// sampleOfGroup is how many faults of each group are tried without BLIS_TRAIN_EVAL.
const sampleOfGroup = 2

// TestFaultsSample tries some faults of each group.
func TestFaultsSample(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	byGroup := map[string][]fault{}
	list := all()
	for _, f := range list {
		byGroup[f.group] = append(byGroup[f.group], f)
	}
	var sample []fault
	for i, f := range list {
		if i == 0 || list[i-1].group != f.group {
			of := byGroup[f.group]
			for k := range sampleOfGroup {
				sample = append(sample, of[k*len(of)/sampleOfGroup])
			}
		}
	}
	if len(list) < 400 || len(sample) < 20 {
		t.Errorf("got %d faults and a sample of %d, want at least 400 and 20", len(list), len(sample))
	}
	tryAll(t, sample)
}

// TestEvalFaults tries all of them.
func TestEvalFaults(t *testing.T) {
	repo.NeedEval(t)
	tryAll(t, all())
}
