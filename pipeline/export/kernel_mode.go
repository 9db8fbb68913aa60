package export

// This file has the step-time formula of BLIS's kernel mode, to compare it with a fit.

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
)

// Positions of the terms of BLIS's kernel mode.
const (
	kernelStep         = iota // 1: host time of a step, us
	kernelDense               // time of matrix products at peak and the ramp's rows: 1/eps
	kernelExperts             // the same of routed experts, not divided by tensor parallelism: imbalance/eps
	kernelMemory              // time of weights, reached experts and norms at peak bandwidth: 1/derate
	kernelDecodes             // layers of a step with decodes: floor, us
	kernelDecodeKV            // time of their keys and values at peak bandwidth: peak/rate
	kernelPrefills            // layers of a step with prompts: floor, us
	kernelPrefillPairs        // time of their query-key pairs at peak and the ramp's rows: 1/(eps*scale)
	kernelReduces             // all-reduces of a step: floor, us
	kernelReduceBytes         // time of their bytes at the memory's peak bandwidth: that/rate
	kernelTerms               // how many there are
)

// kernelMode is the step time of BLIS's kernel mode as a sum of terms times coefficients. It follows the
// NoOverlap estimate of inference-sim/blis-latency-kernel (kernel.go and internal/price at 070f510),
// with two simplifications: a collective always runs at its largest rate, and the host time of a step
// is one number. It is valid for models with full attention and equal layers in 16 bits on
// tensor-parallel ranks. A chunk of one prompt token counts as prefill here and as decode there.
//
// A term is in us where its coefficient is a ratio, and a count where its coefficient is in us.
type kernelMode struct {
	Values [kernelTerms]float64
	// MHalf is the rows at which a matrix product has half of its largest rate.
	MHalf float64

	layers  float64
	dense   float64 // us a row at peak, dense matrix products
	expert  float64 // us a row at peak, routed experts
	weights float64 // us to read all weights but those of routed experts
	experts float64 // us to read the weights of all routed experts
	norms   float64 // us a row for the norms
	missed  float64 // log of the share of experts that a row leaves untouched
	kv      float64 // us a cached token
	pairs   float64 // us a query-key pair at peak
	reduces float64 // all-reduces a step
	reduced float64 // us a row for the bytes of all-reduces
	x       [kernelTerms]float64
}

// newKernelMode returns the terms of a deployment, without coefficients. mHalf is in rows.
func newKernelMode(d *deploy.Deployment, mHalf float64) *kernelMode {
	m := &d.Model
	h := &d.Hardware
	tp := float64(max(1, d.TP))
	flops := h.TFlopsPeak * 1e6 // FLOP/us
	bytes := h.BwPeakTBs * 1e6  // bytes/us
	layers := float64(m.NumLayers)
	moe := float64(m.NumMoELayers)
	hidden := float64(m.HiddenSize)
	heads := float64(m.NumHeads * m.HeadDim)
	kv := float64(m.NumKVHeads * m.HeadDim)
	// Parameters that every row meets: Q and O, K and V, the gate, up and down matrices of dense layers
	// and shared experts, and the output head. routed are those of one routed expert in all layers.
	parameters := 2*layers*hidden*(heads+kv) + (layers-moe)*3*hidden*float64(m.IntermediateSize) +
		moe*3*hidden*float64(m.SharedExpertSize) + hidden*float64(m.VocabSize)
	routed := moe * 3 * hidden * float64(m.MoEIntermediateSize)
	// A multiplication with an addition is 2 FLOP. A layer's two norms each read and write hidden
	// values of 2 bytes; its two all-reduces each move them once.
	k := &kernelMode{
		MHalf:   mHalf,
		layers:  layers,
		dense:   2 * parameters / tp / flops,
		expert:  2 * float64(m.TopK) * routed / flops,
		weights: m.BytesPerWeight * parameters / tp / bytes,
		experts: m.BytesPerWeight * float64(m.NumExperts) * routed / tp / bytes,
		norms:   layers * 8 * hidden / tp / bytes,
		missed:  math.Inf(-1),
		kv:      layers * 2 * math.Max(float64(m.NumKVHeads)/tp, 1) * float64(m.HeadDim) * m.BytesPerKV / bytes,
		pairs:   4 * layers * heads / tp / flops,
	}
	if m.TopK < m.NumExperts {
		k.missed = math.Log1p(-float64(m.TopK) / float64(m.NumExperts))
	}
	if tp > 1 {
		k.reduces = 2 * layers
		k.reduced = 4 * layers * hidden / bytes
	}
	return k
}

// Terms returns the terms of a batch by position, valid until the next call.
//
// A matrix product of so many rows runs at the share rows/(rows+MHalf) of its largest rate, so that
// it takes as long as rows+MHalf rows at that rate (ramp). Of E routed experts, k to a row, the rows
// reach E*(1 - (1-k/E)^rows) on average, if each row chooses at random.
func (k *kernelMode) Terms(b *sim.Batch) []float64 {
	rows := float64(b.Tokens())
	ramp := rows + k.MHalf
	k.x = [kernelTerms]float64{
		kernelStep:        1,
		kernelDense:       k.dense * ramp,
		kernelExperts:     k.expert * ramp,
		kernelMemory:      k.weights + k.norms*rows - k.experts*math.Expm1(rows*k.missed),
		kernelDecodeKV:    k.kv * float64(b.DecodeContext),
		kernelReduces:     k.reduces,
		kernelReduceBytes: k.reduced * rows,
	}
	if b.DecodeReqs > 0 {
		k.x[kernelDecodes] = k.layers
	}
	if b.PrefillReqs > 0 {
		// n tokens after c have n*c + n*n/2 pairs there; CausalWork has n(n+1)/2 as its second summand.
		k.x[kernelPrefills] = k.layers
		k.x[kernelPrefillPairs] = k.pairs * ramp / rows * (float64(2*b.CausalWork-b.PrefillTokens) / 2)
	}
	return k.x[:]
}

// StepUs returns the sum of the terms times their coefficients, the time of a step in us.
func (k *kernelMode) StepUs(b *sim.Batch) (us float64, err error) {
	for i, x := range k.Terms(b) {
		us += x * k.Values[i]
	}
	return us, nil
}
