package features

// This file has the constants that a version's features need of a deployment, and the function that
// computes all features of one step or arrival.

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// epsilon10 is the floor of every denominator in 1.0 (spec#frozen-guards).
const epsilon10 = 1e-6

// Space is one version's feature space for one deployment: the derived constants
// (spec#constants-frozen and the clauses after it), computed once. It is immutable and safe to
// share.
//
// All constants are written for the whole tensor-parallel group. In 1.0 the peaks are divided by tp
// although the work is that of the whole model (spec#err-tp).
type Space struct {
	version Version
	dep     *deploy.Deployment
	beta    []Feature
	alpha   []Feature
	steps   []term[func(*Space, *StepInput) float64]  // of beta
	queues  []term[func(*Space, *QueueInput) float64] // of alpha

	layers, hidden, heads, kvHeads float64
	experts, topK, moeLayers       float64
	tp, maxSeqs, maxTokens         float64
	blockTokens                    float64 // tokens per KV block
	chunked, offload               float64 // 1 or 0

	qDim, kvDim      float64 // query heads, KV heads x head dim
	mlpWidth         float64 // 1.0: of a layer, of one expert when MoE
	activeExperts    float64 // 1.0: k/E, 1 when dense
	attnFLOPs        float64 // of attention projections, per token and layer
	mlpFLOPs         float64 // of a dense layer (1.0: the only kind), per token
	moeFLOPs         float64 // of an MoE layer, per token
	headFLOPs        float64 // of the LM head, per token (1.0) or scheduled sequence (1.1)
	linearFLOPs      float64 // per token: with the head in 1.0, the body alone in 1.1
	kvBytes          float64 // per token
	blockBytes       float64 // per block
	peak, linearPeak float64 // FLOP/s
	linearTFlops     float64 // of one device, 1e12 FLOP/s
	bandwidth        float64 // B/s
	attnBytes        float64 // per layer
	mlpBytes         float64 // per layer (1.0: x top_k when MoE)
	expertBytes      float64 // one expert of one layer
	moeFixedBytes    float64 // shared experts and router of one MoE layer
	headBytes        float64 // of the LM head
	totalBytes       float64 // every weight that 1.1 counts; 1.0's total
	pcie             float64 // B/s
	link             float64 // B/s
	commBytes        float64 // of all-reduces, per token
	gatherBytes      float64 // of the logits gather, per sequence
	allreduces       float64 // per step: 2L+1 when tp > 1
	allreduceS       float64 // s per collective
	gpuKVBytes       float64 // 1.0: capacity of the GPU cache
	cpuKVBytes       float64 // 1.0: capacity of the CPU tier, 0 unless offloading
	cpuGPURatio      float64 // 1.1: CPU blocks per GPU block, 0 unless offloading
	rooflineS        float64 // time of the largest legal step at the roofline

	// quotients of the above that every step needs
	bodyS, headS   float64 // s per token and per sampled sequence at peak
	attnS          float64 // s per token pair of attention scores at peak
	kvReadS        float64 // s per token of KV cache read
	fixedWeights   float64 // B of weights that every non-empty step reads
	expertWeights  float64 // B of all experts of all MoE layers
	lnIdleExpert   float64 // ln(1 - k/E): of the probability that a token does not use an expert
	moeLayerShare  float64 // Lm/L
	gqa            float64 // KV heads per query head
	stepOverheadS  float64 // nominal launch time of a step
	commLatencyS   float64 // collectives of a step
	commS, gatherS float64 // s per token and per sampled sequence over the link

	// what 1.3 adds: sums over layers
	blocks, engines                                 float64 // mixers and ffns; engines of a data-parallel group
	expertKinds                                     []experts
	expertS                                         float64 // s per token in experts at peak
	reaches                                         []model.Reach
	attends                                         []attention
	statePrefillFLOPs, stateDecodeFLOPs, stateBytes float64 // of recurrences: per token, per sequence

	// what 1.2 adds
	activationBytes     float64           // per token, whole group: moved between the kernels of all layers
	activationS         float64           // s per token to move them
	reduce, reduceEager *deploy.AllReduce // one all-reduce inside CUDA graphs and outside; nil: latency and ring
	fused               *deploy.AllReduce // one all-reduce fused with the norm after it; nil: not fused
	fusedBytes          float64           // largest tensor of the fused kernel
	graphs              vllm.GraphSizes   // captured CUDA graphs
	tokenBytes          float64           // activations of one token
	logitBytes          float64           // logits of one sequence
	reduces, gathers    []float64         // reduceS and gatheredS by tokens and by sequences; nil with tp 1
}

