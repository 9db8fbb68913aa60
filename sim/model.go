package sim

// This file has the interfaces of latency models.

// Model is a latency model: it predicts how long a step executes.
type Model interface {
	// StepUs returns the execution time of a step with tokens, us, before noise and rounding. The
	// engine rounds it to whole us, half up, and counts predictions below 1 us as clipped. StepUs
	// must not keep b.
	StepUs(b *Batch) (float64, error)
}

// linear is a Model whose last prediction is the dot product of features and coefficients. The
// derivatives of the prediction are therefore the features.
type linear interface {
	Model
	// Features returns the features of the last StepUs; valid until the next call.
	Features() []float64
}

// Delay is a model of the time that a request spends outside the engine, us: the overhead before
// the input queue, or the egress after the last token.
type Delay interface {
	// DelayUs returns the delay of a request that meets state q, us. The engine replaces results
	// below 0 by 0 and counts them as clipped.
	DelayUs(q *Queue) (float64, error)
}

// linearDelay is a Delay whose last result is the dot product of features and
// coefficients.
type linearDelay interface {
	Delay
	// Features returns the features of the last DelayUs; valid until the next call.
	Features() []float64
}

// Const is a delay that is equal for all requests, us.
type Const float64

// DelayUs returns c.
func (c Const) DelayUs(*Queue) (float64, error) { return float64(c), nil }

// Features returns 1, because the coefficient is the delay itself.
func (c Const) Features() []float64 { return one }

// one is the feature vector of a constant.
var one = []float64{1}

// Parts is a step-time model and the delays that belong to it.
type Parts struct {
	Step             Model
	Overhead, Egress Delay
	TokenUs          float64 // time outside the engine on the first token and on every gap, us
}
