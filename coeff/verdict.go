package coeff

// This file has the verdicts on a coefficient set, by the purpose that it is used for.

import (
	"fmt"
	"slices"
)

// Purposes coefficients are used for (spec#purposes).
const (
	PurposeSteps    = "steps"    // the time of single steps
	PurposeReplay   = "replay"   // a simulator: steps, delays, distributions of TTFT, ITL and E2E
	PurposeWaits    = "waits"    // the closed form of the wait for scheduling
	PurposeTransfer = "transfer" // a configuration that was not in the fit
	PurposeAll      = "all"
)

// Purposes lists the purposes in the order they are printed.
var Purposes = []string{PurposeSteps, PurposeReplay, PurposeWaits, PurposeTransfer}

// ScopeAll is the scope of gates and verdicts over all runs and configurations.
const ScopeAll = "all"

// Verdicts.
const (
	VerdictPass          = "pass"
	VerdictInsufficient  = "insufficient"
	VerdictFail          = "fail"
	VerdictNotApplicable = "not applicable"
)

// PurposeVerdict is the outcome of validating the coefficients for a purpose.
type PurposeVerdict struct {
	Purpose string `json:"purpose" yaml:"purpose"` // steps | replay | waits | transfer
	Scope   string `json:"scope" yaml:"scope"`     // a configuration, a test run or "all"
	Verdict string `json:"verdict" yaml:"verdict"` // pass | fail | insufficient | not applicable
}

// VerdictFor returns the verdict on a purpose over all runs, for "all" the worst of all purposes; ""
// when the set was not validated.
func (s *Set) VerdictFor(purpose string) string {
	out := ""
	for _, p := range s.Purposes {
		if p.Scope == ScopeAll && (purpose == PurposeAll || p.Purpose == purpose) {
			out = WorseVerdict(out, p.Verdict)
		}
	}
	return out
}

// Accept selects the verdicts that are accepted in addition to a pass (spec#exit-status).
type Accept struct {
	Asked        bool // the user named the purpose, so "not applicable" is not accepted
	Insufficient bool // --allow-insufficient
	Any          bool // --ignore-verdict
}

// Takes reports whether a verdict is accepted. A set that was not validated ("") always is.
func (a Accept) Takes(verdict string) bool {
	switch verdict {
	case VerdictFail:
		return a.Any
	case VerdictInsufficient:
		return a.Any || a.Insufficient
	case VerdictNotApplicable:
		return a.Any || !a.Asked
	}
	return true
}

// WorseVerdict returns the worse of two verdicts; "" (not validated) and "not applicable" rank before
// a pass.
func WorseVerdict(a, b string) string {
	order := []string{"", VerdictNotApplicable, VerdictPass, VerdictInsufficient, VerdictFail}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}

// Gate is one acceptance rule with its result (spec#gates).
type Gate struct {
	Name      string   `json:"name" yaml:"name"`
	Scope     string   `json:"scope" yaml:"scope"` // a run, a configuration or "all"
	Value     *float64 `json:"value" yaml:"value"`
	Op        string   `json:"op" yaml:"op"` // < | <= | > | >=
	Threshold float64  `json:"threshold" yaml:"threshold"`
	Pass      *bool    `json:"pass" yaml:"pass"` // nil: insufficient data or not applicable, see note
	Note      string   `json:"note,omitempty" yaml:"note,omitempty"`
}

// Judgement is a verdict with the gates that led to it. It is insufficient where a gate has no value.
type Judgement struct {
	Verdict string `json:"verdict"`
	Gates   []Gate `json:"gates"`
}

// AtMost adds the gate value <= limit. Where value is nil the gate is insufficient, and whyNone is its
// note.
func (v *Judgement) AtMost(name, scope string, value *float64, limit float64, whyNone string) {
	g := Gate{
		Name:      name,
		Scope:     scope,
		Value:     value,
		Op:        "<=",
		Threshold: limit,
	}
	if value == nil {
		g.Note = whyNone
		v.Verdict = WorseVerdict(v.Verdict, VerdictInsufficient)
	} else {
		pass := *value <= limit
		g.Pass = &pass
		if !pass {
			v.Verdict = WorseVerdict(v.Verdict, VerdictFail)
		}
	}
	v.Gates = append(v.Gates, g)
}

// Failed returns the gates that failed or have no value, one sentence each.
func (v *Judgement) Failed() (why []string) {
	for _, g := range v.Gates {
		switch {
		case g.Value == nil:
			why = append(why, fmt.Sprintf("%s: %s: %s", g.Scope, g.Name, g.Note))
		case !*g.Pass:
			why = append(why, fmt.Sprintf("%s: %s: got %.4g, want at most %g", g.Scope, g.Name, *g.Value, g.Threshold))
		}
	}
	return why
}

// Deciding returns a sentence about the first gate that led to the verdict: one that failed or, if none did, one without
// a value; "" if all passed.
func (v *Judgement) Deciding() string {
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass {
			return fmt.Sprintf("%s: got %.4g, want at most %g", g.Name, *g.Value, g.Threshold)
		}
	}
	for _, g := range v.Gates {
		if g.Pass == nil {
			return g.Name + ": " + g.Note
		}
	}
	return ""
}

// Certificate is the solver's proof of optimality (spec#certificate).
type Certificate struct {
	MinZeroGradient   *float64 `json:"min_zero_gradient" yaml:"min_zero_gradient"` // nil: no term is at its bound
	MaxActiveGradient float64  `json:"max_active_gradient" yaml:"max_active_gradient"`
	OK                bool     `json:"ok" yaml:"ok"`
}
