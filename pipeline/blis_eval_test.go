package pipeline

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/export/project"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/options"
	"github.com/blis-train/blis-train/pipeline/fit/prepare"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
	"github.com/blis-train/blis-train/stat"
)

// TestEvalBLISProjection holds what BLIS gets of every configuration, composed and measured, against the step
// times that were not fitted, beside the model it stands for and the pooled eleven terms that
// an export without projections would write, and simulates both models at three loads.
func TestEvalBLISProjection(t *testing.T) {
	for _, folder := range []string{"real_vllm_cpu", "composed"} {
		t.Run(folder, func(t *testing.T) { evalBLISProjection(t, extractedSources(t, folder)) })
	}
}

func evalBLISProjection(t *testing.T, sources []options.Source) {
	o := options.Default()
	o.Bootstraps, o.Models, o.AlphaTargets, o.Workers = options.MinBootstraps, []string{options.TrainedPhysics}, []string{coeff.Overhead}, 2
	f, err := fit.Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := export.Native(f, nil)
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
		p, region := projectionOf(t, f, set, d)
		pooled, _ := errorOfRun(f.Models[0].Cells, src.ID)
		ours, ok := projectedError(t, src, o, p.Beta)
		if !ok {
			continue
		}
		t.Logf("%-24s step error: native %4.1f %%, pooled %4.1f %%, projected %4.1f %% (%.2f times native); projection %4.1f %%; "+
			"E2E projected/native at 30, 60, 80 %% load: %.3f", src.ID, 100*native, 100*pooled, 100*ours, ours/native, 100*p.Errors[0].MAPE,
			ratiosE2E(t, set, d, p.Beta, region))
		if !d.Model.IsMoE() {
			dense = append(dense, ours/native)
		}
	}
	t.Logf("dense configurations: median %.2f times the native error, largest %.2f", stat.Median(dense), slices.Max(dense))
	if m := stat.Median(dense); m > 1.3 {
		t.Errorf("median exported error %.2f times the native one, want at most 1.3", m)
	}
}

func projectionOf(t *testing.T, f *result.Fit, set *coeff.Set, d *deploy.Deployment) (project.Projection, project.Region) {
	t.Helper()
	step, err := NewStepTimes(set, d)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Configs, func(c result.FitConfig) bool { return c.Key == d.Config() })
	r := project.Region{Prompt: *f.Configs[i].MeanPromptTokens, Output: *f.Configs[i].MeanOutputTokens, Budget: d.Engine.MaxNumBatchedTokens}
	r.Seats = d.Seats(r.Prompt + r.Output)
	p, err := project.OnBLIS(project.Target{Deployment: d, Model: step, Region: r})
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
			n, sum = n+float64(c.Rows), sum+float64(c.Rows)**c.MAPE
		}
	}
	return sum / n, n > 0
}

// projectedError is that of coefficients of BLIS.
func projectedError(t *testing.T, src options.Source, o options.Options, beta []float64) (float64, bool) {
	t.Helper()
	o, err := o.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	run, steps, space, err := prepare.Load(src, o)
	if err != nil {
		t.Fatal(err)
	}
	vec, err := prepare.Vectorizer(options.TrainedPhysics, space)
	if err != nil {
		t.Fatal(err)
	}
	table, err := steps.BetaBasis(space, *vec, rows.BetaOptions{Target: o.BetaTarget, Lag: run.Lag.Lag, Gamma: features.DefaultGamma,
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

// ratiosE2E are mean E2E of BLIS's terms over that of the model, in the same simulated traffic.
func ratiosE2E(t *testing.T, set *coeff.Set, d *deploy.Deployment, beta []float64, r project.Region) []float64 {
	t.Helper()
	native, err := latency.NewPhysics(set, d)
	if err != nil {
		t.Fatal(err)
	}
	blis, err := latency.NewTrainedPhysics([]float64{0, 0, 0}, beta, d)
	if err != nil {
		t.Fatal(err)
	}
	longest := d.LongestSequence().Or(4096)
	e2e := func(m latency.Model, rate float64) (mean, throughput float64) {
		cfg := sim.DefaultConfig(d, m)
		reqs := make([]sim.Request, 600)
		clock := 0.0
		for i := range reqs {
			clock -= 1e6 / rate * math.Log1p(-stat.Draw(1, uint64(i), 0))
			prompt, output := -r.Prompt*math.Log1p(-stat.Draw(1, uint64(i), 1)), -r.Output*math.Log1p(-stat.Draw(1, uint64(i), 2))
			reqs[i] = sim.Request{ArrivalUs: int64(clock), PromptTokens: min(max(1, int64(prompt)), longest*3/4),
				OutputTokens: min(max(1, int64(output)), longest/4)}
		}
		res, err := sim.Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for i := range res.Requests {
			us, ok := res.Requests[i].E2EUs()
			if !ok {
				t.Fatalf("%s: request %d did not finish", d.Name, i)
			}
			mean += us / float64(len(reqs))
			last = math.Max(last, float64(res.Requests[i].FinishedUs.V))
		}
		return mean, float64(len(reqs)) / last * 1e6
	}
	_, capacity := e2e(native, 1e6)
	var out []float64
	for _, load := range []float64{0.3, 0.6, 0.8} {
		a, _ := e2e(native, load*capacity)
		b, _ := e2e(blis, load*capacity)
		out = append(out, b/a)
	}
	return out
}
