package forecast

// This file is the interface of package forecast (State, Request, Engine) and the step times that a
// rollout uses.

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
)

// maxSteps is the number of steps that a rollout simulates one by one; the rest is extrapolated.
const maxSteps = 32

// maxStretch is the largest factor by which requests of more important classes that are still to
// arrive can lengthen a wait.
const maxStretch = 10

// State is the state of an engine when a router decides. Counts are of other requests
// than the one to be placed.
type State struct {
	Decodes       int64 // requests past their first token
	DecodeTokens  int64 // their tokens in KV
	StepTokens    int64 // prompt tokens of the running step
	StepRequests  int64 // requests whose prompt ends in it
	NextTokens    int64 // with asynchronous scheduling, the same for the step that is already formed
	NextRequests  int64
	SinceStepUs   float64 // time since the running step started; NaN if unknown
	AheadTokens   int64   // further prompt tokens to compute before the request's own
	AheadRequests int64   // requests they belong to
	FreeBlocks    int64   // free KV blocks; negative if unknown, which counts as enough
	OutputTokens  float64 // mean output length of requests that have finished; 0: unknown
	// Leaving is the expected share of the decodes that leave in a step, for each window of
	// LeavingSteps steps; nil for 1/OutputTokens.
	Leaving      []float64
	LeavingSteps int
	PrefillPerS  float64 // recent arrivals: prompt tokens to compute, per second
	PromptsPerS  float64 // recent arrivals: requests per second
	BehindTokens int64   // prompt tokens that will be computed after the request's own
	ComingPerS   float64 // expected arrivals that can join the request's step, prompt tokens per second; see TTFT
	// ComingPrompt is the mean length of such a prompt, tokens; 0 if unknown, for which the estimate
	// adds the mean of the arrivals.
	ComingPrompt float64
	BetterPerS   float64 // the part of ComingPerS that is of more important classes, which are served first
	BetterPrompt float64 // mean tokens of one of those prompts; below 1 it counts as 1
}

// Request is the request that the estimate is for.
type Request struct {
	PromptTokens int64
	CachedTokens int64 // prompt tokens expected in the prefix cache, less than PromptTokens
}

// Engine estimates latencies for one deployment. It is not safe for concurrent use.
type Engine struct {
	steps    sim.Model
	overhead sim.Delay // nil: none

	budget      int64 // max_num_batched_tokens
	maxSeqs     int64 // max_num_seqs
	blockSize   int64 // tokens
	longPrefill int64 // long_prefill_token_threshold; 0: off
	totalBlocks int64
	async       bool      // asynchronous scheduling
	chunked     bool      // chunked prefill
	batch       sim.Batch // the prompts of the step whose time is asked next
}

// New returns an estimator with the step times and the overhead of a coefficient set, as the
// simulator uses them. Without an overhead model in the set the overhead is 0.
func New(set *coeff.Set, d *deploy.Deployment) (*Engine, error) {
	steps, err := sim.NewPhysics(set, d)
	if err != nil {
		return nil, err
	}
	e := NewWith(steps, d)
	if set.AlphaModel(coeff.Overhead) != nil {
		if e.overhead, err = sim.NewAlphaDelay(set, coeff.Overhead, d); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// NewWith returns an estimator with the step times of any latency model, and no overhead.
func NewWith(steps sim.Model, d *deploy.Deployment) *Engine {
	return &Engine{
		steps:       steps,
		budget:      d.Engine.MaxNumBatchedTokens,
		maxSeqs:     d.Engine.MaxNumSeqs,
		blockSize:   d.Engine.BlockSize,
		longPrefill: d.Engine.LongPrefillThreshold,
		totalBlocks: d.Engine.KVBlocksGPU.Or(0),
		async:       d.Engine.IsAsync(),
		chunked:     d.Engine.ChunkedPrefill,
	}
}

// SetOverhead replaces the model of the time from the API to the engine.
func (e *Engine) SetOverhead(d sim.Delay) { e.overhead = d }

// stepUs returns the time of a step, us, of a number of decodes with tokens in KV together with the
// prompts that were added to e.batch, which it empties.
func (e *Engine) stepUs(decodes, tokens int64) (float64, error) {
	b := &e.batch
	b.AddDecodes(decodes, tokens, (tokens+e.blockSize-1)/e.blockSize)
	b.Running = b.DecodeReqs + b.PrefillReqs
	us, err := e.steps.StepUs(b)
	e.batch = sim.Batch{}
	return math.Max(1, us), err
}

// OverheadUs returns the time that the request takes from the API to the engine's input queue, us.
func (e *Engine) OverheadUs(s *State, r *Request) (float64, error) {
	if e.overhead == nil {
		return 0, nil
	}
	q := sim.Queue{
		Running:      s.Decodes + s.StepRequests + s.NextRequests,
		Waiting:      s.AheadRequests,
		FreeBlocks:   max(0, s.FreeBlocks),
		TotalBlocks:  e.totalBlocks,
		PromptTokens: r.PromptTokens,
		CachedBlocks: r.CachedTokens / e.blockSize,
	}
	us, err := e.overhead.DelayUs(&q)
	return math.Max(0, us), err
}

// StepUs returns the time of a step, us: decodes with tokens in KV, and n prompts that have m
// tokens together.
func (e *Engine) StepUs(decodes, tokens, n, m int64) (float64, error) {
	e.addPrompts(n, m)
	return e.stepUs(decodes, tokens)
}

// addPrompts adds n equal prompts of m tokens in all to the batch.
func (e *Engine) addPrompts(n, m int64) {
	if m < 1 {
		return
	}
	n = max(1, min(n, m))
	for i := n; i > 0; i-- {
		part := m / i
		e.batch.AddPrefill(0, part, part)
		m -= part
	}
}

// Room returns how many prompt tokens fit into a step next to a number of decodes, and how many
// more requests max_num_seqs allows.
func (e *Engine) Room(decodes int64) (tokens, requests int64) {
	return max(1, e.budget-decodes), max(0, e.maxSeqs-decodes)
}
