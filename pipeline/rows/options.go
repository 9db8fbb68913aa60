package rows

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Beta targets (spec#cadence, spec#duration).
const (
	Cadence  = "cadence"
	Duration = "duration"
)

// Alpha targets (spec#delay-targets). A target that contains a wait must not be added as a
// delay in a replay.
const (
	Overhead  = "overhead"
	Admission = "admission"
	Egress    = "egress"
	Queue     = "queue"
)

// Constants of rows and cleaning.
const (
	maxSteps       = 20  // steps of one row (spec#multi-step-rows)
	spikeFactor    = 10  // times the median of the window (spec#row-drops)
	spikeWindow    = 101 // rows
	warmUpSteps    = 10  // spec#warm-up
	evidenceTokens = 64  // prefill tokens an evidence interval must exceed (spec#lag)
	evidenceLags   = 3   // lags 0, 1, 2
)

// DefaultSplit is the training share of each phase (spec#hold-out).
const DefaultSplit = 0.8

// Span is a half-open time interval on the monotonic clock, ns.
type Span struct{ StartNs, EndNs int64 }

// BetaOptions decide how recorded steps become rows. The zero value asks for
// the version's default target at lag 0.
type BetaOptions struct {
	Target    string    // cadence or duration; empty: the version's default
	Lag       int       // steps between schedule() and execution, 0..2 (spec#lag); cadence only
	Gamma     float64   // preemption EMA, in (0, 1]; 0: features.DefaultGamma
	Gammas    []float64 // factors whose columns are wanted too (Table.Variants); Gamma may be among them
	Split     float64   // training share of each phase, in (0, 1]; 0: DefaultSplit
	Saturated []Span    // rows starting inside are dropped as saturated
	Slim      bool      // without FirstStep and LastStep, which only rows that are written out need
}

// AlphaOptions decide how requests become rows.
type AlphaOptions struct {
	Target    string    // overhead, admission, egress or queue; empty: the version's default
	Gamma     float64   // as in BetaOptions
	Gammas    []float64 // as in BetaOptions
	Split     float64   // as in BetaOptions
	Saturated []Span    // requests arriving inside are dropped as saturated
}

// DefaultBetaTarget is the version's beta target (spec#spec-version).
func DefaultBetaTarget(v features.Version) string {
	if v == features.V10 {
		return Duration
	}
	return Cadence
}

// DefaultAlphaTarget is the version's alpha target (spec#spec-version).
func DefaultAlphaTarget(v features.Version) string {
	if v == features.V10 {
		return Queue
	}
	return Overhead
}

func (o BetaOptions) resolve(v features.Version) (BetaOptions, error) {
	if o.Target == "" {
		o.Target = DefaultBetaTarget(v)
	}
	if o.Target != Cadence && o.Target != Duration {
		return o, trace.Errorf(BadOption, "beta target: got %q, want cadence or duration", o.Target)
	}
	if o.Lag < 0 || o.Lag > 2 {
		return o, trace.Errorf(BadOption, "lag: got %d steps, want 0, 1 or 2", o.Lag)
	}
	var err error
	o.Gamma, o.Split, err = resolveShared(o.Gamma, o.Split)
	return o, err
}

func (o AlphaOptions) resolve(v features.Version) (AlphaOptions, error) {
	if o.Target == "" {
		o.Target = DefaultAlphaTarget(v)
	}
	switch o.Target {
	case Overhead, Admission, Egress, Queue:
	default:
		return o, trace.Errorf(BadOption, "alpha target: got %q, want overhead, admission, egress or queue", o.Target)
	}
	var err error
	o.Gamma, o.Split, err = resolveShared(o.Gamma, o.Split)
	return o, err
}

func resolveShared(gamma, split float64) (float64, float64, error) {
	if gamma == 0 {
		gamma = features.DefaultGamma
	}
	if split == 0 {
		split = DefaultSplit
	}
	if !(gamma > 0 && gamma <= 1) {
		return 0, 0, trace.Errorf(BadOption, "gamma: got %g, want a number in (0, 1]", gamma)
	}
	if !(split > 0 && split <= 1) {
		return 0, 0, trace.Errorf(BadOption, "split: got %g, want a share in (0, 1]", split)
	}
	return gamma, split, nil
}

// AssumedLag is the lag of a run whose data cannot tell (spec#lag).
func AssumedLag(d *deploy.Deployment) int {
	if d.Engine.IsAsync() {
		return 1
	}
	return 0
}
