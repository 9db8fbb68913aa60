package features

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
)

// This file has the step-time models of other programs as linear functions of one step: the
// trained-physics model of the BLIS simulator (11 beta terms) and its three-term blackbox. The fit
// solves for their coefficients and the simulator predicts with them through the same functions.
//
// The trained-physics formulas follow sim/latency/trained_physics_model.go of
// github.com/inference-sim/inference-sim at commit
// f90a1e3a6787da17c2cd463dab6fb2660b1b1760 (August 2026), where the number of betas selects the
// formula:
//
//	7, 8    b0*max(prefill compute, prefill kv) + b1*max(decode compute, decode kv) + ...
//	9       prefill split: b0*compute + b8*kv
//	10, 11  decode split too: b1*compute + b9*kv
//
// A missing coefficient is therefore not the same as 0; below 11 the last term (MoE dispatch) takes
// the coefficient of the all-reduce. One known error of BLIS is kept (TestPrefillAttnGap): a prefill
// chunk of t tokens is charged t*(S + t/2) token pairs, with S the full prompt. For a prompt in one
// chunk that is 1.5 S^2, where the causal mask leaves S^2/2.
//
// Terms of a time are in us at peak rate and their coefficients are ratios; terms of a count have
// coefficients in us per count.

// Step is what the terms of BLIS's models depend on in one step, as sums over its sequences. As in
// BLIS a chunk is prefill while its computed tokens are fewer than the prompt's.
type Step struct {
	PrefillTokens float64 // tokens scheduled in prefill chunks
	DecodeTokens  float64 // decodes, one token each
	Requests      float64 // sequences in the batch
	PrefillAttn   float64 // sum over prefill chunks of t*(S + t/2), t new tokens, S the full prompt
	DecodeContext float64 // sum over decodes of the tokens already in KV
}

// Add adds one chunk to the sums.
func (s *Step) Add(c trace.Chunk) {
	if c.New == 0 {
		return
	}
	s.Requests++
	if c.Computed < c.Prompt {
		tokens := float64(c.New)
		s.PrefillTokens += tokens
		s.PrefillAttn += tokens * (float64(c.Prompt) + tokens/2)
		return
	}
	s.DecodeTokens += float64(c.New)
	s.DecodeContext += float64(c.Computed)
}

// BasisSum returns the sums over a batch.
func BasisSum(batch []trace.Chunk) Step {
	var s Step
	for _, c := range batch {
		s.Add(c)
	}
	return s
}

// Term describes one term of BLIS's models.
type Term struct {
	Name string // stable name; the registry's name where it has one
	Unit string // unit of the coefficient
	Doc  string
}

// TrainedPhysicsBeta returns the terms in BLIS's positional order.
func TrainedPhysicsBeta() []Term { return trainedPhysics }

// trainedPhysics are the terms of BLIS's trained physics in its positional order.
var trainedPhysics = []Term{
	{"prefill_compute", "dimensionless", "prefill FLOPs at peak, per device"},
	{"decode_compute", "dimensionless", "decode FLOPs at peak, per device"},
	{"weight_load", "dimensionless", "weight bytes of one device at peak bandwidth, once per step"},
	{"tp_allreduce_attention", "dimensionless", "two ring all-reduces per layer, at HBM bandwidth"},
	{"per_layer_overhead", "us_per_layer", "layers"},
	{"per_request_overhead", "us_per_request", "sequences in the batch"},
	{"per_step_overhead", "us_per_step", "constant"},
	{"per_moe_layer_overhead", "us_per_layer", "MoE layers of interleaved models, else 0"},
	{"prefill_kv_read", "dimensionless", "KV bytes written by prefill at peak bandwidth"},
	{"decode_kv_read", "dimensionless", "KV bytes read and written by decode at peak bandwidth"},
	{"moe_dispatch_alltoall", "dimensionless", "dispatch and combine, only with data parallelism"},
}

// Positions in TrainedPhysicsBeta.
const (
	prefillCompute = iota
	decodeCompute
	basisWeightLoad
	allReduce
	perLayer
	perRequest
	PerStep
	perMoELayer
	prefillKV
	decodeKV
	moEDispatch
)

// bytesPerKV is BLIS's fixed KV width, 16 bits for any kv_cache_dtype.
const bytesPerKV = 2.0

// TrainedPhysics has the constants of BLIS's trained-physics terms for one deployment.
type TrainedPhysics struct {
	flopPerUs, bytePerUs                     float64
	projPerToken, ffnPerToken                float64 // FLOP per token per device, all layers
	attnPerPair                              float64 // FLOP per token pair per device, all layers
	kvBytesPerToken                          float64 // per device, all layers
	weightUs, allReducePerToken, moeDispatch float64 // us; us per token; us per token
	layers, moeLayers                        float64
}

