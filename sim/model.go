package sim

// Model predicts how long a step executes.
type Model interface {
	// StepUs is the execution time of a step with tokens, us, before noise and rounding. The
	// engine rounds half up to at least 1 us, and counts times below as clipped. StepUs must not
	// keep b.
	StepUs(b *Batch) (float64, error)
}

// linear is a Model whose last prediction is the dot product of features and
// coefficients, so that its derivatives are the features.
type linear interface {
	Model
	// Features is the vector behind the last StepUs; valid until the next call.
	Features() []float64
}

// Delay is a model of the time that a request spends outside the engine, us: the overhead before
// the input queue, or the egress after the last token. Results below 0 are replaced by 0 and
// counted as clipped.
type Delay interface {
	DelayUs(q *Queue) (float64, error)
}

// linearDelay is a Delay whose last result is the dot product of features and
// coefficients.
type linearDelay interface {
	Delay
	// Features is the vector behind the last DelayUs; valid until the next call.
	Features() []float64
}

// Const is a delay that is equal for all requests, us.
type Const float64

// DelayUs returns c.
func (c Const) DelayUs(*Queue) (float64, error) { return float64(c), nil }

// Features is 1, because the coefficient is the delay itself.
func (c Const) Features() []float64 { return one }

var one = []float64{1}

// Parts is a step-time model and the delays that belong to it.
type Parts struct {
	Step             Model
	Overhead, Egress Delay
	TokenUs          float64 // time outside the engine on the first token and on every gap, us
}
