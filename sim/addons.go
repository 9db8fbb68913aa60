package sim

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// drafting is a model whose steps also run the drafter.
type drafting struct {
	Model
	us float64 // time of the drafter's passes
}

// WithDrafter adds the time of the deployment's drafter to every step that samples a token. It
// returns m itself if no drafter runs on the GPU.
func WithDrafter(m Model, d *deploy.Deployment) Model {
	us, passes := d.DrafterUs()
	if us == 0 {
		return m
	}
	return &drafting{Model: m, us: us * float64(passes)}
}

// StepUs is the step time, and the time of drafting the proposals for the next step.
func (m *drafting) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.DecodeReqs+b.PrefillReqs > 0 {
		us += m.us
	}
	return us, err
}

// Warnings are those of the model.
func (m *drafting) Warnings() []trace.Finding {
	if w, ok := m.Model.(interface{ Warnings() []trace.Finding }); ok {
		return w.Warnings()
	}
	return nil
}

// exchanging is a model whose steps also exchange tokens between ranks.
type exchanging struct {
	drafting
	d *deploy.Deployment
}

// WithExchange adds the time in which data-parallel ranks of a model with experts send tokens to
// each other. It returns m itself for other deployments.
func WithExchange(m Model, d *deploy.Deployment) Model {
	if d.ExchangeUs(1) == 0 {
		return m
	}
	return &exchanging{drafting{Model: m}, d}
}

// StepUs is the step and the exchange of all ranks' tokens.
func (m *exchanging) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.Among != nil {
		us += m.d.ExchangeUs(b.Among.Tokens)
	}
	return us, err
}
