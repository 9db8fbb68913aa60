// Package testkit holds deployments, coefficients and fits that tests of several packages
// share. Besides internal/repo it imports only packages of data types (coeff, deploy, result, trace, vllm), all of them
// in low layers (internal/arch), so that the tests of almost every other package can import it without a cycle.
package testkit

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Scripts runs the scenarios of testdata/*.txt. It calls run with the text above the line ---, and
// compares the result with the text below it. With update it writes the result there in place of
// comparing.
func Scripts(t *testing.T, update bool, run func(t *testing.T, head string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, want, _ := strings.Cut(string(data), "---\n")
			got := run(t, head)
			if update {
				if err := os.WriteFile(file, []byte(head+"---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("differs; got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Pairs returns the key=value words of a line of a script. Lines count from 0.
func Pairs(t *testing.T, line int, words []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("line %d: got %q, want key=value", line+1, w)
		}
		out[k] = v
	}
	return out
}

// Usage returns the server's own count of the prompt tokens that each request found in its prefix
// cache, by the request's id in the bench file. It reads usage_PHASE.jsonl.zst of a recording.
func Usage(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	names, err := filepath.Glob(filepath.Join(dir, "usage_*.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		phase := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "usage_"), ".jsonl.zst")
		for line := range bytes.Lines(Unpacked(t, name)) {
			var u struct {
				Index  int   `json:"index"`
				Cached int64 `json:"cached_tokens"`
			}
			if err := json.Unmarshal(line, &u); err != nil {
				t.Fatal(err)
			}
			out[fmt.Sprintf("%s-%d", phase, u.Index)] = u.Cached
		}
	}
	return out
}

// WithoutUsage returns a copy of a recording without its usage_PHASE.jsonl.zst, so that the log and the
// counters alone show what was cached.
func WithoutUsage(t testing.TB, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	for _, name := range names {
		if !strings.HasPrefix(filepath.Base(name), "usage_") {
			repo.Write(t, repo.Read(t, name), to, filepath.Base(name))
		}
	}
	return to
}

// Unpacked returns the content of a zstd file.
func Unpacked(t testing.TB, name string) []byte {
	t.Helper()
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := r.DecodeAll(repo.Read(t, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

//go:embed data
var data embed.FS

// read returns a document of the folder data.
func read[T any](name string) *T {
	text, err := data.ReadFile("data/" + name + ".json")
	v := new(T)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return v
}

// Ptr returns a pointer to a value.
func Ptr(v float64) *float64 { return &v }

// DeploymentOf returns an 8B model on H100 with the given tp.
func DeploymentOf(tp int64) deploy.Deployment {
	d := ExampleFit().Configs[0].Deployment
	d.TP = tp
	return d
}

// ExampleFit returns a fit with every part that exporters read. Tests may change it.
func ExampleFit() *result.Fit { return read[result.Fit]("example_fit") }

// PhysicsFit returns ExampleFit with beta and alpha coefficients of spec 1.1, in an order that is
// not sorted on purpose.
func PhysicsFit() *result.Fit { return read[result.Fit]("physics_fit") }

// Llama8B returns Llama-3.1-8B on one H100 with vLLM's defaults.
func Llama8B() *deploy.Deployment { return read[deploy.Deployment]("llama8b") }

// Small returns a deployment for scenarios: max_num_seqs 4, 64 tokens a step, blocks of 4 tokens.
func Small(blocks int64, mutate ...func(*vllm.Engine)) *deploy.Deployment {
	d := read[deploy.Deployment]("small")
	d.Engine.KVBlocksGPU = trace.Some(blocks)
	for _, m := range mutate {
		m(&d.Engine)
	}
	return d
}

// Planted returns a coefficient set with step times roughly like those of an H100.
func Planted() *coeff.Set { return read[coeff.Set]("planted") }

// PlantedOn returns a coefficient set with steps of some tens of milliseconds on the deployment's
// machine.
func PlantedOn(dep *deploy.Deployment) *coeff.Set {
	set := read[coeff.Set]("planted_on")
	set.Configs = []coeff.Config{coeff.ConfigOf(dep, []string{"planted"}, 1000)}
	return set
}
