package vllm

// This file finds the settings of an engine that reach a limit of the models.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Limit is a setting of vLLM whose effect on a step is not modelled (spec#unmodelled-knobs).
type Limit struct {
	Key     string // the flag, as run.yaml spells it
	Refused bool   // fit and simulate refuse it; false: they warn
	What    string // what is not modelled
	Next    string // what the user can do

	Simulated bool // the simulator models it in its schedule
	Layered   bool // spec 1.3 has it in the step times
	Experts   bool // it applies to models with experts only

	// A setting reaches the limit by one of these.
	Most  *float64 // it is larger than the largest value that is modelled
	On    bool     // it is on
	Given []string // one of these flags is given and not off
	Words []string // it has one of these values
}

// Knobs returns the value of a flag of `vllm serve` in run.yaml's spelling, nil where it is not given.
type Knobs func(key string) any

// Limits returns every limit (a setting that is not modelled), refused ones first.
func Limits() []Limit { return slices.Clone(limits) }

// Code returns the machine code of the error (a refused limit) or of the warning.
func (l *Limit) Code() trace.Code {
	if l.Refused {
		return UnsupportedEngine
	}
	return NotModelled
}

// reached returns the setting that reaches the limit, as the beginning of a message; "" for none. A limit has Most, On
// or Words, or Given, or both kinds.
func (l *Limit) reached(get Knobs) string {
	switch v := get(l.Key); {
	case l.Most != nil:
		if n, _ := Number(v); n > *l.Most {
			return fmt.Sprintf("%s: got %g, want at most %g", l.Key, n, *l.Most)
		}
	case l.On && v == true:
		return l.Key + ": got true, want false"
	case l.Words != nil:
		if v, _ := v.(string); slices.Contains(l.Words, v) {
			return fmt.Sprintf("%s: got %q, want another", l.Key, v)
		}
	}
	for _, key := range l.Given {
		v := get(key)
		config, isObject := v.(map[string]any)
		switch {
		case isObject && key == "kv_transfer_config":
			// Disaggregated prefill is a limit that the simulator models, other connectors are one that
			// it does not, and those of a CPU tier are none.
			name, _ := config["kv_connector"].(string)
			if name != "" && !slices.Contains(TierConnectors, name) && l.Simulated == (name == PullConnector) {
				return fmt.Sprintf("kv_transfer_config: got connector %q, want none or %s", name, strings.Join(TierConnectors, ", "))
			}
		case v != nil && v != false && v != "":
			return key + ": got a value, want none"
		}
	}
	return ""
}

// ReachedLimit is a limit with the setting that reaches it, in words: "data_parallel_size: got 2,
// want at most 1".
type ReachedLimit struct {
	*Limit
	Got string
}

// Reached returns the limits that the settings reach, one for each thing that is not modelled.
// isMoE is set if the model has experts.
func Reached(get Knobs, isMoE bool) []ReachedLimit {
	var out []ReachedLimit
	for i := range limits {
		l := &limits[i]
		if l.Experts && !isMoE {
			continue
		}
		got := l.reached(get)
		// The same thing by another flag, or a warning about a flag that is refused already.
		isListed := func(h ReachedLimit) bool { return h.What == l.What || h.Refused && h.Key == l.Key }
		if got != "" && !slices.ContainsFunc(out, isListed) {
			out = append(out, ReachedLimit{l, got})
		}
	}
	return out
}

// Findings returns the limits that the settings reach as warnings.
func Findings(get Knobs, isMoE bool) []trace.Finding {
	var out []trace.Finding
	for _, h := range Reached(get, isMoE) {
		out = append(out, h.Finding())
	}
	return out
}

// Finding returns the limit as a warning.
func (h *ReachedLimit) Finding() trace.Finding {
	what := h.What
	if h.Refused {
		what += " is not modelled; fit and simulate refuse it"
		switch {
		case h.Layered:
			what = h.What + " is in the step times of spec 1.3 alone"
		case h.Simulated:
			what = h.What + " is not in the step times; simulate plays it"
		}
	}
	return trace.Findingf(h.Code(), "%s: %s; %s", h.Got, what, h.Next)
}
