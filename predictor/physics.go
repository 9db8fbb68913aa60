package predictor

// This file estimates latencies with the step times of a coefficient set, as a predictor to compare
// trees with.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
)

// Coefficients are the source of the step times from which the physics estimates latencies.
type Coefficients struct {
	Name string
	Set  *coeff.Set  // as given
	Fit  *result.Fit // nil: Set is used for every split as it is
}

// physicsOf returns a function that estimates the latencies of rows by the physics model. It takes
// the coefficients of c or, if hide is not nil, refits them without the intervals in hide, so that
// test rows do not influence them.
func physicsOf(extractDir string, ext *result.Extract, list []*runRows, c *Coefficients, keepSaturated bool,
	workers int) estimator {
	return func(ctx context.Context, hide []hidden) ([]estimates, error) {
		set := c.Set
		if hide != nil {
			var err error
			if set, err = refitted(ctx, extractDir, ext, c.Fit, hide, keepSaturated, workers); err != nil {
				return nil, err
			}
		}
		all := make([]estimates, len(list))
		err := par.Try(ctx, workers, len(list), func(i int) (err error) {
			all[i], err = estimatesOf(set, ext.Run(list[i].ID).Deployment, list[i].Rows)
			return err
		}, func(int) {})
		return all, err
	}
}

// refitted returns the coefficients of a fit of the same runs without the hidden intervals.
func refitted(ctx context.Context, extractDir string, ext *result.Extract, f *result.Fit, hide []hidden,
	keepSaturated bool, workers int) (*coeff.Set, error) {
	o := fit.DefaultOptions()
	o.Spec = features.Version(f.Options.Spec)
	o.Recipe = f.Options.Recipe
	o.BetaTarget = f.Options.BetaTarget
	o.Objective = f.Options.Objective
	o.Split = f.Options.Split
	o.Seed = f.Options.Seed
	o.Prior = f.Options.Prior
	o.Bootstraps = fit.MinBootstraps // their intervals are not used,
	o.Models = []string{}            // nor models to compare with
	o.Workers = workers
	o.MaxRows = rows.RecordedMaxRows(f.Options.MaxRows)
	// A hidden interval of all time leaves its run out; others are dropped like saturated intervals.
	spans := map[string][]rows.Span{}
	for _, h := range hide {
		if h.StartNs == math.MinInt64 && h.EndNs == math.MaxInt64 {
			o.Without = append(o.Without, h.Run)
			continue
		}
		spans[h.Run] = append(spans[h.Run], rows.Span{StartNs: h.StartNs, EndNs: h.EndNs})
	}
	for _, r := range f.Runs {
		if !r.Used && !r.Saturated && !slices.Contains(o.Without, r.ID) {
			o.Without = append(o.Without, r.ID)
		}
	}
	// Judge returns the intervals that a fit does not use; the hidden ones are added to them.
	sources := pipeline.FitSources(extractDir, ext)
	for i := range sources {
		judge, id := sources[i].Judge, sources[i].ID
		sources[i].Judge = func(run *trace.Run) (string, []rows.Span) {
			if keepSaturated {
				return "", spans[id]
			}
			reason, saturated := judge(run)
			return reason, slices.Concat(saturated, spans[id])
		}
	}
	doc, err := fit.Fit(ctx, sources, o, nil)
	if err != nil {
		return nil, err
	}
	return fit.Native(doc, nil)
}

// estimatesOf returns estimates of the latencies of every row of a run, ms, by package forecast.
// The output length is unknown at the decision, so end-to-end latency uses the mean of the requests
// that finished before, and is NaN without one.
func estimatesOf(set *coeff.Set, d *deploy.Deployment, list []Row) (estimates, error) {
	engine, err := forecast.New(set, d)
	if err != nil {
		return nil, err
	}
	out := estimates{}
	for i := range list {
		s, r := stateOf(&list[i])
		ttft, err := engine.TTFT(&s, &r)
		if err != nil {
			return nil, err
		}
		tpot, err := engine.TPOTUs(&s, &r, ttft.Us)
		if err != nil {
			return nil, err
		}
		e2e := math.NaN()
		if n := list[i].MeanOutputTokens; n.OK {
			e2e = ttft.Us + tpot*math.Max(0, n.V-1)
		}
		out[targetTTFT] = append(out[targetTTFT], ttft.Us/1000)
		out[targetTPOT] = append(out[targetTPOT], tpot/1000)
		out[targetE2E] = append(out[targetE2E], e2e/1000)
	}
	return out, nil
}

// stateOf returns a row as the engine state and the request of package forecast.
func stateOf(r *Row) (forecast.State, forecast.Request) {
	s := forecast.State{
		Decodes:       r.DecodeBatch,
		DecodeTokens:  r.DecodeTokensResident,
		StepTokens:    r.StepPrefillTokens,
		StepRequests:  r.StepPrefillRequests,
		NextTokens:    r.NextPrefillTokens,
		NextRequests:  r.NextPrefillRequests,
		SinceStepUs:   math.NaN(),
		AheadTokens:   r.TokensWaitingAhead,
		AheadRequests: r.RequestsAhead,
		FreeBlocks:    r.FreeBlocks,
		OutputTokens:  r.MeanOutputTokens.V,
		PrefillPerS:   r.RecentTokensPerS,
		PromptsPerS:   r.RecentPromptsPerS,
	}
	if r.SinceStepUs.OK {
		s.SinceStepUs = r.SinceStepUs.V
	}
	cached := max(0, r.InputTokenLength-r.OwnUncachedTokens)
	return s, forecast.Request{PromptTokens: r.InputTokenLength, CachedTokens: cached}
}
