package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// spoil makes a run folder bad, each in another way; plan finds the first three at once.
var spoil = []func(t *testing.T, dir string){
	func(t *testing.T, dir string) { repo.Write(t, "hardware: {name: no such device}\n", dir, "run.yaml") },
	func(t *testing.T, dir string) { noErr(t, os.Remove(filepath.Join(dir, "config.json"))) },
	func(t *testing.T, dir string) { noErr(t, os.Remove(filepath.Join(dir, "traces.jsonl"))) },
	func(t *testing.T, dir string) { repo.Write(t, "{\"resourceSpans\":[]}\n", dir, "traces.jsonl") },
	func(t *testing.T, dir string) {
		repo.Write(t, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut", dir, "traces.jsonl")
	},
}

// manyRuns writes n run folders, of which those of spoil are bad, and returns the ids of these.
func manyRuns(t *testing.T, n int) (parent string, bad []string) {
	parent = t.TempDir()
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	for i := range n {
		id := fmt.Sprintf("run%02d", i)
		for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
			text := repo.Read(t, smoke, name)
			if name == "run.yaml" {
				text = bytes.Replace(text, []byte(`name: "smoke"`), []byte("name: "+id), 1)
			}
			repo.Write(t, string(text), parent, id, name)
		}
		if k := i - 1; k >= 0 && k < len(spoil) {
			spoil[k](t, filepath.Join(parent, id))
			bad = append(bad, id)
		}
	}
	return parent, bad
}

// program runs the command in this process.
func program(args ...string) (code int, out, talk string) {
	var stdout, stderr bytes.Buffer
	code = run(append([]string{"blis-train"}, args...), nil, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// testBadRuns: bad runs among others end no extraction. They are told of, what goes on without them
// is named, the exit status is 1; and what they leave is that of the others alone.
func testBadRuns(t *testing.T, n int) {
	parent, bad := manyRuns(t, n)
	out := func(name string) string { return filepath.Join(parent, "..", name) }
	exclude := func(ids []string) (flags []string) {
		for _, id := range ids {
			flags = append(flags, "--exclude", id)
		}
		return flags
	}
	told := func(what string, code int, talk string, ids []string) {
		t.Helper()
		for _, id := range ids {
			if strings.Count(talk, id) < 2 {
				t.Errorf("%s: nothing of %s in:\n%s", what, id, talk)
			}
		}
		if want := strings.Join(exclude(ids), " "); code != exitFailed || !strings.Contains(talk, want) {
			t.Errorf("%s: exit %d, want 1 and %q:\n%s", what, code, want, talk)
		}
	}
	document := func(dir string) string { return string(repo.Read(t, out(dir), "extract.json")) }
	parts := func(text string) string { // without what names the bad runs, and digests over it
		return regexp.MustCompile(`(?s),\s*"left_out": \[.*?\]|"document_digest": "[0-9a-f]*"`).ReplaceAllString(text, "")
	}

	for _, workers := range []string{"1", "3"} {
		code, _, talk := program("extract", parent, "-o", out("all"+workers), "-q", "--workers", workers)
		told("extract", code, talk, bad)
	}
	if document("all1") != document("all3") || strings.Count(document("all1"), `"folder": "run`) != n-len(bad) {
		t.Errorf("the documents of 1 and 3 workers differ, or have not %d runs", n-len(bad))
	}
	code, _, talk := program(append([]string{"extract", parent, "-o", out("good"), "-q"}, exclude(bad)...)...)
	if code != exitOK || parts(document("good")) != parts(document("all1")) || document("good") == document("all1") {
		t.Errorf("exit %d with --exclude, another document but for the names of the bad runs, or the same one: %s", code, talk)
	}
	if code, _, talk = program("fit", out("all1"), "-o", out("fit"), "-q"); code != exitOK || !strings.Contains(talk, "left out: "+bad[0]) {
		t.Errorf("fit of what is left: exit %d, no word of it: %s", code, talk)
	}

	code, _, talk = program("run", parent, "-o", out("run"), "-q")
	told("run", code, talk, bad)
	if _, err := os.Stat(filepath.Join(out("run"), "fit.json")); err == nil {
		t.Error("run has fitted the runs that were left")
	}
	code, _, talk = program(append([]string{"run", parent, "-o", out("run"), "-q"}, exclude(bad)...)...)
	if code != exitOK && code != exitGate {
		t.Errorf("run with --exclude: exit %d: %s", code, talk)
	}
	code, _, talk = program("plan", parent, "-o", out("job"), "-q")
	told("plan", code, talk, bad[:3])
	code, ids, talk := program(append([]string{"plan", parent, "-o", out("job"), "-q"}, exclude(bad[:3])...)...)
	if code != exitOK {
		t.Fatalf("plan with --exclude: exit %d: %s", code, talk)
	}
	flags, excluded := []string{}, false
	for range 12 {
		for _, id := range strings.Fields(ids) {
			if code, _, talk := program("task", out("job"), id, "-q"); (code != exitOK) != slices.ContainsFunc(bad, func(id string) bool {
				return strings.Contains(talk, id)
			}) {
				t.Fatalf("task %s: exit %d: %s", id, code, talk)
			}
		}
		if code, ids, talk = program(append([]string{"collect", out("job"), "-q"}, flags...)...); code == exitFailed && !excluded {
			told("collect", code, talk, bad[3:])
			flags, excluded = exclude(bad[3:]), true
			_, ids, _ = program(append([]string{"collect", out("job"), "-q"}, flags...)...)
		}
		if ids == "" {
			break
		}
	}
	for _, name := range []string{"extract.json", "fit.json", "coefficients.yaml", "validation.json"} {
		if !excluded || !bytes.Equal(repo.Read(t, out("job"), "out", name), repo.Read(t, out("run"), name)) {
			t.Errorf("plan and collect: %s differs from that of run, or no bad run ended a pass (exit %d): %s", name, code, talk)
		}
	}
}

func TestBadRunsAmongOthers(t *testing.T) { testBadRuns(t, 8) }

// TestEvalBadRuns is the same on fifty runs.
func TestEvalBadRuns(t *testing.T) {
	repo.NeedEval(t)
	testBadRuns(t, 50)
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
