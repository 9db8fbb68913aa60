package validate

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// TestEachBlockIsReplayedByItsOwnFit: the cross-fitted replay compares every request, each with the coefficients
// of the fit that left out its block; it alone is gated, and the hold-out beside it is a figure.
func TestEachBlockIsReplayedByItsOwnFit(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(200, 2, 1), nil)
	const slowBlock = 3
	fit := &result.Fit{Cross: &result.CrossFits{Blocks: rows.Blocks(run, dep)}}
	fit.Options.Split = 0.8
	for i := range set.Beta {
		fit.Beta.Coefficients = append(fit.Beta.Coefficients, result.Coefficient{Coefficient: set.Beta[i]})
	}
	for block := range result.CrossFolds {
		f := result.CrossFit{Beta: coeff.Values(set.Beta), GammaEMA: &set.Gamma}
		for j := range f.Beta {
			if block == slowBlock {
				f.Beta[j] *= 1.5
			}
		}
		fit.Cross.Fits = append(fit.Cross.Fits, f)
	}
	judged := func(set *coeff.Set) *result.Validation {
		t.Helper()
		o := DefaultOptions()
		v, err := Run(context.Background(), set, fit, []Source{sourceOf(run, dep, true)}, o)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := judged(set)
	if len(v.Runs) != 3 || v.Runs[0].Split.Kind != result.SplitCrossFitted || v.Runs[0].Requests != 200 {
		t.Fatalf("got %d entries, the first %+v of %d requests; want cross_fitted, holdout, in_sample, and all 200",
			len(v.Runs), v.Runs[0].Split, v.Runs[0].Requests)
	}
	cross := v.Runs[0].Metrics.E2E
	blocks := &fit.Cross.Blocks[0]
	inBlock := 0
	for i := range run.Requests {
		if blocks.Block(run.Requests[i].ArrivedNs.V) == slowBlock {
			inBlock++
		}
	}
	if *cross.MedianRelErrPaired > 0.002 || cross.SimMs.Mean < 1.05*cross.RealMs.Mean {
		t.Errorf("E2E: got a median error of %v and means of %.1f and %.1f ms, want that the %d requests of one block alone are slow",
			*cross.MedianRelErrPaired, cross.RealMs.Mean, cross.SimMs.Mean, inBlock)
	}
	held := v.Runs[1]
	if !held.IsFigure() || held.Judged() || held.Metrics.E2E.KSD > 0.02 {
		t.Errorf("hold-out: got %+v, want a figure by the published coefficients", held.Split)
	}
	gates := gatesOf(v, "ks_e2e")
	if len(gates) != 1 || gates[0].Scope != gate.ReplayScope(&v.Runs[0]) {
		t.Errorf("got %d gates of E2E, want one, of the cross-fitted replay", len(gates))
	}

	edited := copyOf(set)
	edited.Beta[0].Value *= 1.01
	if v := judged(edited); len(v.Runs) != 2 || v.Runs[0].Split.Kind != result.SplitHoldout || !v.Runs[0].Judged() {
		t.Errorf("edited coefficients: got %d entries, the first %+v, want that the hold-out judges", len(v.Runs), v.Runs[0].Split)
	}
}
