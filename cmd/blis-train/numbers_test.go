package main

import (
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// TestEveryCountHasALimit: each flag that counts something has a largest value; a seed counts nothing.
func TestEveryCountHasALimit(t *testing.T) {
	for _, l := range leaves() {
		for _, f := range l.Flags {
			switch option.Plain(f).(type) {
			case *cli.IntFlag, *cli.Int64Flag:
				if name := f.Names()[0]; name != "seed" && !option.HasMost(name) {
					t.Errorf("%s --%s has no largest value in internal/option/counts.go", l.name, name)
				}
			}
		}
	}
}

// TestNumbersAreWhatTheyLook: flags and settings are decimal numbers of a sensible size, or refused as a mistake of
// the call.
func TestNumbersAreWhatTheyLook(t *testing.T) {
	predict := []string{"predict", "--model", "qwen3-8b", "--hardware", "H100"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(predict, "--tp", "010"), `--tp: got "010", want a decimal number`},
		{append(predict, "--tp=0x2"), `--tp: got "0x2", want a decimal number`},
		{append(predict, "--input-len", "1_000"), `--input-len: got "1_000", want a decimal number`},
		{append(predict, "--rate", "0x1p4"), `--rate: got "0x1p4", want a decimal number`},
		{append(predict, "--input-len", "9223372036854775807"), "--input-len: got 9223372036854775807, want at most 10000000"},
		{append(predict, "--input-len", "99999999999999999999"), "--input-len: got 99999999999999999999, want at most 10000000"},
		{[]string{"fit", "out", "-o", "out", "--bootstraps", "9223372036854775807"}, "--bootstraps: got 9223372036854775807, want at most 100000"},
		{[]string{"queue", "size", "queue.json", "--simulate", "1000000000000"}, "--simulate: got 1000000000000, want at most 10000000"},
		{[]string{"plan", "in", "-o", "plan.json", "--part-bytes", "9223372036854775807"}, "--part-bytes: got 9223372036854775807, want at most"},
		{[]string{"plan", "in", "-o", "plan.json", "--part-bytes", "-7"}, `--part-bytes: got "-7", want a whole number >= 0`},
		{[]string{"fit", "out", "--workers", "-2"}, `--workers: got "-2", want a whole number >= 0`},
		{[]string{"simulate", "--seed=-1"}, `--seed: got "-1", want a whole number >= 0`},
		{[]string{"queue", "validate", "queue.json", "out", "--simulate", "-5"}, "--simulate: got -5 requests, want >= 0"},
		{[]string{"queue", "size", "queue.json", "--ttft-ms", "0"}, "--ttft-ms: got 0, want more than 0"},
		{[]string{"queue", "size", "queue.json", "--itl-ms", "0.0"}, "--itl-ms: got 0, want more than 0"},
		{[]string{"queue", "size", "queue.json", "--tps", "0"}, "--tps: got 0, want more than 0"},
		{[]string{"queue", "size", "queue.json", "--prompt-tokens", "0"}, "--prompt-tokens: got 0, want more than 0"},
		{[]string{"queue", "size", "queue.json", "--output-tokens", "0"}, "--output-tokens: got 0, want more than 0"},
		{[]string{"queue", "size", "queue.json", "--concurrency", "0"}, "--concurrency: got 0, want more than 0"},
		{[]string{"queue", "fit", "out", "--hop", "0s"}, "--hop: got 0s, want more than 0"},
		{[]string{"queue", "fit", "out", "--window", "0s"}, "--window: got 0s, want more than 0"},
		{[]string{"inspect", "../../testdata/traces/smoke", "--set", "tensor_parallel_size=010"}, `setting tensor_parallel_size: got "010"`},
	} {
		var stderr strings.Builder
		code := run(append([]string{"blis-train"}, c.args...), strings.NewReader(""), io.Discard, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: got exit %d, %q, want %d and %q", c.args, code, stderr.String(), exitUsage, c.want)
		}
	}
}
