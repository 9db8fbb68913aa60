package gate

// This file compares values with thresholds: the defaults, or those that a user gave.

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Rules are the gates with the thresholds in force.
type Rules struct {
	gates []Gate
	// loosened is, by name, the note of every gate whose threshold is less strict than its default.
	loosened map[string]string
}

// NewRules returns the gates with the default thresholds replaced by those given by gate name. A
// threshold that follows another gate's follows its override too. An unknown name and a threshold
// that is not a finite number are errors.
func NewRules(overrides map[string]float64) (*Rules, error) {
	r := &Rules{gates: All()}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		g := r.named(name)
		if g == nil {
			return nil, trace.Errorf(badGate, "gates: got %q, want one of %d names", name, len(r.gates)).WithHint("blis-train validate --gate list")
		}
		threshold := overrides[name]
		if math.IsNaN(threshold) || math.IsInf(threshold, 0) {
			return nil, trace.Errorf(badGate, "gates: %s: got %v, want a finite number", name, threshold)
		}
		g.Threshold = threshold
		g.Reason = "option"
	}
	for i := range r.gates {
		g := &r.gates[i]
		if _, overridden := overrides[g.Name]; g.followsGate != "" && !overridden {
			g.Threshold = g.followsFactor * r.named(g.followsGate).Threshold
		}
	}
	return r, nil
}

// named returns the gate with the name; nil if there is none.
func (r *Rules) named(name string) *Gate {
	for i := range r.gates {
		if r.gates[i].Name == name {
			return &r.gates[i]
		}
	}
	return nil
}

// Loosen returns a warning for every threshold that is less strict than its default; the gates'
// notes repeat it. setBy has, by gate, the option or file that set a threshold.
func (r *Rules) Loosen(setBy map[string]string) []trace.Finding {
	var found []trace.Finding
	r.loosened = map[string]string{}
	for i, standard := range table {
		g := &r.gates[i]
		if by, known := setBy[g.Name]; known {
			g.Reason = by
		}
		upperLimit := g.Op == "<" || g.Op == "<="
		looser := g.Threshold < standard.Threshold
		if upperLimit {
			looser = g.Threshold > standard.Threshold
		}
		if !looser {
			continue
		}
		r.loosened[g.Name] = fmt.Sprintf("loosened: the default is %s %g", g.Op, standard.Threshold)
		found = append(found, trace.Findingf(Loosened, "%s: %s %g (%s), the default is %s %g",
			g.Name, g.Op, g.Threshold, g.Reason, g.Op, standard.Threshold))
	}
	return found
}

// Thresholds returns the threshold in force of each gate, by its name.
func (r *Rules) Thresholds() map[string]float64 {
	out := map[string]float64{}
	for _, g := range r.gates {
		out[g.Name] = g.Threshold
	}
	return out
}

// apply returns the outcome of a gate: the reading compared with its threshold. A gate without a
// value has no result.
func (r *Rules) apply(g *Gate, scope string, in reading) result.Gate {
	out := result.Gate{
		Gate: coeff.Gate{
			Name:      g.Name,
			Scope:     scope,
			Value:     in.value,
			Op:        g.Op,
			Threshold: g.Threshold,
			Note:      in.missing,
		},
		Source:   g.Reason,
		Spec:     g.Spec,
		Required: !in.optional,
		Purposes: g.Purposes,
		Chance:   in.chance,
		Interval: in.interval,
	}
	if in.purposes != nil {
		out.Purposes = in.purposes
	}
	if in.value == nil {
		return out
	}
	pass := passes(*in.value, g.Op, g.Threshold)
	out.Pass = &pass
	out.Note = joinNotes(r.loosened[g.Name], in.remark)
	switch {
	case in.few != "":
		out.Pass = nil
		out.Note = in.few
	case in.size > 0 && in.size < FewestValues:
		out.Pass = nil
		out.Note = fmt.Sprintf(noteFewValues, in.size, FewestValues)
		if in.windows {
			out.Note = fmt.Sprintf(noteFewWindows, in.size, FewestValues)
		}
	case in.estimate:
		judgeEstimate(&out, in)
	}
	return out
}

// joinNotes returns the notes that are not empty, separated by a comma.
func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// passes reports whether the comparison op of a value with a threshold is true.
func passes(value float64, op string, threshold float64) bool {
	switch op {
	case "<":
		return value < threshold
	case "<=":
		return value <= threshold
	case ">":
		return value > threshold
	case ">=":
		return value >= threshold
	}
	panic("gate: unknown operator " + op)
}
