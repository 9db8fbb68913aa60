package extract

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/trace"
)

// TestErrorsThatEndAll: tables that cannot be written and a context that ended concern every run; what is wrong in one
// run folder concerns that one.
func TestErrorsThatEndAll(t *testing.T) {
	x := &extraction{o: &Options{Out: "out"}}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"a damaged file", context.Background(), trace.Errorf("bad_record", "x"), false},
		{"the context", ended, trace.Errorf("bad_record", "x"), true},
		{"files of another program", context.Background(), trace.Errorf(CodeNotOurs, "x"), true},
		{"a name that cannot be given", context.Background(), fmt.Errorf("x: %w", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: fs.ErrPermission}), true},
		{"a table", context.Background(), fmt.Errorf("x: %w", &fs.PathError{Op: "open", Path: filepath.Join("out", "tables", "a", "steps.parquet"), Err: fs.ErrPermission}), true},
		{"a file of the run folder", context.Background(), &fs.PathError{Op: "open", Path: filepath.Join("in", "tables", "a"), Err: fs.ErrPermission}, false},
		{"a document", context.Background(), &fs.PathError{Op: "open", Path: filepath.Join("out", "extract.json"), Err: fs.ErrPermission}, false},
	} {
		if got := x.endsAll(c.ctx, c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestErrorsOfDumps: a file without a run.yaml beside it is named in the error, because it may have been taken for a
// dump; with one the error is that of run.yaml.
func TestErrorsOfDumps(t *testing.T) {
	const bad = "model: 7\n"
	settings := []string{"model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name=H100-SXM-80GB", "vllm.version=0.19.0", "tensor_parallel_size=1",
		"vllm.max_num_seqs=128", "vllm.max_num_batched_tokens=2048"}
	for _, c := range []struct {
		name    string
		runFile string // "": none
		isDump  bool
		set     []string
		isBad   bool
		isNamed bool
	}{
		{"a dump alone", "", true, nil, true, true},
		{"a dump with settings", "", true, settings, false, false},
		{"a dump beside a bad run.yaml", bad, true, nil, true, false},
		{"a folder with a bad run.yaml", bad, false, nil, true, false},
	} {
		dir := t.TempDir()
		dump := filepath.Join(dir, "spans.jsonl")
		if err := os.WriteFile(dump, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.runFile != "" {
			if err := os.WriteFile(filepath.Join(dir, deploy.RunFile), []byte(c.runFile), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		arg := dir
		if c.isDump {
			arg = dump
		}
		runs, err := Find([]string{arg}, c.set...)
		if err != nil || len(runs) != 1 {
			t.Errorf("%s: got %+v, %v", c.name, runs, err)
			continue
		}
		if got := runs[0].Bad; (got != nil) != c.isBad || c.isBad && strings.HasPrefix(got.Error(), dump+": ") != c.isNamed {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
	if _, err := Find([]string{t.TempDir()}); err == nil || trace.CodeOf(err) != CodeNoRuns {
		t.Errorf("an empty folder: got %v", err)
	}
}

// TestWithoutRunFile: dumps below a folder are named where no run.yaml is beside or above them. What is below a run
// folder, hidden, linked or our own is not.
func TestWithoutRunFile(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"run/run.yaml", "run/traces.jsonl", "run/old/traces.jsonl", "forgotten/traces.jsonl.zst", "forgotten/more.pb",
		"deep/er/spans.pb.gz", "results/rejected.jsonl", "results/fit.json", ".hidden/traces.jsonl", "notes/readme.md", "dir/x.jsonl/readme.md"} {
		path := filepath.Join(parent, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"."}, []string{"deep/er/spans.pb.gz", "forgotten/traces.jsonl.zst"}},
		{[]string{"run", "deep"}, []string{"deep/er/spans.pb.gz"}},
		{[]string{"run"}, nil},
		{[]string{"run/traces.jsonl"}, nil},
	} {
		var args []string
		for _, arg := range c.args {
			args = append(args, filepath.Join(parent, arg))
		}
		found, err := findRuns(args)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range WithoutRunFile(args, found) {
			rel, err := filepath.Rel(parent, path)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, filepath.ToSlash(rel))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.args, got, c.want)
		}
	}
}

// TestOffsetsAtTheEdges: phases of 100 s and files of 60 s by a clock 1000 s ahead; files of 200 s are in no phase. The
// offset is used from two files on that make more than half, or for the only one.
func TestOffsetsAtTheEdges(t *testing.T) {
	const s = int64(1e9)
	all := []deploy.Phase{{Name: "a", StartNs: 0, EndNs: 100 * s}, {Name: "b", StartNs: 200 * s, EndNs: 300 * s}, {Name: "c", StartNs: 400 * s, EndNs: 500 * s},
		{Name: "d", StartNs: 600 * s, EndNs: 700 * s}}
	load := func(name string, fromS, toS int64) clients.Load {
		return clients.Load{Name: name, StartNs: fromS * s, EndNs: toS * s}
	}
	fits := []clients.Load{load("a", 1020, 1080), load("b", 1220, 1280)}
	long := []clients.Load{load("x", 1300, 1500), load("y", 1500, 1700)}
	moved := deploy.Phase{Name: "a", StartNs: 980 * s, EndNs: 1080 * s}
	own := deploy.Phase{Name: "a", Load: deploy.LoadOpen, StartNs: 1020 * s, EndNs: 1080 * s}
	for _, c := range []struct {
		name   string
		phases int
		loads  []clients.Load
		want   string
		first  deploy.Phase
	}{
		{"the only one", 1, fits[:1], "with the stamps as they are, 0 of 1 requests lie in a phase and 0 of 1 files in one of their own, with the offset 1; ", moved},
		{"two of three", 3, slices.Concat(fits, long[:1]), "0 of 3 files in one of their own, with the offset 2; ", moved},
		{"two of four", 4, slices.Concat(fits, long), "brings more than 2 of 4 files into one phase each: the phases are not used", own},
		{"one of two", 2, slices.Concat(fits[:1], long[:1]), "brings more than 1 of 2 files into one phase each: the phases are not used", own},
		{"more files than phases", 1, fits, "0 of 2 files in one of their own, with the offset 1; ", moved},
	} {
		x := &extraction{run: &RunDir{Deployment: &deploy.Deployment{Phases: slices.Clone(all[:c.phases])}}, spans: &collector{}}
		x.dep = x.run.Deployment
		x.observed = []trace.ObservedRequest{{SendNs: trace.Some(1030 * s)}}
		x.alignPhases(c.loads)
		if got := strings.Join(textsOf(x.clients), "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if d := cmp.Diff(c.first, x.dep.Phases[0]); d != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, d)
		}
	}
}
