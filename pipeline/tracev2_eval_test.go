package pipeline

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalTraceV2 prints, for a folder of TraceV2 runs with a run.yaml beside each, how
// requests of runs that a fit has not seen are predicted: by the library alone, and
// after a fit of the first two runs; with the keys of BLIS's calibration report.
// BLIS_TRAIN_TRACEV2 names the folder.
func TestEvalTraceV2(t *testing.T) {
	dir := os.Getenv("BLIS_TRAIN_TRACEV2")
	if dir == "" {
		t.Skip("skipped: BLIS_TRAIN_TRACEV2 names no folder of TraceV2 runs with run.yaml beside them")
	}
	ext, out := extractedFrom(t, dir)
	runs := make([][]*requestfit.Load, len(ext.Runs))
	for i := range ext.Runs {
		r := &ext.Runs[i]
		run, err := table.ReadLean(table.RunDir(out, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		if runs[i], _ = requestfit.LoadsOf(run, r.Deployment, true, nil); len(runs[i]) == 0 {
			t.Errorf("%s: no request with a time", r.ID)
		}
	}
	const training = 2
	if len(runs) <= training {
		t.Fatalf("got %d runs, want %d to fit and more to predict", len(runs), training)
	}
	dep := ext.Runs[0].Deployment
	prior := requestfit.Roofline(dep)
	if set, err := fit.LibraryFor(dep); err == nil {
		prior = &requestfit.Prior{Name: fit.PriorLibrary, Set: set}
	}
	var seen []*requestfit.Load
	for _, r := range runs[:training] {
		seen = append(seen, r...)
	}
	o := requestfit.DefaultOptions()
	o.Search = requestfit.SearchNone
	got, err := requestfit.Fit(context.Background(), seen, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	sets := []struct {
		name string
		set  *coeff.Set
	}{{"zero-shot, " + prior.Name, prior.Set}, {"after " + ext.Runs[0].ID + " and " + ext.Runs[1].ID, got.Set}}
	for _, s := range sets {
		if s.set == nil {
			t.Logf("%s: no coefficients without a fit", s.name)
			continue
		}
		t.Logf("%s:", s.name)
		for i := training; i < len(runs); i++ {
			for _, l := range runs[i] {
				sim, err := l.Predict(s.set)
				if err != nil {
					t.Fatal(err)
				}
				calibration(t, l, sim)
			}
		}
	}
}

// calibration prints a load's metrics as BLIS's calibration report has them, errors in
// shares: https://github.com/inference-sim/inference-sim, sim/workload/calibrate.go.
func calibration(t *testing.T, l *requestfit.Load, simulated []sim.Measured) {
	t.Helper()
	for _, m := range []struct {
		name string
		of   func(m *sim.Measured, outputs int64) float64
	}{{"ttft", func(m *sim.Measured, _ int64) float64 { return m.TTFTUs }},
		{"itl", func(m *sim.Measured, n int64) float64 { return m.SpanUs / float64(n-1) }},
		{"e2e", func(m *sim.Measured, _ int64) float64 { return m.E2EUs }}} {
		var real, model, off []float64
		for i := range simulated {
			n := l.Requests[i].OutputTokens
			a := m.of(&l.Seen[i], n)
			b := m.of(&simulated[i], n)
			if a > 0 && b > 0 && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
				real = append(real, a)
				model = append(model, b)
				off = append(off, math.Abs(b/a-1))
			}
		}
		if len(real) < 2 {
			t.Logf("   %-16s %-4s no request", l.Name, m.name)
			continue
		}
		a, b := stat.Sorted(real), stat.Sorted(model)
		mape := stat.Mean(off)
		r := correlation(real, model)
		bias := "neutral"
		if d := stat.Mean(model)/stat.Mean(real) - 1; d > 0.01 {
			bias = "over-predict"
		} else if d < -0.01 {
			bias = "under-predict"
		}
		keys, err := json.Marshal(map[string]any{"mape": mape, "pearson_r": r, "bias_direction": bias, "quality": calibrationQuality(mape, r)})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("   %-16s %-4s n %d: mean %+.1f %%, p50 %+.1f %%, p99 %+.1f %%; of one request %.1f %% in the median; %s", l.Name, m.name,
			len(real),
			100*(stat.Mean(model)/stat.Mean(real)-1), 100*(stat.Quantile(b, 0.5)/stat.Quantile(a, 0.5)-1),
			100*(stat.Quantile(b, 0.99)/stat.Quantile(a, 0.99)-1), 100*stat.Median(off), keys)
	}
}

// correlation is Pearson's.
func correlation(a, b []float64) float64 {
	ma, mb := stat.Mean(a), stat.Mean(b)
	var ab, aa, bb float64
	for i := range a {
		ab = ab + (a[i]-ma)*(b[i]-mb)
		aa = aa + (a[i]-ma)*(a[i]-ma)
		bb = bb + (b[i]-mb)*(b[i]-mb)
	}
	return ab / math.Sqrt(aa*bb)
}

// calibrationQuality is BLIS's word for an error and a correlation.
func calibrationQuality(mape, r float64) string {
	for _, q := range []struct {
		word    string
		mape, r float64
	}{{"excellent", 0.10, 0.95}, {"good", 0.20, 0.85}, {"fair", 0.35, 0.70}} {
		if mape < q.mape && r > q.r {
			return q.word
		}
	}
	return "poor"
}
