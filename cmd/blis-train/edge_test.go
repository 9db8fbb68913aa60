package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/mattn/go-runewidth"
	"github.com/urfave/cli/v2"
)

// A panic of ours, wherever it happens, is one error that says what, where and
// how to report it: exit 1 and no stack.
func TestPanicIsOneErrorWithAPlace(t *testing.T) {
	for name, action := range map[string]cli.ActionFunc{
		"here": func(*cli.Context) error { panicsHere(nil); return nil },
		"in a worker": func(*cli.Context) error {
			par.Each(4, 8, func(_, i int) { panicsHere(nil) })
			return nil
		},
	} {
		var stderr bytes.Buffer
		app := &cli.App{Action: action, ExitErrHandler: func(*cli.Context, error) {}}
		err := runRecovered(context.Background(), app, []string{"blis-train"})
		if code := (&session{}).exitCode(&stderr, err); code != exitFailed {
			t.Errorf("%s: got exit %d, want %d", name, code, exitFailed)
		}
		text := stderr.String()
		if strings.Count(text, "\n") != 2 || strings.Contains(text, "goroutine") ||
			!strings.HasPrefix(text, "error: blis-train: this is our mistake") ||
			!strings.Contains(text, "index out of range [3] with length 0, in cmd/blis-train.panicsHere (edge_test.go:") ||
			!strings.Contains(text, "\nhint: please report it at https") {
			t.Errorf("%s: got %s", name, text)
		}
	}
}

func panicsHere(list []int) int { return list[3] }

// The first interrupt asks, the second ends: also in a call that hears nothing.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	if _, err := exec.LookPath("mkfifo"); err != nil {
		t.Skip("no mkfifo")
	}
	fifo := t.TempDir() + "/fifo"
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Skipf("mkfifo: %v %s", err, out)
	}
	cmd := blisTrain("init", "--from-log", fifo, "--allow-special")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits until the command reads, and keeps it waiting
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 200 {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
				t.Errorf("got %v, want exit %d", err, exitInterrupted)
			}
			return
		case <-after(50):
			interrupt(cmd)
		}
	}
	cmd.Process.Kill()
	t.Error("two hundred interrupts did not end it")
}

// A full disk fails the write and the close of one file: that is one error.
func TestErrorsAreToldOnce(t *testing.T) {
	var stderr bytes.Buffer
	full := errors.New("write rows.bin: no space left on device")
	(&session{}).exitCode(&stderr, errors.Join(full, errors.Join(full, errors.New("close index.json: gone"))))
	if want := "error: write rows.bin: no space left on device\nerror: close index.json: gone\n" +
		"hint: free some space, or write elsewhere: df -h shows what is left\n"; stderr.String() != want {
		t.Errorf("got %s, want %s", stderr.String(), want)
	}
}

// TestInterruptedExtract: SIGINT in the middle of an extraction, while its
// input is silent, exits 130 with one line and removes what it had started.
func TestInterruptedExtract(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	for _, name := range []string{"run.yaml", "config.json", "kv_events.jsonl"} {
		copyFile(t, filepath.Join("../../testdata/traces/smoke", name), filepath.Join(dir, name))
	}
	dump := repo.Read(t, "../../testdata/traces/smoke/traces.jsonl")
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

// TestInterruptedSimulation: a simulation that would take minutes ends at the
// first interrupt.
func TestInterruptedSimulation(t *testing.T) {
	dir := t.TempDir()
	load := filepath.Join(dir, "load.yaml")
	text := "requests: 3\narrivals: {kind: constant, rate_rps: 1}\nprompt: {kind: constant, value: 10}\noutput: {kind: constant, value: " +
		"16000000}\n"
	keys := filepath.Join(dir, "keys.yaml")
	repo.Write(t, text, load)
	repo.Write(t, "simulate: {kv-blocks: 16000000}\n", keys)
	cmd := blisTrain("simulate", "--latency-model", "roofline", "--deployment", "../../testdata/traces/smoke", "--workload", load,
		"--set", "vllm.max_model_len=20000000", "--config", keys, "-o", filepath.Join(dir, "out"))
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
	whole := filepath.Join(t.TempDir(), "whole")
	out := filepath.Join(t.TempDir(), "out")
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
	repo.Write(t, append(text[:bytes.LastIndexByte(text, '\n')+1], []byte(`{"policy":"proba`)...), log)
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

// A table keeps to the terminal's width: cells are wrapped first, and a very
// narrow terminal gets a list with every cell.
func TestTableKeepsToTheWidth(t *testing.T) {
	header := cells{"run", "read", "note"}
	rows := []cells{{"cpu-gqa-async", 20198, "the cadence is the step time; the duration is scheduler CPU time"}, {"b", 1, ""}}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, " cpu-gqa-async │ 20,198 │ the cadence is the step time; the duration is scheduler CPU time\n"},
		{60, " cpu-gqa-async │ 20,198 │ the cadence is the step time;\n"},
		{30, "   note: the cadence is the\n     step time; the duration\n"},
	} {
		got := tableOf("a title", header, rows).Terminal(c.width)
		if !strings.HasPrefix(got, " a title\n") || !strings.Contains(got, c.want) {
			t.Errorf("width %d: got\n%s\nwant %q in it", c.width, got, c.want)
		}
		for _, line := range strings.Split(got, "\n") {
			if n := runewidth.StringWidth(line); c.width > 0 && n > c.width {
				t.Errorf("width %d: %d columns: %q", c.width, n, line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("width %d: trailing blanks: %q", c.width, line)
			}
		}
		for _, word := range []string{"20,198", "scheduler", "CPU"} {
			if !strings.Contains(got, word) {
				t.Errorf("width %d: %q is lost:\n%s", c.width, word, got)
			}
		}
	}
}
