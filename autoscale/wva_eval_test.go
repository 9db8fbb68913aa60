package autoscale

import (
	"context"
	"math"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim"
)

// TestEvalWVASteadyState: with the four parameters that the export writes, the autoscaler's own
// formula gives the simulator's TTFT and ITL of the composed configurations at 20, 50 and 80 % load.
func TestEvalWVASteadyState(t *testing.T) {
	repo.NeedEval(t)
	eo := pipeline.DefaultExtractOptions()
	eo.Out, eo.Batches = t.TempDir(), nil
	ext, err := pipeline.Extract(context.Background(), []string{repo.Shared(t, "data", "composed")}, eo)
	if err != nil {
		t.Fatal(err)
	}
	sources := pipeline.FitSources(eo.Out, ext)
	o := fit.DefaultOptions()
	o.Bootstraps, o.Models, o.AlphaTargets, o.Workers = fit.MinBootstraps, []string{}, []string{coeff.Overhead}, 2
	f, err := fit.Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := export.Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := map[float64][2][]float64{}
	for _, c := range f.Configs {
		step, err := sim.NewPhysics(set, &c.Deployment)
		if err != nil {
			t.Fatal(err)
		}
		s, err := SteadyState(&c.Deployment, step, 1, wvA4P, *c.MeanPromptTokens, *c.MeanOutputTokens)
		if err != nil {
			t.Errorf("%s: %v", c.Label, err)
			continue
		}
		for _, p := range s.Points {
			ttft, itl := *p.TTFTErr, *p.ITLErr
			t.Logf("%-46s load %.2f: TTFT %7.1f ms %+6.1f %%, ITL %6.2f ms %+6.1f %%", c.Label, p.LoadFrac, p.TTFTMs, 100*ttft, p.ITLMs, 100*itl)
			e := at[p.LoadFrac]
			at[p.LoadFrac] = [2][]float64{append(e[0], math.Abs(ttft)), append(e[1], math.Abs(itl))}
		}
	}
	for _, load := range []float64{0.2, 0.5, 0.8} {
		ttft, itl := stat.Median(at[load][0]), stat.Median(at[load][1])
		t.Logf("load %.1f: median of %d configurations: TTFT %.1f %%, ITL %.1f %%", load, len(at[load][0]), 100*ttft, 100*itl)
		if !(ttft <= 0.15 && itl <= 0.10) {
			t.Errorf("load %.1f: TTFT %.1f %%, ITL %.1f %%, want at most 15 and 10 %%", load, 100*ttft, 100*itl)
		}
	}
}
