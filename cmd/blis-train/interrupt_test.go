package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestInterruptedExtract: SIGINT in the middle of an extraction, while its
// input is silent, exits 130 with one line and removes what it had begun.
func TestInterruptedExtract(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for _, name := range []string{"run.yaml", "config.json", "kv_events.jsonl"} {
		copyFile(t, filepath.Join("../../testdata/traces/smoke", name), filepath.Join(dir, name))
	}
	dump, err := os.ReadFile("../../testdata/traces/smoke/traces.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := blisTrain("extract", "-", "-o", out)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(dump[:len(dump)/2]); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(out, "tables", ".stage-blis-train-smoke"))
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("got %v, want exit %d; stderr %s", err, exitInterrupted, stderr.String())
	}
	if text := strings.TrimSpace(stderr.String()); strings.Count(text, "\n") != 0 || !strings.HasPrefix(text, "error: interrupted") {
		t.Errorf("got %q, want one line that says interrupted", text)
	}
	filepath.WalkDir(out, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() || strings.Contains(p, "stage") {
			t.Errorf("left behind: %s", p)
		}
		return err
	})
}

// TestInterruptedSimulation: a simulation that would take days ends at the
// first interrupt.
func TestInterruptedSimulation(t *testing.T) {
	dir := t.TempDir()
	load := filepath.Join(dir, "load.yaml")
	text := "requests: 3\narrivals: {kind: constant, rate_rps: 1}\nprompt: {kind: constant, value: 10}\noutput: {kind: constant, value: " +
		"200000000}\n"
	keys := filepath.Join(dir, "keys.yaml")
	must(t, os.WriteFile(load, []byte(text), 0o644))
	must(t, os.WriteFile(keys, []byte("simulate: {kv-blocks: 16000000}\n"), 0o644))
	cmd := blisTrain("simulate", "--latency-model", "roofline", "--deployment", "../../testdata/traces/smoke", "--workload", load,
		"--set", "vllm.max_model_len=240000000", "--config", keys, "-o", filepath.Join(dir, "out"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	waitFor(t, filepath.Join(dir, "out"))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	interrupt(cmd)
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
			t.Errorf("got %v, want exit %d; stderr %s", err, exitInterrupted, stderr.String())
		}
	case <-after(20_000):
		cmd.Process.Kill()
		t.Error("the simulation went on")
	}
}

// TestEvalKilledSearchGoesOn: a search that is killed in the middle, its last line cut
// off, ends with the calls and the document of one that was not.
func TestEvalKilledSearchGoesOn(t *testing.T) {
	repo.NeedEval(t)
	search := func(out string) *exec.Cmd {
		return blisTrain("experiment", "optimise", "--policy", "probabilistic", "--start", "2", "--calls", "1", "--train-seeds", "2",
			"--test-seeds", "2", "--num-instances", "2", "--controller", "same", "--quiet", "-o", out)
	}
	read := func(dir, name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		return text
	}
	whole, out := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "out")
	must(t, search(whole).Run())
	log := filepath.Join(out, "optimise.jsonl")
	cmd := search(out)
	must(t, cmd.Start())
	waitFor(t, log)
	for range 3000 {
		if text, _ := os.ReadFile(log); bytes.Count(text, []byte("\n")) >= 3 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("the search had ended before it was killed")
	}
	text := read(out, "optimise.jsonl")
	lines := bytes.Count(text, []byte("\n"))
	must(t, os.WriteFile(log, append(text[:bytes.LastIndexByte(text, '\n')+1], []byte(`{"policy":"proba`)...), 0o644))
	must(t, search(out).Run())
	if lines < 3 || !bytes.HasPrefix(read(out, "optimise.jsonl"), text) {
		t.Errorf("got %d lines before the kill, want 3 at least and kept", lines)
	}
	for _, name := range []string{"optimise.jsonl", "optimise.json"} {
		if a, b := read(whole, name), read(out, name); !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes after a kill, %d without, or other ones", name, len(b), len(a))
		}
	}
}

// waitFor waits until a path exists; the process that makes it may be slow.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for range 3000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", path)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := io.Copy(w, in); err != nil {
		t.Fatal(err)
	}
}

// blisTrain is the program itself as another process: TestMain runs the command
// of that name.
func blisTrain(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Args[0] = "blis-train"
	return cmd
}

func interrupt(cmd *exec.Cmd) { cmd.Process.Signal(os.Interrupt) }

func after(ms int) <-chan time.Time { return time.After(time.Duration(ms) * time.Millisecond) }
