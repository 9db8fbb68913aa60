package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

const smallRunYAML = `name: %s
model: {config: %s}
hardware: {name: H100}
vllm: {version: 0.15.1, max_num_seqs: 256, max_num_batched_tokens: 8192}
`

// smallRun writes a run folder of a few requests and returns its name.
func smallRun(t *testing.T, parent, id string, lines []string) string {
	t.Helper()
	dir := filepath.Join(parent, id)
	repo.Write(t, fmt.Sprintf(smallRunYAML, id, "config.json"), dir, "run.yaml")
	repo.Write(t, modelConfig(t), dir, "config.json")
	repo.Write(t, strings.Join(lines, "\n")+"\n", dir, "traces.jsonl")
	return dir
}

func modelConfig(t *testing.T) string {
	t.Helper()
	b := repo.Read(t, "..", "..", "testdata", "traces", "smoke", "config.json")
	return string(b)
}

// extractArgs extracts what args name and returns the document.
func extractArgs(t *testing.T, out string, set []string, args ...string) (*result.Extract, error) {
	t.Helper()
	runs, err := Discover(args, nil, nil, set...)
	if err != nil {
		return nil, err
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac, o.Workers, o.Set = out, 1, 2, set
	return Run(context.Background(), runs, o)
}

// sameAsFresh extracts again into out and compares with a fresh folder.
func sameAsFresh(t *testing.T, out string, set []string, args ...string) *result.Extract {
	t.Helper()
	doc, err := extractArgs(t, out, set, args...)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if _, err := extractArgs(t, fresh, set, args...); err != nil {
		t.Fatal(err)
	}
	compareOutputs(t, outputs(t, fresh), outputs(t, out), "")
	return doc
}

// TestStaleCache: whatever can matter to the tables or to extract.json makes the
// second call equal a fresh one, and stands among the inputs.
func TestStaleCache(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    []string
		change func(dir string)
		input  string
	}{
		{"--set", []string{"vllm.max_num_seqs=7"}, func(string) {}, "run.yaml"},
		{"hardware.json", nil, func(dir string) {
			repo.Write(t, `{"H100": {"TFlopsPeak": 1, "BwPeakTBs": 2}}`, dir, "hardware.json")
		}, "hardware.json"},
		{"a model file of another name", nil, func(dir string) {
			repo.Write(t, fmt.Sprintf(smallRunYAML, "a", "model.json"), dir, "run.yaml")
			repo.Write(t, strings.Replace(modelConfig(t), `"vocab_size": `, `"vocab_size": 1`, 1), dir, "model.json")
		}, "model.json"},
		{"same size and time", nil, func(dir string) {
			path := filepath.Join(dir, "traces.jsonl")
			st, _ := os.Stat(path)
			repo.Write(t, strings.Join(goodLines(3), "\n")[:len(goodLines(3)[0])]+"\n"+strings.Join(goodLines(3)[1:], "\n ")+"\n", path)
			os.Truncate(path, st.Size())
			os.Chtimes(path, st.ModTime(), st.ModTime())
		}, "traces.jsonl"},
		{"a dump more", nil, func(dir string) { repo.Write(t, otlpRequest(9)+"\n", dir, "traces-2.jsonl") }, "traces-2.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			dir := smallRun(t, t.TempDir(), "a", goodLines(3))
			sameAsFresh(t, out, nil, dir)
			c.change(dir)
			doc := sameAsFresh(t, out, c.set, dir)
			if !slices.ContainsFunc(doc.Inputs, func(in result.Input) bool { return in.Name == c.input }) {
				t.Errorf("got the inputs %v, want %s among them", doc.Inputs, c.input)
			}
		})
	}
}

// TestChangedCacheIsNotBelieved: what somebody wrote into the cache is in no document.
func TestChangedCacheIsNotBelieved(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(9))
	sameAsFresh(t, out, nil, dir)
	text := string(repo.Read(t, out, cacheName))
	for _, changed := range []string{strings.Replace(text, `"finished":`, `"finished":9`, 1), text[:len(text)/2], text[1:], "\n{}", ""} {
		repo.Write(t, changed, out, cacheName)
		sameAsFresh(t, out, nil, dir)
	}
}

