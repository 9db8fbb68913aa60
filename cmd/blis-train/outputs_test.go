package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestOutputsKeepInputFolders: no output, of a flag or of a key of pipeline.yaml, replaces a file inside of a folder that the
// command reads, unless that is an earlier output of the same kind.
func TestOutputsKeepInputFolders(t *testing.T) {
	dir := t.TempDir()
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
		repo.Write(t, string(repo.Read(t, smoke, name)), dir, "rec", name)
	}
	in := func(name string) string { return filepath.Join(dir, "rec", name) }
	rec := filepath.Join(dir, "rec")
	repo.Write(t, "x", in("sub/notes.txt"))
	repo.Write(t, "<?xml version=\"1.0\"?>\n<testsuites></testsuites>\n", in("gates.xml"))
	repo.Write(t, `{"schema_version":"1","time":"x","stage":"run"}`+"\n", in("ledger.jsonl"))
	repo.Write(t, "", in("empty.xml"))
	keys := filepath.Join(dir, "keys.yaml")
	repo.Write(t, "run: {ledger: "+in("traces.jsonl")+"}\nfit: {save-gram: "+in("kv_events.jsonl")+"}\n", keys)
	gram := filepath.Join(dir, "gram.yaml")
	repo.Write(t, "fit: {save-gram: "+in("traces.jsonl")+"}\n", gram)
	out := filepath.Join(dir, "out")
	// What passes ends at the next mistake, before anything is read: an unknown gate.
	const next = `bad_gate: gates: got "none"`
	for _, c := range []struct {
		args []string
		want string // of the error
	}{
		{[]string{"run", rec, "--junit", in("traces.jsonl")}, "--junit: got " + in("traces.jsonl") + ", a file in " + rec + ", which the command reads, want another file"},
		{[]string{"run", rec, "--ledger", in("kv_events.jsonl")}, "--ledger: got " + in("kv_events.jsonl") + ", a file in"},
		{[]string{"run", dir, "--ledger", in("sub/notes.txt")}, "--ledger: got " + in("sub/notes.txt") + ", a file in " + dir},
		{[]string{"run", filepath.Join(dir, "r*"), "--junit", in("config.json")}, "a file in " + rec},
		{[]string{"run", in("traces.jsonl"), "--junit", in("config.json")}, "a file in " + rec},
		{[]string{"run", rec, "--config", keys}, "--ledger: got " + in("traces.jsonl") + ", a file in"},
		{[]string{"run", rec, "--config", gram}, "--save-gram: got " + in("traces.jsonl") + ", a file in"},
		{[]string{"run", rec, "--ledger", in("gates.xml")}, "--ledger: got " + in("gates.xml") + ", a file in"},
		{[]string{"run", rec, "--junit", in("gates.xml"), "--ledger", in("ledger.jsonl")}, next},
		{[]string{"run", rec, "--junit", in("empty.xml"), "--ledger", in("new.jsonl")}, next},
		{[]string{"run", rec, "--junit", filepath.Join(dir, "keys.yaml")}, next}, // not in the folder that is read
		{[]string{"simulate", "--deployment", rec, "--workload", rec, "--emit-otlp", in("traces.jsonl")}, "--emit-otlp: got " + in("traces.jsonl") + ", a file in"},
		{[]string{"simulate", "--deployment", rec, "--workload", keys, "--emit-otlp", in("kv_events.jsonl")}, "--emit-otlp: got " + in("kv_events.jsonl") + ", a file in"},
		{[]string{"export", rec, "--format", "card", "--out", in("traces.jsonl")}, "--out: got " + in("traces.jsonl") + ", a file in"},
	} {
		args := c.args
		if args[0] == "run" {
			args = append(args, "-o", out, "--gate", "none=1")
		}
		before := string(repo.Read(t, in("traces.jsonl"))) + string(repo.Read(t, in("kv_events.jsonl")))
		_, _, stderr := called(args...)
		if !strings.Contains(stderr, c.want) || strings.Contains(stderr, ", a file in ") != strings.Contains(c.want, "a file in") {
			t.Errorf("%q: got %s, want %s", args, stderr, c.want)
		}
		if string(repo.Read(t, in("traces.jsonl")))+string(repo.Read(t, in("kv_events.jsonl"))) != before {
			t.Fatalf("%q: an input was replaced", args)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("got an output folder")
	}
}
