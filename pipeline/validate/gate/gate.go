// Package gate has the acceptance tests of a coefficient set, called gates: a table of all gates
// (table.go), the comparisons they make, and the verdicts that follow from their results.
//
// A gate compares one number with one threshold in one scope: a configuration, a test run, a
// replayed run, or everything ("all"). [All] lists the gates. [NewRules] applies the thresholds that
// a user gave, and [Rules.Decide] fills the gates and verdicts of a validation from
// documents alone: the errors of steps and delays and the compared replays in validation.json, and
// fit.json. It reads no recording, so the same documents always give the same verdict.
//
// A gate without enough data has no value and no result. A required one makes the verdict
// "insufficient", which is not a pass (spec#gates, spec#verdict).
//
// Start with table.go to see what is tested; a new gate is one entry there and one case in
// TestEachGateCanFail.
package gate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Gate is one acceptance test. Exactly one kind of value function is set, or two where a test run of
// an unseen configuration is compared like a configuration that was held out of the fit.
type Gate struct {
	Name      string   `json:"name"`
	Op        string   `json:"op"` // value Op Threshold passes: <, <=, > or >=
	Threshold float64  `json:"threshold"`
	Reason    string   `json:"source"` // why the threshold is what it is
	Compares  string   `json:"doc"`    // what the value is
	Spec      string   `json:"spec"`   // address of the gate's clause; filled in from the name
	Purposes  []string `json:"purposes"`
	Prints    Format   `json:"-"`
	Words     `json:"-"`

	// If followsGate is set, the default threshold is that of the named gate times the factor.
	followsGate   string
	followsFactor float64

	// The value functions, in the order of fields: one value of the set, one of the fit, one for each
	// configuration left out of the fit, one for each configuration, one of everything, one for each
	// replayed run. applies is false where the gate is not part of the validation.
	ofCoefficients func(*coeff.Set) reading
	ofFit          func(*result.Fit) reading
	ofLeftOut      *leftOutValue
	ofConfig       func(*result.ConfigErrors, []result.ValidationRun) (r reading, applies bool)
	ofAll          func(*result.Validation) (r reading, applies bool)
	ofReplay       *replayValue
}

// Words explain a gate in the report and in `blis-train explain`.
type Words struct {
	What  string // what is compared
	Means string // what a failure means to a user who simulates with the coefficients
	Do    string // what to do about it
}

// Failing returns the sentence under a gate that failed.
func (w Words) Failing() string { return w.Means + "; " + w.Do }

// Format is how a gate's value and threshold are printed.
type Format int

// Formats of values.
const (
	Number    Format = iota // three significant digits
	Percent                 // a fraction, printed in percent
	Statistic               // a statistic between 0 and 1, three decimals
)

// Names of the gates that code outside the table refers to.
const (
	BetaMAPE     = "beta_mape"
	BetaMaxError = "beta_max_error"
	BetaSkill    = "beta_skill"
	Bias         = "bias"
	TargetFloor  = "target_floor"
	certificate  = "certificate"

	overheadOfTTFT = "overhead_of_ttft"
)

// Codes of this package.
const (
	badGate  trace.Code = "bad_gate"
	Loosened trace.Code = "gate_loosened"
)

// reading is what a gate compares in one scope.
type reading struct {
	value    *float64    // nil: there is none, and missing has the reason
	chance   *float64    // what chance alone reaches; nil: unknown
	estimate bool        // the value is an estimate that is judged with its interval
	interval *[2]float64 // 95 %, of the signed value of an estimate; nil: too few values for one
	size     int         // values that the value is made of; fewer than FewestValues decide nothing; 0: not counted
	rows     bool        // the values are rows, not requests
	windows  bool        // the values are means over windows of ten seconds
	few      string      // why the value decides nothing; empty: it decides
	missing  string      // note of a gate without a value
	remark   string      // added to the note of a gate with a value
	purposes []string    // that it decides for, where they are not all of the gate's; nil: all
	optional bool        // without a value the verdict is not affected
}

// leftOutValue is a value for each configuration that cross-validation held out of the fit of a model.
type leftOutValue struct {
	model     string // beta, or an alpha target
	value     func(*result.Loco) *float64
	ofWindows bool // the value is made of windows of ten seconds
}

// replayValue is a value of each replayed run, phase and split that was held out of the fit
// (spec#held-out-replay). It is an estimate with an interval, or has what chance alone reaches: without
// either it decides nothing.
type replayValue struct {
	metric func(*result.Metrics) *result.Metric // picks TTFT, ITL or E2E
	read   func(*result.Metric) reading         // takes the value from its comparison
	// ofLevels is computed for load levels, whose means are neither a distribution nor requests; the others
	// for requests.
	ofLevels bool
	// notOfLoops is not judged in closed loops.
	notOfLoops bool
	// ofLoop is computed for closed loops in place of a metric.
	ofLoop func(*result.Capacity) reading
}

// applies reports whether the value is one of a replayed run.
func (v *replayValue) applies(run *result.ValidationRun) bool {
	isLoop := run.Metrics != nil && run.Metrics.Capacity != nil
	if v.ofLoop != nil {
		return isLoop
	}
	if isLoop && v.notOfLoops {
		return false
	}
	return v.ofLevels == (run.Source == result.SourcePoints)
}

// readMetrics returns the value in the metrics of a replay; zero where they do not have it.
func (v *replayValue) readMetrics(m *result.Metrics) reading {
	if v.ofLoop != nil && m.Capacity != nil {
		return v.ofLoop(m.Capacity)
	}
	if v.ofLoop == nil {
		if metric := v.metric(m); metric != nil {
			return v.read(metric)
		}
	}
	return reading{}
}

// All returns the gates with their default thresholds, in the order of the specification.
func All() []Gate { return slices.Clone(table) }

// Named returns the gate of that name; its zero value, which prints plain numbers and has no words,
// where there is none, as in documents of other versions.
func Named(name string) Gate {
	for i := range table {
		if table[i].Name == name {
			return table[i]
		}
	}
	return Gate{}
}

// JudgesReplay reports whether the gate compares a replayed run.
func JudgesReplay(name string) bool { return Named(name).ofReplay != nil }

// JudgesSteps reports whether the gate compares step times.
func JudgesSteps(name string) bool {
	g := Named(name)
	return slices.Contains(g.Purposes, coeff.PurposeSteps) && !g.judgesCoefficients() && !JudgesStreams(name)
}

// judgesCoefficients reports whether the gate is about the set itself, whatever it is used for:
// signs, certificate, folds.
func (g *Gate) judgesCoefficients() bool { return g.ofCoefficients != nil || g.ofFit != nil }