// term is what a step needs of a feature, in a list of its own: the other fields of a Feature take several times the memory.
type term[F any] struct {
	of    F
	bound float64
}

// New returns the constants of version v for deployment d. It fails on an unknown version, on an
// impossible deployment (spec#deployment-checks) and, in 1.1, on one that the version does not
// model (spec#supported).
func New(v Version, d *deploy.Deployment) (*Space, error) {
	if err := CheckVersion(v); err != nil {
		return nil, err
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if why := d.Model.WhyLayered(); v == V10 && why != "" {
		return nil, d.CheckSupported()
	}
	s := &Space{version: v, dep: d, beta: BetaFeatures(v), alpha: AlphaFeatures(v)}
	for i := range s.beta {
		s.steps = append(s.steps, term[func(*Space, *StepInput) float64]{of: s.beta[i].beta, bound: s.beta[i].Bound})
	}
	for i := range s.alpha {
		s.queues = append(s.queues, term[func(*Space, *QueueInput) float64]{of: s.alpha[i].alpha, bound: s.alpha[i].Bound})
	}
	s.setDimensions()
	if v == V10 {
		s.derive10()
		return s, nil
	}
	if Layered(v) {
		if err := d.CheckLayers(); err != nil {
			return nil, err
		}
		s.derive13()
		return s, nil
	}
	if err := d.CheckSupported(); err != nil {
		return nil, err
	}
	s.derive11()
	if v.Base() != V11 {
		s.derive12()
	}
	return s, nil
}

// Version returns the version the space was made for.
func (s *Space) Version() Version { return s.version }

// Deployment returns the deployment the space was made for. The caller must not modify it.
func (s *Space) Deployment() *deploy.Deployment { return s.dep }

// BetaFeatures returns the step-time slots in order.
func (s *Space) BetaFeatures() []Feature { return s.beta }

// AlphaFeatures returns the queue slots in order.
func (s *Space) AlphaFeatures() []Feature { return s.alpha }

// Beta writes the bounded step features of in into x, whose length must be len(BetaFeatures()), and
// returns the slots that hit their bound. It allocates nothing unless it fails. Codes:
// spec#input-checks.
func (s *Space) Beta(in *StepInput, x []float64) (hits Hits, err error) {
	if len(x) != len(s.beta) {
		return 0, wrongLength("beta", len(x), len(s.beta))
	}
	if err := s.checkStep(in); err != nil {
		return 0, err
	}
	for i := range s.steps {
		t := &s.steps[i]
		v := t.of(s, in)
		if !(v >= 0 && v <= t.bound) {
			if v, err = bounded(&s.beta[i], v, &hits); err != nil {
				return 0, err
			}
		}
		x[i] = v
	}
	return hits, nil
}

// Alpha writes the bounded queue features of in into x, whose length must be len(AlphaFeatures()),
// and returns the slots that hit their bound. It allocates nothing unless it fails. Codes:
// spec#input-checks.
func (s *Space) Alpha(in *QueueInput, x []float64) (hits Hits, err error) {
	if len(x) != len(s.alpha) {
		return 0, wrongLength("alpha", len(x), len(s.alpha))
	}
	if err := s.checkQueue(in); err != nil {
		return 0, err
	}
	for i := range s.queues {
		t := &s.queues[i]
		v := t.of(s, in)
		if !(v >= 0 && v <= t.bound) {
			if v, err = bounded(&s.alpha[i], v, &hits); err != nil {
				return 0, err
			}
		}
		x[i] = v
	}
	return hits, nil
}

// clip limits every value to [0, Bound] of its feature and returns the slots that were outside.
func clip(fs []Feature, x []float64) (hits Hits, err error) {
	for i, v := range x {
		if f := &fs[i]; !(v >= 0 && v <= f.Bound) {
			if x[i], err = bounded(f, v, &hits); err != nil {
				return 0, err
			}
		}
	}
	return hits, nil
}

// bounded returns v clipped to [0, Bound] and records the hit. It refuses NaN and infinity:
// replacing an infinite value by the bound would invent a number (spec#finite).
func bounded(f *Feature, v float64, hits *Hits) (float64, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, trace.Errorf(BadInput, "%s: got %g, want a finite number", f.Name, v)
	}
	*hits |= 1 << (f.Slot - 1)
	if v < 0 {
		return 0, nil
	}
	return f.Bound, nil
}

// wrongLength returns the error of a vector of the wrong length.
func wrongLength(model string, got, want int) error {
	return trace.Errorf(WrongFeatureSet, "%s features: got a vector of %d, want %d", model, got, want)
}

// given returns a quantity without a formula.
func given(name string, v float64, unit string) Quantity {
	return Quantity{Name: name, Value: v, Unit: unit}
}
