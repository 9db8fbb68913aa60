package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/simulate"
)

const recordings = "../testdata/traces/real"

// The whole program from Go: recordings in, coefficients and a verdict out.
func ExampleRun() {
	out, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(out)
	o := pipeline.DefaultRunOptions()
	o.Extract.Out = out
	o.Fit.Bootstraps = 50
	got, err := pipeline.Run(context.Background(), []string{recordings}, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range got.Extract.Runs {
		fmt.Println(r.ID, r.Steps.Summaries, "steps")
	}
	fmt.Println(len(got.Fit.Beta.Coefficients), "coefficients, verdict", got.Validation.Verdict)
	// Output:
	// cpu-gqa-async 2250 steps
	// cpu-gqa-low 2302 steps
	// 16 coefficients, verdict fail
}

// A what-if from Go: the library's coefficients, a run.yaml and one point of load.
func ExampleSimulate() {
	out, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(out)
	o := simulate.DefaultOptions()
	o.Deployment = filepath.Join(recordings, "gqa-low")
	o.Out = out
	o.Model = "roofline"
	o.InputTokens = 100
	o.OutputTokens = 20
	o.Requests = 50
	o.RateRPS = 1
	doc, err := pipeline.Simulate(context.Background(), o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(doc.CompletedRequests, "requests,", doc.TotalOutputTokens, "tokens")
	fmt.Println(doc.Command)
	// Output:
	// 50 requests, 1000 tokens
	// simulate --deployment gqa-low --input-len 100 --latency-model roofline --num-prompts 50 --output-len 20 --request-rate 1
}

// A run writes the same bytes as its stages one by one, and an export of the fit
// those of coefficients.yaml.
func TestRunEqualsItsStages(t *testing.T) {
	ctx := context.Background()
	whole := t.TempDir()
	parts := t.TempDir()
	run := pipeline.DefaultRunOptions()
	run.Extract.Out = whole
	run.Fit.Bootstraps = 50
	run.Validate.StepsOnly = true
	if _, err := pipeline.Run(ctx, []string{recordings}, run); err != nil {
		t.Fatal(err)
	}
	x := pipeline.DefaultExtractOptions()
	x.Out = parts
	if _, err := pipeline.Extract(ctx, []string{recordings}, x); err != nil {
		t.Fatal(err)
	}
	f := pipeline.DefaultFitOptions()
	f.Bootstraps = 50
	f.SaveGram = filepath.Join(t.TempDir(), "sums.gram")
	if _, err := pipeline.Fit(ctx, parts, f); err != nil {
		t.Fatal(err)
	}
	v := pipeline.DefaultValidateOptions()
	v.StepsOnly = true
	if _, _, err := pipeline.Validate(ctx, parts, v); err != nil {
		t.Fatal(err)
	}
	e := pipeline.DefaultExportOptions()
	e.Out = filepath.Join(parts, folder.CoefficientsFile)
	e.Accept.Any = true // two runs fail, and say so
	got, err := pipeline.Export(ctx, filepath.Join(parts, folder.FitFile), e)
	if err != nil || got.Format != export.FormatNative || len(got.Files) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	sameRun(t, whole, parts)
	besideTheStages(t, parts, f.SaveGram)
}

// A run goes on in a folder in which another was killed behind its fit, with the bytes of a run that was not.
func TestRunGoesOnBehindItsFit(t *testing.T) {
	goesOnBehindItsFit(t, "../testdata/traces/smoke")
}

// TestEvalRunGoesOnBehindItsFit is the same of two runs.
func TestEvalRunGoesOnBehindItsFit(t *testing.T) {
	repo.NeedEval(t)
	goesOnBehindItsFit(t, recordings)
}

func goesOnBehindItsFit(t *testing.T, recording string) {
	t.Helper()
	whole := t.TempDir()
	killed := filepath.Join(t.TempDir(), "killed") // what stands there when a run is killed behind its fit
	run := pipeline.DefaultRunOptions()
	run.Extract.Out = whole
	run.Fit.Bootstraps = 50
	run.Validate.StepsOnly = true
	run.Done = func(doc any) {
		if _, ok := doc.(*result.Fit); ok {
			if err := os.CopyFS(killed, os.DirFS(whole)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := pipeline.Run(t.Context(), []string{recording}, run); err != nil {
		t.Fatal(err)
	}
	// Versions before 0.2 left the folder .tasks beside it: it hinders nobody.
	if err := os.MkdirAll(filepath.Join(killed, folder.TasksDir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	run.Extract.Out = killed
	run.Done = nil
	if _, err := pipeline.Run(t.Context(), []string{recording}, run); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, killed)
}

// sameRun compares the documents of two runs.
func sameRun(t *testing.T, whole, other string) {
	t.Helper()
	for _, name := range []string{folder.ExtractFile, folder.FitFile, folder.ValidationFile, folder.CoefficientsFile,
		folder.ReportFile} {
		a := repo.Read(t, whole, name)
		b := repo.Read(t, other, name)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: a run and its stages, or one that was killed, write different bytes", name)
		}
	}
}

// What is recorded is what was said, and mistakes in options are told from failures.
func TestRecordedCommands(t *testing.T) {
	f := pipeline.DefaultFitOptions()
	lag := 1
	f.Lag = &lag
	f.Spec = "1.0"
	f.Without = []string{"a", "b"}
	f.Workers = 7
	got, err := f.Command()
	const want = "fit --alpha-target queue --beta-target duration --bootstraps 500 --lag 1 --model blackbox --model roofline " +
		"--model trained-physics --prior zero --recipe frozen --seed 1 --spec 1.0 --split 0.8 --without a --without b"
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	v := pipeline.DefaultValidateOptions()
	v.SetThreshold("bias", 0.5, "test")
	v.Noise = "none"
	if got, want := v.Command(), "validate --gate bias=0.5 --noise none --seed 1 --split 0.8"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	ctx := context.Background()
	_, errExtract := pipeline.Extract(ctx, nil, pipeline.DefaultExtractOptions())
	f.Bootstraps = 3
	_, errFit := pipeline.Fit(ctx, "nowhere", f)
	v.SetThreshold("no_such_gate", 1, "test")
	_, _, errValidate := pipeline.Validate(ctx, "nowhere", v)
	_, errExport := pipeline.Export(ctx, "nowhere", pipeline.DefaultExportOptions())
	for says, err := range map[string]error{"-o OUT": errExtract, "bootstraps": errFit, "no_such_gate": errValidate, "-o FILE": errExport} {
		if !errors.As(err, new(*option.Misuse)) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want a misuse that says %s", err, says)
		}
	}
}
