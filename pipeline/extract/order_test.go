package extract

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLateExports: lines in any order, with some of them lost, are one run with
// the tables that the lines in order give; so are two lives behind one another.
func TestLateExports(t *testing.T) {
	one := lifeOfEngine(40, 1, 1e9, 2e7)
	two := append(append([]string{}, one...), lifeOfEngine(30, 101, 9e9, 2e7)...)
	sparse := append(append([]string{}, one[:7]...), one[19:]...)
	for name, lines := range map[string][]string{"one life": one, "two lives": two, "lost spans": sparse} {
		want := withoutPlaces(readText(t, lines...))
		for seed := range uint64(8) {
			for _, window := range []int{2, 10, len(lines)} {
				if name == "two lives" && window > 30 {
					continue // nobody says which life a span is of when both are in pieces
				}
				got := withoutPlaces(readText(t, shuffled(lines, window, seed)...))
				if d := different(want, got); d != "" {
					t.Fatalf("%s, shuffled within %d lines, seed %d: got %d runs (-want +got):\n%.600s", name, window, seed, len(got), d)
				}
			}
		}
	}
}

// shuffled moves lines by less than window places.
func shuffled(lines []string, window int, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := append([]string{}, lines...)
	for from := 0; from < len(out); from += window {
		part := out[from:min(from+window, len(out))]
		rng.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
	return out
}

// TestLogrotateOrder: the sets that logrotate makes are found and read from the
// oldest to the live file, a line that a rotation cut among them.
func TestLogrotateOrder(t *testing.T) {
	lines := lifeOfEngine(6, 1, 1e9, 2e7)
	want := withoutPlaces(readText(t, lines...))
	all := strings.Join(lines, "\n") + "\n"
	cut := []int{0, len(all) / 5, len(all) / 2, len(all) - 700, len(all)}
	for _, names := range [][]string{
		{"traces.jsonl.10", "traces.jsonl.9", "traces.jsonl.1", "traces.jsonl"},
		{"traces.json.3.gz", "traces.json.2.gz", "traces.json.1", "traces.json"},
		{"traces.json-20251231", "traces.json-20260101-1767225600", "traces.json-20260102.gz", "traces.json"},
	} {
		dir := smallRun(t, t.TempDir(), "a", nil)
		os.Remove(filepath.Join(dir, "traces.jsonl"))
		for i, name := range names {
			part := []byte(all[cut[i]:cut[i+1]])
			if strings.HasSuffix(name, ".gz") {
				part = gzipped(part)
			}
			put(t, filepath.Join(dir, name), string(part))
		}
		runs, err := Discover([]string{dir}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		in, err := runs[0].traces()
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, f := range in {
			order = append(order, f.Name)
		}
		if d := cmp.Diff(names, order); d != "" {
			t.Errorf("order (-want +got):\n%s", d)
			continue
		}
		var files []string
		for _, f := range in {
			files = append(files, f.Path)
		}
		doc, got, err := dumpRun(t, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := different(want, withoutPlaces(got)); d != "" || len(doc.Totals.Records.Dropped) > 0 {
			t.Errorf("%v: dropped %v (-want +got):\n%.600s", names, doc.Totals.Records.Dropped, d)
		}
	}
}

// TestSiblingsWithLostSpans: two engines that write into one dump stay apart
// where spans of one are lost.
func TestSiblingsWithLostSpans(t *testing.T) {
	a, b := lifeOfEngine(12, 1, 1e9, 2e7), lifeOfEngine(12, 101, 1e9+13e6, 2e7)
	lines := interleave(a, b)
	_, runs, err := dumpRun(t, []string{writeDump(t, "traces.json", []byte(strings.Join(append(lines[:8], lines[11:]...), "\n")))},
		func(o *Options) { o.SplitEngines = true })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, run := range runs {
		got = append(got, fmt.Sprintf("%d steps of %s", len(run.Steps), coreIDs(runs[i:i+1])))
	}
	if len(got) != 2 {
		t.Fatalf("got %q, want two engines", got)
	}
}
