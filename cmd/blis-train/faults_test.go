// The files faults*_test.go try hand-made faults on the program: damaged, foreign and hostile
// recordings, tables, settings and surroundings, each with what must happen. A sample runs
// with every test, all of them with `make eval`.
package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
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

// mutant is a file of a finished run and the call that reads it.
type mutant struct {
	kind, file string
	call       []string
	mayChange  bool // a recording has no checksum: its values are what it says
}

func mutantFiles() []mutant {
	inspect := []string{"inspect", "out", "--json", "--quiet"}
	list := []mutant{
		{"extract.json", "out/extract.json", inspect, false},
		{"fit.json", "out/fit.json", []string{"export", "--format", "native", "out/fit.json", "-o", "exported", "--ignore-verdict", "--quiet"},
			false},
		{"coefficients.yaml", "out/coefficients.yaml", []string{"simulate", "--coefficients", "out/coefficients.yaml", "--deployment", "in",
			"--workload", "in", "-o", "again", "--json", "--quiet"}, false},
		{"dumps", "in/traces.jsonl", []string{"extract", "in", "-o", "again", "--json", "--quiet", "--max-bad-frac", "1"}, true},
	}
	for _, name := range tableNames {
		list = append(list, mutant{"tables", "out/tables/run=smoke/" + name + ".parquet", inspect, false})
	}
	return list
}

// byteMutant changes one byte.
func byteMutant(rng *rand.Rand, text string) string {
	b := []byte(text)
	b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
	return string(b)
}

// structuralMutant removes, repeats, moves or replaces a piece of a text: a line
// where it has several, else some bytes.
func structuralMutant(rng *rand.Rand, text string) string {
	parts := strings.SplitAfter(text, "\n")
	if len(parts) < 8 || strings.HasPrefix(text, "PAR1") {
		parts = nil
		for rest := text; rest != ""; {
			n := min(len(rest), 1+len(text)/64)
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
	}
	i, j := rng.IntN(len(parts)), rng.IntN(len(parts))
	switch rng.IntN(5) {
	case 0:
		parts = slices.Delete(slices.Clone(parts), i, i+1)
	case 1:
		parts = slices.Insert(slices.Clone(parts), i, parts[j])
	case 2:
		parts = slices.Clone(parts)
		parts[i], parts[j] = parts[j], parts[i]
	case 3:
		parts = parts[:i]
	default:
		parts = slices.Clone(parts)
		parts[i] = strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return '0' + (r-'0'+1)%10
			}
			return r
		}, parts[i])
	}
	return strings.Join(parts, "")
}

// outcome is what a call gave and said.
type outcome struct{ result, said string }

var ofDocument = regexp.MustCompile(`"document_digest": "[0-9a-f]*"`)

func (w *world) outcome(args []string) (outcome, error) {
	r, err := w.call(args...)
	o := outcome{r.stdout, fmt.Sprint(r.code, r.stderr)}
	if at := strings.Index(o.result, `"inputs"`); at >= 0 { // the hash of what was read is not a result of it
		if end := strings.Index(o.result[at:], "]"); end > 0 {
			o.result = o.result[:at] + o.result[at+end:]
		}
	}
	o.result = ofDocument.ReplaceAllString(o.result, "") // nor is the digest over that hash
	exported, _ := os.ReadFile(filepath.Join(w.dir, "exported"))
	os.RemoveAll(filepath.Join(w.dir, "exported"))
	os.RemoveAll(filepath.Join(w.dir, "again"))
	o.result += string(exported)
	return o, err
}

// TestEvalMutants: no changed byte and no changed piece of a file makes the
// program panic or hang; where another result comes out, it said so.
func TestEvalMutants(t *testing.T) {
	repo.NeedEval(t)
	w := newWorld(t, programOf(t), t.TempDir(), nil)
	if r, err := w.call("run", w.in, "-o", w.out, "--bootstraps", "50", "--quiet"); err != nil || r.code == 1 || r.code == 2 {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	list := mutantFiles()
	tried, silent := map[string]int{}, map[string]int{}
	rng := rand.New(rand.NewPCG(14, 14))
	for i, m := range list {
		path := filepath.Join(w.dir, m.file)
		text, err := os.ReadFile(path)
		must(t, err)
		clean, err := w.outcome(m.call)
		must(t, err)
		if clean.result == "" {
			t.Fatalf("%v gives nothing: %s", m.call, clean.said)
		}
		for k := range (1500 + len(list) - 1 - i) / len(list) {
			mutate := byteMutant
			if k%3 == 2 {
				mutate = structuralMutant
			}
			changed := mutate(rng, string(text))
			repo.Write(t, changed, path)
			got, err := w.outcome(m.call)
			tried[m.kind]++
			if err != nil {
				t.Errorf("%s, mutant %d: %v", m.file, k, err)
			}
			if got.result != clean.result && got.said == clean.said && !m.mayChange {
				silent[m.kind]++
			}
		}
		repo.Write(t, text, path)
	}
	for _, kind := range []string{"tables", "extract.json", "fit.json", "coefficients.yaml", "dumps"} {
		t.Logf("%-20s %4d mutants, %d other results without a word", kind, tried[kind], silent[kind])
		if silent[kind] > 0 {
			t.Errorf("%s: %d mutants gave another result in silence", kind, silent[kind])
		}
	}
}
