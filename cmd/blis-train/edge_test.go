package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
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
		err := attempt(context.Background(), app, []string{"blis-train"})
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
	if want := "error: write rows.bin: no space left on device\nerror: close index.json: gone\n"; stderr.String() != want {
		t.Errorf("got %s, want %s", stderr.String(), want)
	}
}
