package autoscale

import (
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// sized is a server of queue.json as a queueing model: its parameters, traffic and limits.
type sized struct {
	Flavour Flavour
	Params  params
	Shape   shape
	Limits  Limits
}

// sizedOf reads a server back. Effective parameters go before physical ones; lengths
// above 0 replace those of its windows.
func sizedOf(s *QueueServer, f Flavour, prompt, output float64) (*sized, error) {
	params := s.Effective
	if len(params) == 0 {
		params = s.Physical
	}
	if len(params) != len(f.Parameters()) {
		return nil, trace.Errorf(badModel, "server %q: got %d %s parameters, want %d", s.ID, len(params), f,
			len(f.Parameters())).WithHint("its reason: " + s.Reason)
	}
	z := &sized{Flavour: f, Params: fromVector(valuesOf(params)), Limits: s.Limits}
	if l := s.Load; l != nil {
		z.Shape = shape{Prompt: l.PromptTokens, Cached: l.CachedTokens, Output: l.OutputTokens, PromptCV2: l.PromptCV2,
			OutputCV2: l.OutputCV2}
	}
	if prompt > 0 {
		z.Shape.Cached *= prompt / max(z.Shape.Prompt, 1)
		z.Shape.Prompt = prompt
	}
	if output > 0 {
		z.Shape.Output = output
	}
	if z.Shape.Output == 0 {
		return nil, trace.Errorf(badModel, "server %q: no window says how long its requests are",
			s.ID).WithHint("give --prompt-tokens and --output-tokens")
	}
	return z, nil
}

// Size finds the largest rate that meets the targets.
func (z *sized) Size(t Targets) (*QueueSizing, []trace.Finding, error) {
	m, err := New(z.Flavour, z.Params, z.Shape, z.Limits)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Size(t)
	if err != nil {
		return nil, nil, err
	}
	return &s.QueueSizing, s.Findings, nil
}

// Simulate is what the simulator says of n requests at a rate: Poisson arrivals and
// log-normal lengths of the server's own spread. The parameters must be those of an
// iteration.
func (z *sized) Simulate(rateRPS float64, n int, seed uint64, done <-chan struct{}) (*queueSimPoint, error) {
	if z.Flavour == wvA4P {
		return nil, trace.Errorf(badOption,
			"simulation: got flavour wva-4p, whose parameters are no step time, want one of three parameters")
	}
	t := workload.Traffic{Shape: z.Shape, Prompts: workload.LogNormalLaw, Output: workload.LogNormalLaw,
		RateRPS: rateRPS, Requests: n, Seed: seed}
	p, _, err := simulate(z.Params, z.Limits, t, done)
	return p, err
}
