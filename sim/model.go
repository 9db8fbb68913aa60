package sim

// Model predicts how long a step executes.
type Model interface {
	// StepUs is the execution time of a non-empty step in us, before noise and
	// rounding (half up, at least 1 us; what was below is counted as clipped).
	// It must not keep b.
	StepUs(b *Batch) (float64, error)
}

// linear is a Model whose last prediction is the dot product of features and
// coefficients, so that its derivatives are the features.
type linear interface {
	Model
	// Features is the vector behind the last StepUs; valid until the next call.
	Features() []float64
}

// Delay is time spent outside the engine: overhead before its input queue, or
// egress after the last token. Results below 0 count as 0 and as clipped.
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

// Const is the same delay for every request, in us.
type Const float64

// DelayUs returns c.
func (c Const) DelayUs(*Queue) (float64, error) { return float64(c), nil }

// Features is the constant 1: the coefficient is the delay itself.
func (c Const) Features() []float64 { return one }

var one = []float64{1}

// Parts are a step-time model and the delays that belong to it.
type Parts struct {
	Step             Model
	Overhead, Egress Delay
	TokenUs          float64 // on the first token and on every gap, outside the engine
}
