package predict

// This file divides the time of simulated steps into kinds of work, such as reading weights.

import (
	"math"
	"strings"

	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
)

// Share is the share of the engine's step time that a kind of work takes, in [0, 1].
type Share struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// Kinds of work in a step.
const (
	readWeights = iota
	readKV
	computeTokens
	collectives
	smallKernels
	hostWork
	numShares
)

var shareNames = [numShares]string{
	readWeights:   "reading weights",
	readKV:        "reading the KV cache",
	computeTokens: "computing tokens",
	collectives:   "collectives",
	smallKernels:  "small kernels",
	hostWork:      "the host",
}

// resourceOf returns the resource that limits a kind of work.
func resourceOf(share string) string {
	switch share {
	case shareNames[readWeights], shareNames[readKV]:
		return "memory bandwidth"
	case shareNames[computeTokens]:
		return "compute"
	case shareNames[collectives]:
		return "interconnect"
	}
	return "launches and host work"
}

// stepBreakdown is a latency model of a simulation that also divides the time of one step in
// sampleEvery into kinds of work.
type stepBreakdown struct {
	sim.Model
	step    *library.Step
	scale   float64            // the correction of all kernels on this GPU
	prompts *stepParts         // the steps with prompts of the current simulation, for the parts of the TTFT
	divides bool               // whether steps of the current simulation are divided into kinds of work
	us      [numShares]float64 // sums over the divided steps, by kind of work
	steps   int                // of all simulations so far
}

// sampleEvery is how many steps there are for each whose time is divided.
const sampleEvery = 16

// expertTokens is a number of tokens at which nearly every expert has some, but reading its weights still
// takes longer than computing them: the time of experts there is taken as that of reading all weights.
const expertTokens = 256

// newStepBreakdown returns a breakdown of the steps of a plan. The simulation sets the wrapped Model (see serve).
func newStepBreakdown(step *library.Step, hardware string) *stepBreakdown {
	return &stepBreakdown{step: step, scale: library.Learned().On(hardware)[library.ScaleGPU], prompts: newStepParts(step)}
}

// StepUs returns the step time of the wrapped model.
func (w *stepBreakdown) StepUs(b *sim.Batch) (float64, error) {
	batch := b.Kernels()
	w.prompts.addStep(b.StepID, &batch)
	us, err := w.Model.StepUs(b)
	w.steps++
	if w.steps%sampleEvery != 1 || err != nil || !w.divides {
		return us, err
	}
	// Times by operator: of this batch, and of batches in which reading weights takes all the time.
	oneToken := library.Batch{Tokens: 1, Sequences: 1}
	someTokens := library.Batch{Tokens: expertTokens, Sequences: 1}
	// The same decodes with nothing cached, of which rows of whole attention modules are projections alone.
	noContext := library.Batch{Tokens: batch.Decodes, Sequences: batch.Decodes, Decodes: batch.Decodes, DecodeContext: batch.Decodes}
	oneDecode := library.Batch{Tokens: 1, Sequences: 1, Decodes: 1, DecodeContext: 1}
	kernelUs := w.step.Us(&batch)
	oneTokenUs := w.step.Us(&oneToken)
	someTokensUs := w.step.Us(&someTokens)
	noContextUs := w.step.Us(&noContext)
	oneDecodeUs := w.step.Us(&oneDecode)
	sum := 0.0
	for i := range w.step.Operators {
		op := &w.step.Operators[i]
		opUs := kernelUs[i] * w.scale
		sum += opUs
		switch {
		case op.Kind == library.Collective:
			w.us[collectives] += opUs
		case strings.HasSuffix(op.Name, "_decode"):
			if strings.Contains(op.Table, "_module") {
				projections := math.Min(opUs, noContextUs[i]*w.scale)
				read := math.Min(projections, oneDecodeUs[i]*w.scale)
				w.us[readWeights] += read
				w.us[computeTokens] += projections - read
				opUs -= projections
			}
			w.us[readKV] += opUs
		case strings.HasSuffix(op.Name, "_prefill"):
			w.us[computeTokens] += opUs
		case op.Table != "":
			// A layer of one token takes as long as reading its weights, a layer of experts once
			// every expert is touched. What a step takes longer is compute.
			weightsUs := oneTokenUs[i]
			if op.Kind == library.Experts {
				weightsUs = someTokensUs[i]
			}
			read := math.Min(opUs, weightsUs*w.scale)
			w.us[readWeights] += read
			w.us[computeTokens] += opUs - read
		default:
			w.us[smallKernels] += opUs
		}
	}
	w.us[hostWork] += math.Max(0, us-sum) // the rest of the step
	return us, nil
}

// shares returns the shares of all kinds of work; nil for a nil breakdown or without a step.
func (w *stepBreakdown) shares() []Share {
	if w == nil {
		return nil
	}
	total := 0.0
	for _, us := range w.us {
		total += us
	}
	if total <= 0 {
		return nil
	}
	var out []Share
	for i, us := range w.us {
		out = append(out, Share{Name: shareNames[i], Share: us / total})
	}
	return out
}
