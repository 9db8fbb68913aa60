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
	kernelDecodes             // layers with attention of a step with decodes: floor, us
	kernelDecodeKV            // time of their keys and values at peak bandwidth: peak/rate
	kernelPrefills            // layers with attention of a step with prompts: floor, us
	kernelPrefillPairs        // time of their query-key pairs at peak and the ramp's rows: 1/(eps*scale)
	kernelReduces             // all-reduces of a step: floor, us
	kernelReduceBytes         // time of their bytes at the memory's peak bandwidth: that/rate
	kernelStates              // tokens in layers with a recurrent state: us
	kernelTerms               // how many there are
)

// kernelMode is the step time of BLIS's kernel mode as a sum of terms times coefficients. It follows the
// NoOverlap estimate of inference-sim/blis-latency-kernel (kernel.go and internal/price at 070f510),
// with three simplifications: a collective always runs at its largest rate, the host time of a step is
// one number, and the layers of a decode that have windows take the same time at every context. It is
// valid for the graphs that catalogModel.graphOf reads, on tensor-parallel ranks. A chunk of one prompt
// token counts as prefill here and as decode there.
//
// A term is in us where its coefficient is a ratio, and a count where its coefficient is in us.
type kernelMode struct {
	Values [kernelTerms]float64
	// MHalf is the rows at which a matrix product has half of its largest rate.
	MHalf float64
	// Products ends the names of the coefficients of matrix products: the format of their rate.
	Products string

	graph   *catalogGraph
	dense   float64 // us a row at peak, dense matrix products
	expert  float64 // us a row at peak, routed experts
	weights float64 // us to read all weights but those of routed experts
	experts float64 // us to read the weights of all routed experts
	norms   float64 // us a row for the norms
	missed  float64 // log of the share of experts that a row leaves untouched; -Inf: it touches all
	kv      float64 // us a cached token
	pairs   float64 // us a query-key pair at peak for each value of all heads
	reduces float64 // all-reduces a step
	reduced float64 // us a row for the bytes of all-reduces
	x       [kernelTerms]float64
}

// newKernelMode returns the terms of a deployment on a part of the catalog, without coefficients. format
// is that of the weights that matrix products are computed with, mHalf is in rows.
func newKernelMode(d *deploy.Deployment, g *catalogGraph, format string, part catalogPart, mHalf float64) *kernelMode {
	tp := float64(max(1, d.TP))
	tflops, products := part.products(format)
	flops := tflops * 1e6      // FLOP/us
	bytes := part.memory * 1e6 // bytes/us
	// A multiplication with an addition is 2 FLOP.
	k := &kernelMode{
		MHalf:    mHalf,
		Products: products,
		graph:    g,
		dense:    2 * g.matrices / tp / flops,
		expert:   2 * g.topK * g.routed / flops,
		weights:  g.bytes / tp / bytes,
		experts:  g.experts * g.routedBytes / tp / bytes,
		norms:    g.normBytes / tp / bytes,
		missed:   math.Inf(-1),
		kv:       g.cachedBytes / bytes,
		pairs:    4 / tp / flops,
	}
	if g.topK < g.experts {
		k.missed = math.Log1p(-g.topK / g.experts)
	}
	if tp > 1 { // each all-reduce moves the hidden values of a row once, of 2 bytes each
		k.reduces = g.blocks
		k.reduced = 2 * g.blocks * float64(d.Model.HiddenSize) / bytes
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
		k.x[kernelDecodes] = k.graph.attending
	}
	k.x[kernelStates] = k.graph.recurrent * rows
	if b.PrefillReqs > 0 {
		// n tokens after c have n*c + n*n/2 pairs there; our sums have n(n+1)/2 as their second summand, which
		// within a window is more by at most half a pair a token.
		work := k.graph.headWidth * (float64(2*b.CausalWork-b.PrefillTokens) / 2)
		for _, w := range k.graph.windows {
			work += w.headWidth * float64(b.PrefillPairs(w.reach))
		}
		k.x[kernelPrefills] = k.graph.attending
		k.x[kernelPrefillPairs] = k.pairs * ramp / rows * work
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