// NewTrainedPhysics returns the model with the constants for d, from the deployed model as BLIS
// reads it.
func NewTrainedPhysics(d *deploy.Deployment) (*TrainedPhysics, error) {
	asRead := d.Model.AsBLISReads()
	m := &asRead
	h := &d.Hardware
	tp := float64(max(1, d.TP))
	if err := checkTrainedPhysics(d, m); err != nil {
		return nil, err
	}
	dp := float64(max(1, d.DP))
	t := &TrainedPhysics{bytePerUs: h.BwPeakTBs * 1e6, flopPerUs: h.TFlopsPeak * 1e6}
	if m.BytesPerWeight == 1 && h.TFlopsFP8 > 0 {
		t.flopPerUs = h.TFlopsFP8 * 1e6
	}
	isMoE := m.NumExperts >= 2
	t.layers = float64(m.NumLayers)
	if isMoE {
		t.moeLayers = float64(m.NumMoELayers)
	}
	dense := t.layers - t.moeLayers
	group := tp // experts are sharded over the flattened TP x DP group
	if isMoE {
		group = tp * dp
	}
	// Widths of one layer.
	hidden := float64(m.HiddenSize)
	headDim := float64(m.HiddenSize / m.NumHeads) // as BLIS computes it
	kvDim := float64(m.NumKVHeads) * headDim
	topK := float64(max(1, m.TopK))
	moeFFN := float64(m.MoEIntermediateSize)
	denseFFN := float64(m.IntermediateSize)
	shared := float64(m.SharedExpertSize)
	if !isMoE {
		shared = 0
	}
	// FLOP per token and device: query, output, key and value projections, then the gated FFN (three
	// matrices, 2 FLOP per weight), then attention (QK' and PV, 2 FLOP each).
	t.projPerToken = t.layers * 2 * hidden * (2*hidden + 2*kvDim) / (tp * dp)
	t.ffnPerToken = t.moeLayers*topK/group*6*hidden*moeFFN + t.moeLayers*6*hidden*shared/(tp*dp) + dense*6*hidden*denseFFN/(tp*dp)
	t.attnPerPair = t.layers * 4 * (float64(m.NumHeads) / tp) * headDim / dp
	// Keys and values of one token, B per device.
	t.kvBytesPerToken = 2 * bytesPerKV * t.layers * (kvDim / (tp * dp))
	// The weights of one device are read once a step.
	weightBytes := m.BytesPerWeight
	bytesAttn := t.layers * hidden * (2*hidden + 2*kvDim) * weightBytes / tp
	bytesFFN := t.moeLayers*(float64(m.NumExperts)/group)*3*hidden*moeFFN*weightBytes + t.moeLayers*3*hidden*shared*weightBytes/tp +
		dense*3*hidden*denseFFN*weightBytes/tp
	t.weightUs = (bytesAttn + bytesFFN) / t.bytePerUs
	// A ring all-reduce moves 2(tp-1)/tp of the activations of a token. A layer has two of them; its
	// second one, after the FFN, falls away where experts exchange tokens over data parallelism.
	ringUs := 2 * hidden * m.BytesPerActivation * (tp - 1) / tp / t.bytePerUs
	t.allReducePerToken = ringUs * (t.layers + dense) / dp
	if isMoE && dp == 1 {
		t.allReducePerToken += ringUs * t.moeLayers
	}
	if isMoE && dp > 1 {
		t.moeDispatch = t.moeLayers / dp * (group - 1) / group * 2 * hidden * m.BytesPerActivation / t.bytePerUs
	}
	if dense == 0 { // the overhead per MoE layer is charged to interleaved models only
		t.moeLayers = 0
	}
	return t, nil
}

// checkTrainedPhysics returns an error for deployments that BLIS's formulas cannot represent.
func checkTrainedPhysics(d *deploy.Deployment, m *model.Model) error {
	h, tp := &d.Hardware, max(1, d.TP)
	switch {
	case !(h.TFlopsPeak > 0) || math.IsInf(h.TFlopsPeak, 0) || !(h.BwPeakTBs > 0) || math.IsInf(h.BwPeakTBs, 0):
		return trace.Errorf(deploy.BadHardware, "peaks: got %g TFLOP/s and %g TB/s, want finite and > 0", h.TFlopsPeak, h.BwPeakTBs)
	case m.NumLayers <= 0 || m.NumHeads <= 0 || m.HiddenSize <= 0 || m.NumKVHeads <= 0:
		return trace.Errorf(model.BadModel, "model: got %d layers, %d heads, %d KV heads, hidden size %d, want all > 0", m.NumLayers,
			m.NumHeads, m.NumKVHeads, m.HiddenSize)
	case m.NumHeads%tp != 0 || m.NumKVHeads%tp != 0:
		return trace.Errorf(model.BadModel, "heads: got %d heads and %d KV heads, BLIS wants multiples of tensor_parallel_size %d",
			m.NumHeads, m.NumKVHeads, tp)
	}
	return nil
}

