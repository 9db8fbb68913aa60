package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/simulate"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// simulateInto runs a small simulation with the flags and returns its folder.
func simulateInto(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	repo.Write(t, loopRunText(false), dir, "run.yaml")
	repo.Write(t, loopConfig, dir, "config.json")
	repo.Write(t, plantedFile(t), dir, "planted.yaml")
	load := "requests: 60\narrivals: {kind: bursts, burst: 10, every_s: 1}\nprompt: {kind: uniform, min: 5, max: 900}\noutput: {kind: " +
		"empirical, values: [1, 20, 60]}\nclasses: [{name: chat, share: 3, ttft_ms: 60}, {name: batch, share: 1}]\n"
	repo.Write(t, load, dir, "load.yaml")
	out := filepath.Join(dir, "out")
	args := append([]string{"simulate", "--coefficients", filepath.Join(dir, "planted.yaml"), "--deployment", filepath.Join(dir, "run.yaml"),
		"--workload", filepath.Join(dir, "load.yaml"), "-o", out, "--quiet"}, flags...)
	command(t, exitOK, args...)
	return out
}

// simulation.json follows its schema, and requests.parquet has a row per request.
func TestSimulationFollowsItsSchema(t *testing.T) {
	for _, flags := range [][]string{nil, {"--replications", "3", "--seed", "7"}} {
		out := simulateInto(t, flags...)
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", "simulation.schema.json"))
		must(t, err)
		data, err := os.ReadFile(filepath.Join(out, folder.SimulationFile))
		must(t, err)
		var doc any
		must(t, json.Unmarshal(data, &doc))
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%v: %v", flags, err)
		}
		c, err := table.Open[sim.RequestResult](out, "requests")
		must(t, err)
		var rows []sim.RequestResult
		for c.Next() {
			rows = append(rows, *c.Row())
		}
		must(t, c.Err())
		must(t, c.Close())
		if len(rows) != 60 || rows[0].Outcome != "finished" || !rows[0].TTFTMs.OK {
			t.Errorf("%d rows, first %+v", len(rows), rows[0])
		}
	}
}

// A simulation in which no request completes fails and says why; one that is outside what its coefficients were
// trained on is warned of and done.
func TestSimulateSaysWhatItLacks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(loopRunText(false)), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(loopConfig), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "planted.yaml"), plantedFile(t), 0o644))
	args := []string{"blis-train", "simulate", "--coefficients", filepath.Join(dir, "planted.yaml"), "--deployment",
		filepath.Join(dir, "run.yaml"), "-o", filepath.Join(dir, "out"), "--output-len", "5", "--num-prompts", "3"}
	for _, c := range []struct {
		exit  int
		flags []string
		want  []string
	}{
		{exitFailed, []string{"--input-len", "1000000"},
			[]string{"3 rejected: prompt_exceeds_max_model_len", "no request completed"}},
		{exitOK, []string{"--input-len", "10", "--set", "vllm.version=0.99.0", "--set", "model.id=some/other"},
			[]string{"outside_training: vllm", "outside_training: model"}},
	} {
		var said bytes.Buffer
		code := run(append(args, c.flags...), strings.NewReader(""), io.Discard, &said)
		for _, want := range c.want {
			if code != c.exit || !strings.Contains(said.String(), want) {
				t.Errorf("%v: got exit %d and %s, want %d and %s", c.flags, code, said.String(), c.exit, want)
			}
		}
	}
}

// The same inputs give the same bytes, whatever the number of workers and the folder.
func TestSimulateIsDeterministic(t *testing.T) {
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		return b
	}
	a := simulateInto(t, "--replications", "4", "--workers", "1")
	b := simulateInto(t, "--replications", "4", "--workers", "4")
	for _, name := range []string{folder.SimulationFile, "requests.parquet"} {
		if !bytes.Equal(read(a, name), read(b, name)) {
			t.Errorf("%s differs between 1 and 4 workers", name)
		}
	}
}

// Delays say where they extrapolate, as step times do.
func TestSimulateWarnsWhereDelaysExtrapolate(t *testing.T) {
	doc := artifactFit()
	for i, c := range doc.Alpha[0].Coefficients {
		if c.Name == "admission_compute" {
			doc.Alpha[0].Coefficients[i].Range = &[2]float64{0, 1e-6}
		}
	}
	set, err := fit.Native(doc, nil)
	must(t, err)
	cfg, err := sim.EngineOf(&doc.Configs[0].Deployment, set)
	must(t, err)
	_, err = sim.Run(cfg, []sim.Request{{ID: "a", PromptTokens: 500, OutputTokens: 3, MaxTokens: 3}}, nil)
	must(t, err)
	var said []string
	for _, f := range simulate.WarningsOf(&cfg) {
		said = append(said, string(f.Code)+" "+f.Message)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "outside_training overhead: admission_compute exceeds 1.5 x") {
		t.Errorf("got %q, want one warning about the overhead's admission_compute", said)
	}
}

// A fit that cannot measure the lag and a simulation of the same run.yaml
// agree on asynchronous scheduling, whatever the version says.
func TestFitAndSimulationAgreeOnAsyncScheduling(t *testing.T) {
	for _, version := range []string{"0.11.0", "0.13.2", "0.14.0", "0.15rc1", "0.15.1", "nightly", "main", "", "0.1.dev7+gabc"} {
		d := &deploy.Deployment{Engine: deploy.Engine{VLLMVersion: version}}
		async := sim.DefaultConfig(d, nil).Async
		if lag := rows.AssumedLag(d); (lag == 1) != async {
			t.Errorf("version %q: the fit assumes lag %d, the simulator schedules asynchronously: %v", version, lag, async)
		}
	}
}
