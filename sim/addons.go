package sim

// This file has latency models that wrap another one: they add the time of a drafter (the small
// model of speculative decoding), or of exchanging tokens between data-parallel ranks, to each
// step.

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// drafting is a latency model whose steps also run the drafter, the model that proposes tokens for
// speculative decoding.
type drafting struct {
	Model
	us float64 // time of the drafter's passes in a step
}

// WithDrafter returns a model that adds the time of deployment d's drafter to every step with
// tokens: chunks of prompts pass through the draft model too. It returns m itself if no drafter runs on the GPU.
func WithDrafter(m Model, d *deploy.Deployment) Model {
	us, passes := d.DrafterUs()
	if us == 0 {
		return m
	}
	return &drafting{Model: m, us: us * float64(passes)}
}

// StepUs returns the time of the step, us, including that of drafting the proposals for the next
// step.
func (m *drafting) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.DecodeReqs+b.PrefillReqs > 0 {
		us += m.us
	}
	return us, err
}

// Warnings returns the warnings of the wrapped model.
func (m *drafting) Warnings() []trace.Finding {
	if w, ok := m.Model.(interface{ Warnings() []trace.Finding }); ok {
		return w.Warnings()
	}
	return nil
}

// exchanging is a latency model whose steps also exchange tokens between data-parallel ranks, as
// experts that are spread over ranks require.
type exchanging struct {
	drafting
	d *deploy.Deployment
}

// WithExchange returns a model that adds the time in which data-parallel ranks of a
// mixture-of-experts model send tokens to each other. It returns m itself for other deployments,
// which are those where the exchange of even one token would take no time.
func WithExchange(m Model, d *deploy.Deployment) Model {
	if d.ExchangeUs(1) == 0 {
		return m
	}
	return &exchanging{drafting{Model: m}, d}
}

// StepUs returns the time of the step, us, including the exchange of the tokens of all ranks.
// Batch.Among is nil for an engine alone.
func (m *exchanging) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.Among != nil {
		us += m.d.ExchangeUs(b.Among.Tokens)
	}
	return us, err
}
