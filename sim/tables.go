package sim

// This file has the step-time models that need no fit to the deployment: measured kernel tables and
// the roofline.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
)

// tables is a step-time model from the times of kernels measured on a GPU (package library),
// multiplied by corrections (theta) that were fitted to measured servers. It is linear in the
// corrections. It is not safe for concurrent use; make one per run.
type tables struct {
	price *library.Pricer
	theta [library.NumStep]float64
	x     [library.NumStep]float64
}

// NewTables returns the model of a deployment's step with corrections theta.
func NewTables(s *library.Step, theta [library.NumStep]float64) *tables {
	return &tables{price: s.NewPricer(), theta: theta}
}

// StepUs returns the predicted time of the step, us, from one schedule() to the next.
func (t *tables) StepUs(b *Batch) (float64, error) {
	in := b.Kernels()
	t.price.Features(&in, &t.theta, &t.x)
	sum := 0.0
	for i, x := range t.x {
		sum += t.theta[i] * x
	}
	return sum, nil
}

// Kernels returns the batch as the input of the kernel tables.
func (b *Batch) Kernels() library.Batch {
	out := library.Batch{Tokens: float64(b.Tokens()), Sequences: float64(b.PrefillReqs + b.DecodeReqs),
		Decodes:       float64(b.DecodeReqs),
		DecodeContext: float64(b.DecodeContext - b.DecodeReqs), Prefills: float64(b.PrefillReqs),
		LongestDecode: float64(b.LongestDecode),
		PrefillTokens: float64(b.PrefillTokens),
		PrefillPairs:  float64(b.CausalWork)}
	if b.Among != nil {
		out.Run = b.Among.Padded
		out.All = b.Among.Tokens
		out.Imbalance = b.Among.Imbalance
	}
	return out
}

// Features returns the features of the last StepUs.
func (t *tables) Features() []float64 { return t.x[:] }

// roofline is an analytic model without fitted coefficients. Its time, with the features of version
// 1.1 or 1.3 at peak rate, s, is
//
//	max(linear compute, weights) + max(prefill attention, its KV reads) +
//	max(decode attention, its KV reads) + collectives + 10 us per layer
type roofline struct {
	space *features.Space
	in    features.StepInput
	x     []float64
	f     [7]int // numbers in x of the features that the formula uses
}

// NewRoofline returns the model for a deployment.
func NewRoofline(d *deploy.Deployment) (*roofline, error) {
	v := features.DefaultVersion(d.Plain(false))
	sp, err := features.New(v, d.Plain(features.Layered(v)))
	if err != nil {
		return nil, err
	}
	r := &roofline{space: sp, x: make([]float64, len(sp.BetaFeatures()))}
	names := []string{"prefill_linear_compute", "decode_weight_load", "prefill_attention", "decode_attention",
		"kv_cache_read",
		"tp_communication", "fixed_step_overhead"}
	for i, name := range names {
		r.f[i] = slices.IndexFunc(sp.BetaFeatures(), func(f features.Feature) bool { return f.Name == name })
	}
	return r, nil
}

// StepUs returns the time of the step by the roofline formula, us.
func (r *roofline) StepUs(b *Batch) (float64, error) {
	FillStepInput(r.space.Version(), b, &r.in)
	if _, err := betaOf(r.space, b, &r.in, r.x); err != nil {
		return 0, err
	}
	x := func(i int) float64 { return r.x[r.f[i]] }
	decodeShare := 0.0
	if b.KVRead > 0 {
		decodeShare = min(1, float64(b.DecodeContext)/float64(b.KVRead))
	}
	s := x(0) + x(1) + math.Max(x(2), x(4)*(1-decodeShare)) + math.Max(x(3), x(4)*decodeShare) + x(5) + x(6)
	return s * 1e6, nil
}
