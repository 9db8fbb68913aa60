package sim

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// drafting adds the drafter's passes to each step's time.
type drafting struct {
	Model
	us float64
}

// WithDrafter is the model with the time that the deployment's drafter adds to every step that
// samples a token; m itself where no drafter runs on the GPU.
func WithDrafter(m Model, d *deploy.Deployment) Model {
	us, passes := d.DrafterUs()
	if us == 0 {
		return m
	}
	return &drafting{Model: m, us: us * float64(passes)}
}

// StepUs is the step time plus that of the proposals for the next step.
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

// exchanging adds the exchange of tokens between ranks to each step's time.
type exchanging struct {
	drafting
	d *deploy.Deployment
}

// WithExchange is the model with what the deployment's data-parallel ranks send each other
// in a step, where the model has experts; m itself otherwise.
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