// Beta writes the eleven terms of a step with at least one sequence into x: the linear form that 10
// and 11 betas select.
func (t *TrainedPhysics) Beta(s *Step, x []float64) {
	x[prefillCompute] = (s.PrefillTokens*(t.projPerToken+t.ffnPerToken) + s.PrefillAttn*t.attnPerPair) / t.flopPerUs
	x[decodeCompute] = (s.DecodeTokens*(t.projPerToken+t.ffnPerToken) + s.DecodeContext*t.attnPerPair) / t.flopPerUs
	x[basisWeightLoad] = t.weightUs
	x[allReduce] = t.allReducePerToken * (s.PrefillTokens + s.DecodeTokens)
	x[perLayer] = t.layers
	x[perRequest] = s.Requests
	x[PerStep] = 1
	x[perMoELayer] = t.moeLayers
	x[prefillKV] = s.PrefillTokens * t.kvBytesPerToken / t.bytePerUs
	x[decodeKV] = (s.DecodeContext + s.DecodeTokens) * t.kvBytesPerToken / t.bytePerUs
	x[moEDispatch] = t.moeDispatch * (s.PrefillTokens + s.DecodeTokens)
}

// LeastBetas is how many beta coefficients trained-physics has at least: the others are 0.
const LeastBetas = 7

// CheckBetas returns an error unless there are 7 to 11 finite, non-negative values.
func CheckBetas(beta []float64) error {
	if len(beta) < LeastBetas || len(beta) > len(TrainedPhysicsBeta()) {
		return trace.Errorf(coeff.BadFile, "beta coefficients: got %d values, want %d to %d", len(beta), LeastBetas, len(TrainedPhysicsBeta()))
	}
	for i, b := range beta {
		if math.IsNaN(b) || math.IsInf(b, 0) || b < 0 {
			return trace.Errorf(coeff.BadFile, "beta coefficient %d (%s): got %g, want finite and >= 0", i, TrainedPhysicsBeta()[i].Name, b)
		}
	}
	return nil
}

// StepUs returns the predicted step time in us before BLIS truncates it. The number of betas
// selects the formula, as above. x is scratch of len(TrainedPhysicsBeta()).
func (t *TrainedPhysics) StepUs(s *Step, beta, x []float64) float64 {
	t.Beta(s, x)
	betas := len(beta)
	prefill := beta[prefillCompute] * math.Max(x[prefillCompute], x[prefillKV])
	if betas > prefillKV {
		prefill = beta[prefillCompute]*x[prefillCompute] + beta[prefillKV]*x[prefillKV]
	}
	decode := beta[decodeCompute] * math.Max(x[decodeCompute], x[decodeKV])
	if betas > decodeKV {
		decode = beta[decodeCompute]*x[decodeCompute] + beta[decodeKV]*x[decodeKV]
	}
	dispatch := beta[allReduce]
	if betas > moEDispatch {
		dispatch = beta[moEDispatch]
	}
	y := prefill + decode + beta[basisWeightLoad]*x[basisWeightLoad] + beta[allReduce]*x[allReduce] +
		dispatch*x[moEDispatch] + beta[perLayer]*x[perLayer] + beta[perRequest]*x[perRequest] + beta[PerStep]
	if betas > perMoELayer {
		y += beta[perMoELayer] * x[perMoELayer]
	}
	return y
}

// Terms writes the terms of a model with len(out) betas into out, from the eleven values x of a
// step, so that the step time is the dot product of betas and terms: the larger of two values that
// share a maximum, and the dispatch added to the all-reduce where it has no beta of its own.
func Terms(x, out []float64) []float64 {
	n := copy(out, x)
	if n <= prefillKV {
		out[prefillCompute] = math.Max(x[prefillCompute], x[prefillKV])
	}
	if n <= decodeKV {
		out[decodeCompute] = math.Max(x[decodeCompute], x[decodeKV])
	}
	if n <= moEDispatch {
		out[allReduce] += x[moEDispatch]
	}
	return out
}

// BlackboxBeta lists the blackbox step-time terms:
//
//	step_us = b0 + b1 * uncached prefill tokens + b2 * decode tokens
//
// Beside it the model has a delay of a0 + a1*M before the queue (M prompt tokens)
// and of a2*N after the engine (N output tokens).
var BlackboxBeta = []Term{
	{"per_step", "us/step", "constant"},
	{"per_prefill_token", "us/token", "prefill tokens computed in the step (cache hits excluded)"},
	{"per_decode_token", "us/token", "decode tokens of the step"},
}

// Blackbox writes the three step terms into x, len(BlackboxBeta).
func Blackbox(s *Step, x []float64) {
	x[0] = 1
	x[1] = s.PrefillTokens
	x[2] = s.DecodeTokens
}
