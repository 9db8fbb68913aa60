package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakesInTheCallExitWithTwo: what is wrong with the call itself, a flag's value, a word that names no
// command, code, model or file, has the exit status of usage mistakes in every command.
func TestMistakesInTheCallExitWithTwo(t *testing.T) {
	smoke := filepath.Join("..", "..", "testdata", "traces", "smoke")
	coefficients := filepath.Join("..", "..", "coeff", "testdata", "example", "coefficients.yaml")
	out := filepath.Join(t.TempDir(), "out")
	predict := []string{"predict", "--model", "Llama-3.1-8B", "--hardware", "H100"}
	for _, args := range [][]string{
		{"nope"}, {"explain", "nope"}, {"completion", "tcsh"}, {"queue", "nope"}, {"library", "nope"}, {"predictor", "nope"},
		{"predict", "--model", "Nope", "--hardware", "H100"}, {"predict", "--model", "./nope", "--hardware", "H100"},
		{"predict", "--model", "Llama-3.1-8B", "--hardware", "Q9"}, append(predict, "--tp", "0"), append(predict, "--tp", "x"),
		append(predict, "--vllm", "--nonsense 3"), append(predict, "--vllm", "--block-size 7"),
		append(predict, "--vllm", "--max-num-seqs 0"), append(predict, "--vllm", "--kv-cache-memory-bytes -5"),
		append(predict, "--vllm", "--cudagraph-capture-sizes 0"),
		{"run", "nope", "-o", out}, {"extract", "nope", "-o", out}, {"fit", "nope", "-o", out}, {"validate", "nope"},
		{"export", "nope", "-o", out}, {"check", "nope"}, {"check", coefficients, "--against", "nope"}, {"diff", "nope", coefficients},
		{"plan", "nope", "-o", out}, {"collect", "nope"}, {"log", "nope"}, {"init", "--from-log", "nope"},
		{"queue", "fit", "nope", "-o", out}, {"predictor", "fit", "nope", "-o", out}, {"features", "nope"},
		{"run", smoke, "-o", out, "--config=nope.yaml"}, {"fit", smoke, "-o", out, "--model", "nope"},
		{"extract", smoke, "-o", out, "--format", "csv"}, {"extract", smoke, "-o", out, "--max-line", "x"},
		{"simulate", "--deployment", "nope", "--workload", smoke, "--coefficients", coefficients, "-o", out},
		{"simulate", "--deployment", smoke, "--workload", "nope", "--coefficients", coefficients, "-o", out},
		{"simulate", "--deployment", smoke, "--workload", smoke, "--coefficients", "nope", "-o", out},
	} {
		var stderr strings.Builder
		code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &stderr)
		if code != exitUsage || !strings.HasPrefix(stderr.String(), "error: ") {
			t.Errorf("%v: exit %d, want 2: %.200s", args, code, stderr.String())
		}
	}
}
