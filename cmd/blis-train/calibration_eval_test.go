package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestEvalCalibrationTable: `run FOLDER --hardware H100` on recordings without their run.yaml. On what was held out, the
// calibrated server is nearer than the library alone, or no_gain says that it is not. The table has the relative error
// of step times, or of the median request's E2E where there are no steps.
func TestEvalCalibrationTable(t *testing.T) {
	repo.NeedEval(t)
	fmt.Printf("| %-28s | %-8s | %12s | %10s | %-7s | %s |\n|---|---|---|---|---|---|\n", "recording", "compared", "uncalibrated", "calibrated", "no_gain", "verdict")
	for _, pattern := range []string{"real_stock_otlp/*", "real_requests_llmservingsim/*", "real_vllm_stock/*", "real_vllm_stock2/*"} {
		folders, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", filepath.Dir(pattern)), "*", "run.yaml"))
		if err != nil || len(folders) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range folders {
			calibrationRow(t, filepath.Dir(file))
		}
	}
}

// calibrationRow prints and checks the row of one recording.
func calibrationRow(t *testing.T, from string) {
	t.Helper()
	name := filepath.Base(from)
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "run.yaml")); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	var said bytes.Buffer
	call := []string{"blis-train", "run", dir, "--hardware", "H100", "-o", out}
	status := run(call, strings.NewReader(""), &said, &said)
	if strings.Contains(said.String(), "keep-saturated: true") { // an overloaded server is fitted when asked for
		config := filepath.Join(t.TempDir(), "pipeline.yaml")
		repo.Write(t, "fit: {keep-saturated: true}\n", config)
		said.Reset()
		status = run(append(call, "--config", config), strings.NewReader(""), &said, &said)
		name += " (overloaded)"
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	last := strings.ReplaceAll(lines[len(lines)-1], dir, name)
	var doc result.Fit
	b, err := os.ReadFile(filepath.Join(out, "fit.json"))
	if err != nil {
		fmt.Printf("| %-28s | refused with exit %d: %.150s |\n", name, status, last)
		if status != exitGate && status != 1 || !strings.HasPrefix(last, "error: ") {
			t.Errorf("%s: exit %d, %s; want a refusal with its reason", name, status, last)
		}
		return
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	compared := "-"
	var uncalibrated, calibrated float64
	for _, r := range doc.Recipes {
		if r.Uncalibrated != nil {
			uncalibrated = *r.Uncalibrated
		}
		if r.Chosen {
			compared = "steps"
			calibrated = *r.RelErr
		}
	}
	if len(doc.Recipes) == 0 && doc.Requests == nil {
		dep, err := deploy.LoadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = fit.LibraryFor(dep); err == nil {
			t.Errorf("%s: the library has the server, and it was not compared", name)
		}
		last = fmt.Sprintf("%v; %s", err, last)
	}
	if doc.Requests != nil && doc.Requests.Gain != nil {
		compared = "E2E"
		uncalibrated = doc.Requests.Gain.Uncalibrated
		calibrated = doc.Requests.Gain.Calibrated
	}
	isTold := slices.ContainsFunc(doc.Warnings, func(f trace.Finding) bool { return f.Code == fit.NoGain })
	fmt.Printf("| %-28s | %-8s | %10.1f %% | %8.1f %% | %-7v | %.140s |\n", name, compared, 100*uncalibrated, 100*calibrated, isTold,
		strings.TrimPrefix(last, "error: "))
	if compared != "-" && calibrated >= uncalibrated && !isTold {
		t.Errorf("%s: the calibrated server is no nearer, and no_gain does not say so", name)
	}
}
