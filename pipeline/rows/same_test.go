package rows_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
)

// TestFitAndValidationPrintTheSameFigures: on the same rows, the same names hold
// the same numbers in fit.json and validation.json, for step times, delays and
// intervals, whole and cell by cell.
func TestFitAndValidationPrintTheSameFigures(t *testing.T) {
	ctx, out := context.Background(), t.TempDir()
	xo := extract.DefaultOptions()
	xo.Out = out
	runs, err := extract.Discover([]string{"../../testdata/traces/real"})
	if err != nil {
		t.Fatal(err)
	}
	ext, err := extract.Run(ctx, runs, xo)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pipeline.FitTables(ctx, out, ext, fit.DefaultOptions(), result.Header{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := validate.DefaultOptions()
	o.StepsOnly = true
	v, err := pipeline.ValidateTables(ctx, out, ext, f, o, result.Header{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "all step times", f.Beta.Holdout, v.Steps)
	judged := map[string]result.Errors{}
	delays := map[string]*result.AlphaErrors{}
	for _, r := range v.Runs {
		delays[r.ID] = r.Alpha
		for _, c := range r.StepCells {
			judged[c.Run+" "+c.Regime] = c.Errors
		}
	}
	cells := 0
	for _, c := range f.Beta.Cells {
		if c.Bucket == "" {
			same(t, c.Run+" "+c.Regime, &c.Errors, ptr(judged[c.Run+" "+c.Regime]))
			cells++
		}
	}
	if cells < 4 || *f.Beta.Holdout.Skill == 0 {
		t.Errorf("%d cells, want at least two regimes of two runs", cells)
	}
	for _, m := range f.Alpha {
		if len(m.AlphaRuns) == 0 {
			t.Errorf("%s: no runs", m.Name)
		}
		for _, r := range m.AlphaRuns {
			name, a := m.Name+" of "+r.Run, delays[r.Run]
			switch m.Name {
			case "overhead":
				same(t, name, r.Interval, a.Overhead)
			case "admission":
				same(t, name, r.Errors, a.Admission)
			case "egress":
				same(t, name, r.Errors, a.Egress)
			}
		}
	}
}

// same compares all figures of two entries but the one that only a fit knows.
func same[T any](t *testing.T, what string, fit, validation *T) {
	t.Helper()
	if diff := cmp.Diff(fit, validation, cmpopts.IgnoreFields(result.Errors{}, "RelErr")); diff != "" {
		t.Errorf("%s: fit.json (-) and validation.json (+) differ:\n%s", what, diff)
	}
}

func ptr[T any](v T) *T { return &v }
