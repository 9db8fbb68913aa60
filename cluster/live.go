package cluster

// This file estimates TTFT from the true state of the simulated engines: the best that any estimate of
// a gateway could be.

import (
	"math"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
)

// live is an estimator of TTFT that reads the hidden state of the simulated engines, including how
// many tokens each answer still has to produce. No real gateway can do this. It is the control
// policy clairvoyant, and shows what perfect knowledge of the present is worth.
type live struct {
	Engines    []*forecast.Engine // with the coefficients that drive the engines
	ByPriority bool

	engines []sim.Server  // the simulated engines, of one rank each
	reqs    []sim.Request // with the priorities that the engines get
}

// TTFT estimates the time to the first token of r on instance i from the instance's true state:
// what waits ahead of r, what decodes and for how long. The estimate is that of package forecast.
func (l *live) TTFT(r *Request, v *View, i int) (estimate, error) {
	own := forecast.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	e := l.engines[i].(*sim.Engine)
	in := l.engines[i].Inside()
	s := forecast.State{FreeBlocks: in.FreeBlocks, SinceStepUs: math.NaN()}
	expectArrivals(&s, r, v, i, l.ByPriority)
	if in.StepStartUs >= 0 {
		s.SinceStepUs = float64(v.NowUs - in.StepStartUs)
	}
	ownPriority := l.reqs[r.Index].Priority
	remaining := int64(0) // output tokens that all decodes will still produce
	e.Each(func(w sim.Work) {
		left := w.Prompt - w.Computed // prompt tokens that are computed after the step under way
		prefillInStep := w.Running && w.InStep > 0 && w.Outputs == 0
		if prefillInStep {
			s.StepTokens += w.InStep
		}
		switch {
		case prefillInStep && left <= 0: // its prompt ends in the step
			s.StepRequests++
		case w.Running && left <= 0: // it decodes
			s.Decodes++
			s.DecodeTokens += w.Computed
			remaining += w.Remaining
		case !l.ByPriority || w.Running || w.Priority <= ownPriority:
			s.AheadRequests++
			s.AheadTokens += max(1, left)
		default:
			s.BehindTokens += max(1, left)
		}
	})
	if s.Decodes > 0 {
		s.OutputTokens = math.Max(1, float64(remaining)/float64(s.Decodes))
	}
	x, err := l.Engines[i].TTFT(&s, &own)
	return estimate{x, s.AheadTokens > 0, l.ByPriority}, err
}
