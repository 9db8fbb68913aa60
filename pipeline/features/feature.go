package features

// This file describes a feature: its kind, units, bound, formula and function.

import (
	"slices"
)

// Names of features that code refers to.
const (
	PrefillLinearCompute = "prefill_linear_compute"
	PrefillAttention     = "prefill_attention"
	DecodeWeightLoad     = "decode_weight_load"
	FixedStepOverhead    = "fixed_step_overhead"
	PreemptionOverhead   = "preemption_overhead"
)

// Kind is the kind of a feature's value. It determines the units of value and coefficient (spec#units).
type Kind string

// The kinds of a slot (spec#units).
const (
	Time      Kind = "time"     // seconds; coefficient us/s, 1e6 = exactly the nominal time
	Ratio     Kind = "ratio"    // dimensionless; coefficient us
	Count     Kind = "count"    // dimensionless count over a fixed reference; coefficient us
	Constant  Kind = "constant" // the same in every row of a configuration; coefficient us
	Indicator Kind = "indicator"
)

// Feature is one slot of a vector: its function, and everything that the trainer, the report and the
// explain command need to know about it.
type Feature struct {
	Slot       int     // 1-based position, set by the list
	Name       string  // stable: used in files and in docs/spec.md
	Kind       Kind    // unit and meaning
	Penalty    float64 // d, its factor in the penalty (spec#objective)
	PenaltyOne float64 // d in a fit over a single configuration; = Penalty except for the bias
	Free       bool    // coefficient unconstrained; otherwise >= 0
	Prompt     bool    // beta: the term is mostly work on prompt tokens, which deployments do with very different efficiency
	Bound      float64 // upper bound of the value (spec#bounds); the lower one is 0
	Formula    string  // expression over inputs, constants and slots; see Explain
	Doc        string  // one sentence for people

	beta  func(*Space, *StepInput) float64
	alpha func(*Space, *QueueInput) float64
}

// PlausibleTimes is the range that a coefficient divided by its roofline should be in
// (spec#diagnosis).
var PlausibleTimes = [2]float64{0.8, 10}

// nominalTimes are terms in seconds of a nominal unit, not of the hardware: they have no roofline.
var nominalTimes = []string{FixedStepOverhead, "expert_load"}

// RooflineTimes returns a coefficient as a multiple of the time at the hardware's peak rate; not ok
// for a term without a roofline.
func RooflineTimes(name, unit string, value float64) (times float64, ok bool) {
	return value / 1e6, unit == "us/s" && !slices.Contains(nominalTimes, name)
}

// IsPlausible reports whether a real server can take this multiple of the roofline.
func IsPlausible(times float64) bool { return times >= PlausibleTimes[0] && times <= PlausibleTimes[1] }

// IsTime reports whether the value is seconds and the coefficient us/s.
func (f *Feature) IsTime() bool { return f.Kind == Time }

// Unit returns the unit of the feature's value: "s" or "1".
func (f *Feature) Unit() string {
	if f.IsTime() {
		return "s"
	}
	return "1"
}

// CoefficientUnit returns the unit of the feature's coefficient: "us/s" or "us".
func (f *Feature) CoefficientUnit() string {
	if f.IsTime() {
		return "us/s"
	}
	return "us"
}

// PenaltyIn returns d for a fit over the given number of configurations.
func (f *Feature) PenaltyIn(configs int) float64 {
	if configs == 1 {
		return f.PenaltyOne
	}
	return f.Penalty
}

// BetaFeatures returns the step-time slots of v in order; shared, do not
// modify. Nil for an unknown version.
func BetaFeatures(v Version) []Feature {
	if l := listsOf(v); l != nil {
		return l.beta
	}
	return nil
}

// AlphaFeatures returns the queue slots of v in order; shared, do not modify.
// Nil for an unknown version.
func AlphaFeatures(v Version) []Feature {
	if l := listsOf(v); l != nil {
		return l.alpha
	}
	return nil
}

// Names returns the features' names in order.
func Names(fs []Feature) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Name)
	}
	return out
}
