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
// corrections, piece by piece: outside CUDA graphs they also decide whether the GPU or the host that
// launches its kernels is the slower, and only the slower counts (library.Pricer.Features). It is not
// safe for concurrent use; make one per run.
type tables struct {
	price *library.Pricer          // looks kernel times up
	theta [library.NumStep]float64 // corrections
	x     [library.NumStep]float64 // features of the last step, us for a correction of 1
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
	out := library.Batch{
		Tokens:        float64(b.Tokens()),
		Sequences:     float64(b.PrefillReqs + b.DecodeReqs),
		Decodes:       float64(b.DecodeReqs),
		DecodeContext: float64(b.DecodeContext - b.DecodeReqs), // the tables count no new token in the context
		Prefills:      float64(b.PrefillReqs),
		LongestDecode: float64(b.LongestDecode),
		PrefillTokens: float64(b.PrefillTokens),
		PrefillPairs:  float64(b.CausalWork),
	}
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
	x     []float64 // features of the last step
	at    struct {  // the positions in x of the features that the formula uses
		linearCompute, weightLoad, prefillAttention, decodeAttention, kvRead, collectives, layers int
	}
}

// NewRoofline returns the model for a deployment.
func NewRoofline(d *deploy.Deployment) (*roofline, error) {
	v := features.DefaultVersion(d.Plain(false))
	sp, err := features.New(v, d.Plain(features.Layered(v)))
	if err != nil {
		return nil, err
	}
	r := &roofline{space: sp, x: make([]float64, len(sp.BetaFeatures()))}
	// Versions 1.1 and 1.3, which DefaultVersion chooses among, have every feature named here.
	position := func(name string) int {
		return slices.IndexFunc(sp.BetaFeatures(), func(f features.Feature) bool { return f.Name == name })
	}
	r.at.linearCompute = position(features.PrefillLinearCompute)
	r.at.weightLoad = position(features.DecodeWeightLoad)
	r.at.prefillAttention = position(features.PrefillAttention)
	r.at.decodeAttention = position("decode_attention")
	r.at.kvRead = position("kv_cache_read")
	r.at.collectives = position("tp_communication")
	r.at.layers = position(features.FixedStepOverhead)
	return r, nil
}

// StepUs returns the time of the step by the roofline formula, us. The feature of weights is only the
// time by which loading them exceeds linear compute, so the sum of both is the maximum in the formula.
func (r *roofline) StepUs(b *Batch) (float64, error) {
	FillStepInput(r.space.Version(), b, &r.in)
	if _, err := betaOf(r.space, b, &r.in, r.x); err != nil {
		return 0, err
	}
	decodeShare := 0.0 // of the KV reads
	if b.KVRead > 0 {
		decodeShare = min(1, float64(b.DecodeContext)/float64(b.KVRead))
	}
	linear := r.x[r.at.linearCompute] + r.x[r.at.weightLoad]
	kvRead := r.x[r.at.kvRead]
	prefill := math.Max(r.x[r.at.prefillAttention], kvRead*(1-decodeShare))
	decode := math.Max(r.x[r.at.decodeAttention], kvRead*decodeShare)
	seconds := linear + prefill + decode + r.x[r.at.collectives] + r.x[r.at.layers]
	return seconds * 1e6, nil
}
