package sim

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
)

// Positions of the terms of BLIS's kernel mode.
const (
	KernelStep         = iota // 1: host time of a step, us
	KernelDense               // time of matrix products at peak and the ramp's rows: 1/eps
	KernelExperts             // the same of routed experts, not divided by tensor parallelism: imbalance/eps
	KernelMemory              // time of weights, reached experts and norms at peak bandwidth: 1/derate
	KernelDecodes             // layers of a step with decodes: floor, us
	KernelDecodeKV            // time of their keys and values at peak bandwidth: peak/rate
	KernelPrefills            // layers of a step with prompts: floor, us
	KernelPrefillPairs        // time of their query-key pairs at peak and the ramp's rows: 1/(eps*scale)
	KernelReduces             // all-reduces of a step: floor, us
	KernelReduceBytes         // time of their bytes at the memory's peak bandwidth: that/rate
	KernelTerms               // how many there are
)

// KernelMode is the step of BLIS's kernel mode as a sum of terms times coefficients: the NoOverlap estimate of
// inference-sim/blis-latency-kernel (kernel.go, internal/price at 070f510), whose largest rate of a collective is the one within its
// range, and whose host time of a step is one number. It is the law of models with full attention and equal layers in 16 bits, on
// tensor-parallel ranks. A prompt's chunk of one token is a prompt's here and a decode there.
//
// Units: us a term where its coefficient is a ratio, a count where the coefficient is in us.
type KernelMode struct {
	Values [KernelTerms]float64
	// MHalf is the rows at which a matrix product has half of its largest rate.
	MHalf float64

	layers                      float64
	dense, expert               float64 // us a row at peak
	weights, experts, norms     float64 // us: of all weights outside routed experts, of all routed experts, of a row's norms
	missed                      float64 // log of the share of experts that a row leaves untouched
	kv, pairs, reduces, reduced float64 // us a cached token, us a pair at peak, launches, us a row
	x                           [KernelTerms]float64
}

// NewKernelMode is the law of a deployment.
func NewKernelMode(d *deploy.Deployment, mHalf float64) *KernelMode {
	m, h, tp := &d.Model, &d.Hardware, float64(max(1, d.TP))
	flops, bytes := h.TFlopsPeak*1e6, h.BwPeakTBs*1e6 // a us
	layers, moe, hid := float64(m.NumLayers), 0.0, float64(m.HiddenSize)
	if m.IsMoE() {
		moe = float64(m.NumMoELayers)
	}
	heads, kv := float64(m.NumHeads*m.HeadDim), float64(m.NumKVHeads*m.HeadDim)
	parameters := float64(2*layers*hid*(heads+kv)) + float64((layers-moe)*3*hid*float64(m.IntermediateSize)) +
		float64(moe*3*hid*float64(m.SharedExpertSize)) + float64(hid*float64(m.VocabSize))
	routed := moe * 3 * hid * float64(m.MoEIntermediateSize)
	k := &KernelMode{MHalf: mHalf, layers: layers, dense: 2 * parameters / tp / flops, weights: m.BytesPerWeight * parameters / tp / bytes,
		norms: layers * 8 * hid / tp / bytes, expert: 2 * float64(m.TopK) * routed / flops,
		experts: m.BytesPerWeight * float64(m.NumExperts) * routed / tp / bytes, missed: math.Inf(-1),
		kv:    layers * 2 * math.Max(float64(m.NumKVHeads)/tp, 1) * float64(m.HeadDim) * m.BytesPerKV / bytes,
		pairs: 4 * layers * heads / tp / flops}
	if m.TopK < m.NumExperts {
		k.missed = stat.Log1p(-float64(m.TopK) / float64(m.NumExperts))
	}
	if tp > 1 {
		k.reduces, k.reduced = 2*layers, 4*layers*hid/bytes
	}
	return k
}

// Terms are a batch's, by position; valid until the next call.
func (k *KernelMode) Terms(b *Batch) []float64 {
	rows := float64(b.Tokens())
	ramp := rows + k.MHalf
	k.x = [KernelTerms]float64{KernelStep: 1, KernelDense: k.dense * ramp, KernelExperts: k.expert * ramp,
		KernelMemory:   k.weights + float64(k.norms*rows) - float64(k.experts*stat.Expm1(rows*k.missed)),
		KernelDecodeKV: k.kv * float64(b.DecodeContext), KernelReduces: k.reduces, KernelReduceBytes: k.reduced * rows}
	if b.DecodeReqs > 0 {
		k.x[KernelDecodes] = k.layers
	}
	if b.PrefillReqs > 0 {
		k.x[KernelPrefills] = k.layers
		k.x[KernelPrefillPairs] = k.pairs * ramp / rows * (float64(2*b.CausalWork-b.PrefillTokens) / 2)
	}
	return k.x[:]
}

// StepUs is the sum of the terms times their coefficients.
func (k *KernelMode) StepUs(b *Batch) (us float64, err error) {
	for i, x := range k.Terms(b) {
		us += float64(x * k.Values[i])
	}
	return us, nil
}