// TestCrashBetweenTablesAndDocument: tables of other options are published and
// the program dies before extract.json: no document describes tables that are
// not there, and the next call of either kind equals a fresh one.
func TestCrashBetweenTablesAndDocument(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(9))
	sameAsFresh(t, out, nil, dir)
	kept := repo.Read(t, out, cacheName)
	repo.Write(t, strings.Join(goodLines(3), "\n")+"\n", dir, "traces.jsonl")
	runs, err := Discover([]string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = out
	ctx, cancel := context.WithCancel(context.Background())
	x := &extraction{run: &runs[0], o: &o}
	if err := x.read(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := x.finish(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if exists(filepath.Join(out, documentName)) {
		t.Error("extract.json stands beside tables it does not describe")
	}
	repo.Write(t, strings.Join(goodLines(9), "\n")+"\n", dir, "traces.jsonl")
	repo.Write(t, string(kept), out, cacheName)
	if doc := sameAsFresh(t, out, nil, dir); doc.Runs[0].Steps.Summaries != 18 {
		t.Errorf("got %d steps, want 18", doc.Runs[0].Steps.Summaries)
	}
}

// TestDamagedTableIsRebuilt: a table that is cut, overwritten, missing or of
// another run is made anew by the next call.
func TestDamagedTableIsRebuilt(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", goodLines(3))
	smallRun(t, parent, "b", goodLines(5))
	for name, damage := range map[string]func(steps string){
		"cut":         func(steps string) { os.Truncate(steps, 100) },
		"empty":       func(steps string) { os.Truncate(steps, 0) },
		"missing":     func(steps string) { os.Remove(steps) },
		"overwritten": func(steps string) { b, _ := os.ReadFile(steps); b[len(b)/2] ^= 1; os.WriteFile(steps, b, 0o644) },
		"of another": func(steps string) {
			b, _ := os.ReadFile(strings.Replace(steps, "run=a", "run=b", 1))
			os.WriteFile(steps, b, 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			sameAsFresh(t, out, nil, parent)
			damage(filepath.Join(table.RunDir(out, "a"), "steps.parquet"))
			sameAsFresh(t, out, nil, parent)
		})
	}
}

// TestStrayTemporariesAreCleaned, and nothing else.
func TestStrayTemporariesAreCleaned(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	sameAsFresh(t, out, nil, dir)
	mine := []string{
		".extract-cache.json.tmp00112233", "fit.json.tmp0a0b0c0d", "tables/run=a/.manifest.json.tmp00112233",
		"tables/" + stagePrefix + "a/0/.steps-1.tmp",
	}
	others := []string{"notes.tmp", "fit.json.tmp", "extract.json.tmp12345678.bak", "tables/.stage-mine/x"}
	for _, name := range append(slices.Clone(mine), others...) {
		repo.Write(t, "x", out, name)
	}
	if _, err := extractArgs(t, out, nil, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range mine {
		if exists(filepath.Join(out, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range others {
		if !exists(filepath.Join(out, name)) {
			t.Errorf("%s is gone, and it is not ours", name)
		}
	}
}

// TestSplitRunKeepsOthersID: the second life of one folder may not take the id
// of another folder.
func TestSplitRunKeepsOthersID(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", append(lifeOfEngine(3, 1, 1e9, 2e7), lifeOfEngine(3, 11, 9e9, 2e7)...))
	smallRun(t, parent, "a.1", goodLines(3))
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, parent)
	if err == nil || !strings.Contains(err.Error(), `run a: duplicate_run_id: run id "a.1" is used`) {
		t.Errorf("got %v, want %s of a.1", err, codeDuplicateRunID)
	}
}

// TestIDsThatCaseAloneTellsApart are one folder on many file systems.
func TestIDsThatCaseAloneTellsApart(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "H100-a", goodLines(3))
	smallRun(t, parent, "b", goodLines(3))
	smallRun(t, parent, "h100-A", goodLines(3))
	_, err := Discover([]string{parent}, nil, nil)
	if trace.CodeOf(err) != codeDuplicateRunID || !strings.Contains(err.Error(), "differ by case only") {
		t.Errorf("got %v, want %s", err, codeDuplicateRunID)
	}
	if runs, err := Discover([]string{parent}, nil, []string{"h100-*"}); err != nil || len(runs) != 2 {
		t.Errorf("got %d runs, %v, want the two others", len(runs), err)
	}
}

// TestOnlyOwnTablesAreRemoved: the tables of a run that is not part of a call
// go, as it says; files of others and tables that were changed stay, as it says.
func TestOnlyOwnTablesAreRemoved(t *testing.T) {
	parent, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for _, id := range []string{"a", "b", "c"} {
		smallRun(t, parent, id, goodLines(3))
	}
	sameAsFresh(t, out, nil, parent)
	changed := filepath.Join(table.RunDir(out, "c"), "steps.parquet")
	others := []string{filepath.Join(table.RunDir(out, "b"), "notes.txt"), filepath.Join(out, tablesDir, "thesis", "chapter.md"), changed,
		filepath.Join(out, tablesDir, "run=mine", "steps.parquet")}
	for _, name := range others {
		repo.Write(t, "mine", name)
	}
	doc, err := extractArgs(t, out, nil, filepath.Join(parent, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		if b, _ := os.ReadFile(name); string(b) != "mine" {
			t.Errorf("%s is gone, and it is not ours", name)
		}
		if !strings.Contains(strings.Join(doc.Left, "\n"), strings.TrimSuffix(name, "/chapter.md")) {
			t.Errorf("got %q, want a word on %s", doc.Left, name)
		}
	}
	if exists(filepath.Join(table.RunDir(out, "b"), "steps.parquet")) || len(doc.Removed) != 2 {
		t.Errorf("got %q removed, want the tables of b and c", doc.Removed)
	}
	if b, _ := os.ReadFile(filepath.Join(out, documentName)); bytes.Contains(b, []byte("notes.txt")) {
		t.Error("extract.json depends on what stood in the folder before")
	}
}

// TestForeignTableIsNotReplaced without --force.
func TestForeignTableIsNotReplaced(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	mine := filepath.Join(table.RunDir(out, "a"), "steps.parquet")
	repo.Write(t, "mine", mine)
	_, err := extractArgs(t, out, nil, dir)
	if b, _ := os.ReadFile(mine); trace.CodeOf(err) != CodeNotOurs || string(b) != "mine" {
		t.Errorf("got %v and %q, want %s and the file as it was", err, b, CodeNotOurs)
	}
}

// TestLinksAreNotFollowed: what is behind a link in the output folder is never
// written, cleaned or removed.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	for _, link := range []string{"tables", "tables/run=a", "tables/run=old", "tables/" + stagePrefix + "a"} {
		t.Run(link, func(t *testing.T) {
			out, precious := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "precious")
			repo.Write(t, "mine", precious, "steps.parquet")
			repo.Write(t, "mine", precious, "run=old", "steps.parquet")
			if err := os.MkdirAll(filepath.Dir(filepath.Join(out, link)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(precious, filepath.Join(out, link)); err != nil {
				t.Skipf("no symbolic links here: %v", err)
			}
			_, err := extractArgs(t, out, nil, dir)
			if refused := err != nil; refused == (link == "tables/run=old") {
				t.Errorf("got %v", err)
			}
			left := outputs(t, precious)
			if len(left) != 2 || string(left["steps.parquet"]) != "mine" || string(left["run=old/steps.parquet"]) != "mine" {
				t.Errorf("behind the link there is %v", left)
			}
		})
	}
}

// TestTablesAreComparedWithDocument: rows and identity of every table.
func TestTablesAreComparedWithDocument(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", goodLines(3))
	smallRun(t, parent, "b", goodLines(5))
	out := filepath.Join(t.TempDir(), "out")
	doc, err := extractArgs(t, out, nil, parent)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := CheckTables(out, doc); err != nil || len(w) > 0 {
		t.Fatalf("got %v and %v of fresh tables", w, err)
	}
	run, err := table.Read(table.RunDir(out, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(dir string) error
		code   trace.Code
	}{
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "steps.parquet")) }, table.CodeDamaged},
		{"of another run", func(dir string) error {
			return os.Rename(filepath.Join(filepath.Dir(dir), "run=b", "steps.parquet"), filepath.Join(dir, "steps.parquet"))
		}, table.CodeDamaged},
		{"unknown", func(dir string) error {
			return table.Write(dir, table.KVEvents, table.Arrow, []trace.KVEvent{{Kind: "x"}})
		}, table.CodeDamaged},
		{"a row less", func(dir string) error { return table.Write(dir, table.Steps, table.Parquet, run.Steps[1:]) }, table.CodeDamaged},
		{"rewritten", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "steps.parquet")), table.Write(dir, table.Steps, table.Arrow, run.Steps))
		}, table.CodeDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := extractArgs(t, out, nil, parent); err != nil {
				t.Fatal(err)
			}
			if err := c.change(table.RunDir(out, "a")); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(table.RunDir(out, "a"), "kv_events.arrow"))
			w, err := CheckTables(out, doc)
			switch {
			case c.name == "rewritten" && (err != nil || len(w) != 1 || w[0].Code != c.code):
				t.Errorf("got %v and %v, want a warning", w, err)
			case c.name != "rewritten" && (trace.CodeOf(err) != c.code || trace.HintOf(err) == ""):
				t.Errorf("got %v, want %s", err, c.code)
			}
			os.Remove(filepath.Join(table.RunDir(out, "a"), "steps.arrow"))
		})
	}
}

// TestOldFilesNeedNoHash: inputs that were left alone for a while are known by
// their stamps, the inode's among them.
func TestOldFilesNeedNoHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	repo.Write(t, "x", path)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if at := changeTime(st); at != 0 && time.Since(time.Unix(0, at)) > time.Hour {
		t.Errorf("got the change time %d of a new file", at)
	}
	now := time.Now().UnixNano()
	if s := oldEnough([]fileStamp{{"x", 1, 1e9, now}}); s != nil {
		t.Errorf("got %v of a file that changed just now", s)
	}
	if s := oldEnough([]fileStamp{{"x", 1, 1e9, now - 3e9}}); s == nil {
		t.Error("got no stamps of an old file")
	}
}
