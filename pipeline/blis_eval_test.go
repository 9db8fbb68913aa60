package pipeline

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// TestEvalBLISProjection holds what BLIS gets of every configuration, composed and measured, against the step
// times that were not fitted, beside the model it stands for and the pooled eleven terms that
// an export without projections would write, and simulates both models at three loads.
func TestEvalBLISProjection(t *testing.T) {
	for _, folder := range []string{"real_vllm_cpu", "composed"} {
		t.Run(folder, func(t *testing.T) { evalBLISProjection(t, extractedSources(t, folder)) })
	}
}

func evalBLISProjection(t *testing.T, sources []fit.Source) {
	o := fit.DefaultOptions()
	o.Bootstraps = fit.MinBootstraps
	o.Models = []string{fit.TrainedPhysics}
	o.AlphaTargets = []string{coeff.Overhead}
	o.Workers = 2
	f, err := fit.Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := fit.Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	var dense []float64
	for _, src := range sources {
		d := &src.Deployment
		native, ok := errorOfRun(f.Beta.Cells, src.ID)
		if !ok { // no hold-out, or no rows at all
			t.Logf("%-24s no step is held out", src.ID)
			continue
		}
		p, r := projectionOf(t, f, set, d)
		on, err := export.CompareLoads(set, d, make([]float64, 3), r.Prompt, r.Output, func(alpha []float64) (sim.Parts, error) {
			m, err := sim.NewTrainedPhysics(alpha, p.Beta, d)
			if err != nil {
				return sim.Parts{}, err
			}
			return m.Parts(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		loads := on.Points
		pooled, _ := errorOfRun(f.Models[0].Cells, src.ID)
		ours, ok := projectedError(t, src, o, p.Beta)
		if !ok {
			continue
		}
		t.Logf("%-24s step error: native %4.1f %%, pooled %4.1f %%, projected %4.1f %% (%.2f times native); projection %4.1f %%, "+
			"bias %+.1f %% decode, %+.1f %% mixed, %+.1f %% prefill; E2E projected/native at 30, 60, 80 %% load: %.3f %.3f %.3f", src.ID,
			100*native, 100*pooled, 100*ours, ours/native, 100*p.Errors[0].MAPE, 100*p.Errors[1].Bias, 100*p.Errors[2].Bias,
			100*p.Errors[3].Bias, loads[0].E2ERatio, loads[1].E2ERatio, loads[2].E2ERatio)
		if !d.Model.IsMoE() {
			dense = append(dense, ours/native)
		}
	}
	t.Logf("dense configurations: median %.2f times the native error, largest %.2f", stat.Median(dense), slices.Max(dense))
	if m := stat.Median(dense); m > 1.3 {
		t.Errorf("median exported error %.2f times the native one, want at most 1.3", m)
	}
}

func projectionOf(t *testing.T, f *result.Fit, set *coeff.Set, d *deploy.Deployment) (export.Projection, export.Region) {
	t.Helper()
	step, err := NewStepTimes(set, d)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Configs, func(c result.FitConfig) bool { return c.Key == d.Config() })
	r := export.RegionOf(d, *f.Configs[i].MeanPromptTokens, *f.Configs[i].MeanOutputTokens)
	p, err := export.OnBLIS(export.Target{Deployment: d, Model: step, Region: r})
	if err != nil {
		t.Fatal(err)
	}
	return p[0], r
}

// errorOfRun is the mean error of a model on the hold-out of a run, over its regimes.
func errorOfRun(cells []result.Cell, run string) (float64, bool) {
	var n, sum float64
	for _, c := range cells {
		if c.Run == run && c.Bucket == "" && c.Set == "" && c.MAPE != nil {
			n += float64(c.Rows)
			sum += float64(c.Rows) * *c.MAPE
		}
	}
	return sum / n, n > 0
}

// projectedError is that of coefficients of BLIS.
func projectedError(t *testing.T, src fit.Source, o fit.Options, beta []float64) (float64, bool) {
	t.Helper()
	o, err := o.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	run, steps, space, err := fit.Load(context.Background(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	vec, err := fit.Vectorizer(fit.TrainedPhysics, space)
	if err != nil {
		t.Fatal(err)
	}
	table, err := steps.BetaBasis(space, *vec, rows.Options{Target: o.BetaTarget, Lag: run.Lag.Lag, Gamma: features.DefaultGamma,
		Split: o.Split, Saturated: run.Spans})
	if err != nil {
		t.Fatal(err)
	}
	n, sum := 0.0, 0.0
	for i := range table.Kept {
		if !table.HoldOut[i] {
			continue
		}
		us := 0.0
		for j, x := range table.Row(i) {
			us += x * beta[j]
		}
		n, sum = n+1, sum+math.Abs(us/table.Y[i]-1)
	}
	return sum / n, n > 0
}
