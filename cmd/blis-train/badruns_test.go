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

	"github.com/klauspost/compress/zstd"

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

// TestRunYAMLAgainstTheRecording: what the log of a server, or its steps, say otherwise than run.yaml is a warning with the
// key; pages of one line that cannot be are told too. The sound folder has none.
func TestRunYAMLAgainstTheRecording(t *testing.T) {
	log, err := zstd.NewReader(nil)
	noErr(t, err)
	stock, smoke := filepath.Join(repo.Root(t), "testdata", "traces", "stock"), filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	text, err := log.DecodeAll(repo.Read(t, stock, "server.log.zst"), nil)
	noErr(t, err)
	lines := strings.Split(string(text), "\n")[:900]
	const iteration = "Iteration(500)"
	for _, c := range []struct{ from, file, old, new, says string }{
		{stock, "run.yaml", "name: stock", "name: stock", ""}, {smoke, "run.yaml", "name:", "name:", ""},
		{stock, "run.yaml", "max_num_seqs: 16", "max_num_seqs: 1024", "vllm.max_num_seqs: the log says 16, run.yaml 1024"},
		{stock, "run.yaml", "max_num_batched_tokens: 1024", "max_num_batched_tokens: 100", "vllm.max_num_batched_tokens: run.yaml says 100, "},
		{stock, "run.yaml", "max_model_len: 4096", "max_model_len: 9000", "vllm.max_model_len: the log says 4096"},
		{stock, "run.yaml", "version: 0.32.0", "version: 0.11.0", "vllm.version: the log says 0.32.0"},
		{stock, "run.yaml", "block_size: 128", "block_size: 16", "vllm.block_size: the log says 128"},
		{stock, "run.yaml", "kv_blocks_total_gpu: 1024", "kv_blocks_total_gpu: 10", "vllm.kv_blocks_total_gpu: the log says 1023"},
		{stock, "run.yaml", "kv_cache_dtype: bfloat16", "kv_cache_dtype: fp8", "model.kv_cache_dtype: the log says auto"},
		{stock, "run.yaml", "enable_prefix_caching: true", "enable_prefix_caching: false", "vllm.enable_prefix_caching: the log says true"},
		{stock, "run.yaml", "data_parallel_size: 1", "data_parallel_size: 2", "data_parallel_size: the log says 1"},
		{stock, "server.log", "tensor_parallel_size=1", "tensor_parallel_size=4", "tensor_parallel_size: the log says 4"},
		{stock, "server.log", "dtype=torch.bfloat16", "dtype=torch.float32", "model.dtype: the log says float32"},
		{stock, "run.yaml", "name: xeon-amx-1core", "name: H100", "hardware.name: the log says vLLM's CPU back end"},
		{stock, "run.yaml", "scheduling_policy: fcfs", "scheduling_policy: priority", "vllm.scheduling_policy: the log says fcfs"},
		{stock, "server.log", iteration, "Iteration(500.5)", "got a torn iteration"},
		{stock, "server.log", "iteration elapsed time: 54.09 ms", "iteration elapsed time: 0.00 ms", "want at least 1 for a pass with tokens"},
		{smoke, "run.yaml", "max_num_seqs: 4", "max_num_seqs: 2", "vllm.max_num_seqs: run.yaml says 2, "},
		{smoke, "run.yaml", "max_num_batched_tokens: 128", "max_num_batched_tokens: 64", "vllm.max_num_batched_tokens: run.yaml says 64, "},
		{smoke, "run.yaml", "num_gpu_blocks_override: 39\n  kv_blocks_total_gpu: 38", "kv_blocks_total_gpu: 99",
			"vllm.kv_blocks_total_gpu: run.yaml says 99, 55 of 55 steps"},
	} {
		dir := t.TempDir()
		for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
			if b, err := os.ReadFile(filepath.Join(c.from, name)); err == nil {
				repo.Write(t, string(b), dir, name)
			}
		}
		if c.from == stock {
			repo.Write(t, strings.Join(lines, "\n"), dir, "server.log")
		}
		was := string(repo.Read(t, dir, c.file))
		now := strings.Replace(was, c.old, c.new, 1)
		if now == was && c.says != "" {
			t.Fatalf("%s: nothing of %q", c.file, c.old)
		}
		repo.Write(t, now, dir, c.file)
		code, out, talk := program("extract", dir, "-o", filepath.Join(t.TempDir(), "out"), "--json", "--max-bad-frac", "1")
		if code != exitOK || !strings.Contains(out, c.says) || strings.Contains(out, "run_contradicted") && c.says == "" {
			t.Errorf("%s instead of %s: exit %d, want %q in the document: %s", c.new, c.old, code, c.says, talk)
		}
	}
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
