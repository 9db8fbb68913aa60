package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// closing is a stream whose reader leaves after some bytes.
type closing struct {
	left int
	err  error
	lost bool // something was written after the reader had left
}

func (c *closing) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		c.lost = true
		return 0, c.err
	}
	return len(p), nil
}

// TestLostOutputIsAFailure: a command whose output is not read to its end does not exit 0, wherever the
// reader leaves and whether the stream is a closed pipe or closed from the start.
func TestLostOutputIsAFailure(t *testing.T) {
	smoke := filepath.Join("..", "..", "testdata", "traces", "smoke")
	coefficients := filepath.Join("..", "..", "coeff", "testdata", "example", "coefficients.yaml")
	calls := [][]string{
		{"--help"}, {"--version"}, {"help", "all"}, {"completion", "bash"}, {"completion", "zsh"}, {"completion", "powershell"},
		{"explain"}, {"explain", "paired_err_ttft"},
		{"validate", "--gate", "list"},
		{"predict", "--model", "Llama-3.1-8B", "--hardware", "H100", "--json"},
		{"inspect", smoke}, {"inspect", smoke, "--json"}, {"extract", smoke, "-o", "OUT", "--json"},
		{"check", coefficients}, {"check", coefficients, "--json"}, {"diff", coefficients, coefficients},
		{"diff", coefficients, coefficients, "--json"},
	}
	for _, c := range allCommands() {
		calls = append(calls, []string{c.name, "--help"})
		for _, sub := range c.make().Subcommands {
			calls = append(calls, []string{c.name, sub.Name, "--help"})
		}
	}
	tried := 0
	for _, args := range calls {
		do := func(stdout io.Writer) int {
			full := []string{"blis-train"}
			for _, a := range args {
				full = append(full, strings.Replace(a, "OUT", filepath.Join(t.TempDir(), "out"), 1))
			}
			return run(full, strings.NewReader(""), stdout, io.Discard)
		}
		var whole bytes.Buffer
		code := do(&whole)
		if whole.Len() == 0 {
			t.Logf("%v: exit %d without output", args, code)
			continue
		}
		tried++
		for _, end := range []closing{
			{left: 0, err: syscall.EPIPE},
			{left: whole.Len() - 1, err: syscall.EPIPE},
			{left: 0, err: syscall.EBADF},
		} {
			// An output with elapsed times may be a few bytes shorter than the first time.
			if got := do(&end); end.lost && (got == exitOK || got == exitGate) {
				t.Errorf("%v: exit %d, want 1 for %d bytes of which some were lost to %v", args, got, whole.Len(), end.err)
			}
		}
	}
	if tried < 40 {
		t.Errorf("got %d calls with output, want 40 or more", tried)
	}
}
