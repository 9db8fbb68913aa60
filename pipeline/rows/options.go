package rows

// This file has the options of rows, and the constants of rows and cleaning.

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// Constants of rows and cleaning.
const (
	maxSteps       = 20  // steps of one row (spec#multi-step-rows)
	spikeFactor    = 10  // times the median of the window (spec#row-drops)
	spikeWindow    = 101 // rows
	WarmUpSteps    = 10  // spec#warm-up
	evidenceTokens = 64  // prefill tokens an evidence interval must exceed (spec#lag)
)

// DefaultSplit is the training share of each phase (spec#hold-out).
const DefaultSplit = 0.8

// Span is a half-open time interval on the monotonic clock, ns.
type Span struct{ StartNs, EndNs int64 }

// Options decide how recorded steps (Beta) or requests (Alpha) become rows. The zero value asks for
// the version's default target at lag 0.
type Options struct {
	Target    string    // cadence or duration; overhead, admission, egress or queue; empty: the version's default
	Lag       int       // of Beta: steps between schedule() and execution, 0..2 (spec#lag); cadence only
	Gamma     float64   // preemption EMA, in (0, 1]; 0: features.DefaultGamma
	Gammas    []float64 // factors whose columns are wanted too (Table.Variants); Gamma may be among them
	Split     float64   // training share of each phase, in (0, 1]; 0: DefaultSplit
	Saturated []Span    // rows that start, and requests that arrive, inside are dropped as saturated
	// Preempting keeps such rows of Beta for training within features.MemorySteps of a preemption (spec#saturation).
	Preempting bool
	Stride     int  // one row in so many is kept (spec#max-rows); up to 1: all
	Slim       bool // of Beta: without FirstStep and LastStep, which only rows that are written out need
}

// DefaultBetaTarget returns the step-time target of a version (spec#spec-version).
func DefaultBetaTarget(v features.Version) string {
	if v == features.V10 {
		return coeff.Duration
	}
	return coeff.Cadence
}

// DefaultAlphaTarget returns the delay target of a version (spec#spec-version).
func DefaultAlphaTarget(v features.Version) string {
	if v == features.V10 {
		return coeff.Queue
	}
	return coeff.Overhead
}

// resolve returns the options with defaults filled in, or an error for a value out of range. known
// are the allowed targets, usual the default one; kind names them in the error.
func (o Options) resolve(kind, usual string, known ...string) (Options, error) {
	if o.Target == "" {
		o.Target = usual
	}
	if o.Gamma == 0 {
		o.Gamma = features.DefaultGamma
	}
	if o.Split == 0 {
		o.Split = DefaultSplit
	}
	last := len(known) - 1
	switch {
	case !slices.Contains(known, o.Target):
		return o, trace.Errorf(BadOption, "%s target: got %q, want %s or %s", kind, o.Target, strings.Join(known[:last], ", "), known[last])
	case o.Lag < 0 || o.Lag >= reconstruct.Lags:
		return o, trace.Errorf(BadOption, "lag: got %d steps, want 0, 1 or 2", o.Lag)
	case !(o.Gamma > 0 && o.Gamma <= 1):
		return o, trace.Errorf(BadOption, "gamma: got %g, want a number in (0, 1]", o.Gamma)
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(BadOption, "split: got %g, want a share in (0, 1]", o.Split)
	}
	return o, nil
}

// AssumedLag returns the lag, in steps, of a run whose data do not determine it (spec#lag): 1 with
// asynchronous scheduling, else 0. vLLM writes the log line of a pass when its result is there, whatever
// was scheduled meanwhile (vllm/v1/engine/core.py: step_with_batch_queue() and log_iteration_details()),
// so that the passes of its log have none.
func AssumedLag(run *trace.Run, d *deploy.Deployment) int {
	if d.Engine.IsAsync() && !areOfLog(run) {
		return 1
	}
	return 0
}

// IsAsync reports whether the engine that ran the steps of a run schedules asynchronously: with a lag it does,
// whatever run.yaml states. The passes of vLLM's log have no lag either way.
func IsAsync(run *trace.Run, d *deploy.Deployment, lag int) bool {
	if areOfLog(run) {
		return d.Engine.IsAsync()
	}
	return lag > 0
}

// areOfLog reports whether the steps of a run are passes of vLLM's log.
func areOfLog(run *trace.Run) bool {
	return run.Aggregate != nil && len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationLog
}
