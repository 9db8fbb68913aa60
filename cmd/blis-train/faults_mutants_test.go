package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

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
			must(t, os.WriteFile(path, []byte(changed), 0o644))
			got, err := w.outcome(m.call)
			tried[m.kind]++
			if err != nil {
				t.Errorf("%s, mutant %d: %v", m.file, k, err)
			}
			if got.result != clean.result && got.said == clean.said && !m.mayChange {
				silent[m.kind]++
			}
		}
		must(t, os.WriteFile(path, text, 0o644))
	}
	for _, kind := range []string{"tables", "extract.json", "fit.json", "coefficients.yaml", "dumps"} {
		t.Logf("%-20s %4d mutants, %d other results without a word", kind, tried[kind], silent[kind])
		if silent[kind] > 0 {
			t.Errorf("%s: %d mutants gave another result in silence", kind, silent[kind])
		}
	}
}
