package validate

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// The purposes a gate belongs to: those that use what it judges (spec#purposes).
var (
	forSteps    = []string{coeff.PurposeSteps, coeff.PurposeReplay}
	forReplay   = []string{coeff.PurposeReplay}
	forWaits    = []string{coeff.PurposeWaits}
	forTransfer = []string{coeff.PurposeTransfer}
)

// CheckPurpose reports whether the name is a purpose, or all of them.
func CheckPurpose(name string) bool {
	return name == coeff.PurposeAll || slices.Contains(coeff.Purposes, name)
}

// verdicts are one per purpose and configuration, then one per purpose over
// everything. A gate of scope `all` counts for the latter alone, except those of
// the coefficients themselves (signs, certificate, folds), which count for each.
func verdicts(v *result.Validation) []result.PurposeVerdict {
	var out []result.PurposeVerdict
	for _, purpose := range coeff.Purposes {
		for i := range v.Configs {
			out = append(out, verdictOf(v, purpose, &v.Configs[i]))
		}
		out = append(out, verdictOf(v, purpose, nil))
	}
	return out
}

// verdictOf judges a purpose for one configuration or test run; c nil: for all.
func verdictOf(v *result.Validation, purpose string, c *result.ConfigErrors) result.PurposeVerdict {
	out := result.PurposeVerdict{}
	out.Purpose, out.Scope, out.Verdict = purpose, scopeAll, coeff.VerdictNotApplicable
	out.Failed, out.Missing = []string{}, []string{}
	if c != nil {
		out.Scope = c.Scope
	}
	judged := false
	for i := range v.Gates {
		g := &v.Gates[i]
		if !slices.Contains(g.Purposes, purpose) || c != nil && !concerns(g, c) {
			continue
		}
		judged = judged || g.Pass != nil && decides(g.Name, purpose)
		switch {
		case g.Pass == nil && g.Required:
			out.Missing = append(out.Missing, fmt.Sprintf("%s of %s: %s", g.Name, g.Scope, g.Note))
		case g.Pass != nil && !*g.Pass:
			out.Failed = append(out.Failed, g.Name+" of "+g.Scope)
		}
	}
	switch {
	case len(out.Failed) > 0:
		out.Verdict = coeff.VerdictFail
	case len(out.Missing) > 0:
		out.Verdict = coeff.VerdictInsufficient
	case judged:
		out.Verdict = coeff.VerdictPass
	}
	return out
}

// decides reports whether a purpose has no verdict without this gate or its like: a
// replay is judged by what was replayed, not by steps alone.
func decides(gate, purpose string) bool {
	if purpose == coeff.PurposeReplay {
		return slices.Contains(replayGateNames, gate)
	}
	return !slices.Contains(coefficientGates, gate)
}

// coefficientGates judge the set itself, whatever it is used for.
var coefficientGates = []string{gateBetaSigns, gateCertificate, gateFoldsDistinct}

// concerns reports whether a gate speaks of a configuration or test run: its own
// scope, a replay of one of its runs, or the coefficients.
func concerns(g *result.Gate, c *result.ConfigErrors) bool {
	return g.Scope == c.Scope || slices.Contains(coefficientGates, g.Name) ||
		slices.Contains(replayGateNames, g.Name) && slices.Contains(c.Runs, runOfScope(g.Scope))
}

// setVerdicts derives the verdicts, and the one that decides: of v.For over
// everything. Where nothing could be replayed `replay` falls back to `steps`
// unless somebody asked for it by name.
func setVerdicts(v *result.Validation, asked string) {
	v.Purposes = verdicts(v)
	v.For = asked
	if asked == "" {
		v.For = coeff.PurposeReplay
		if v.Options.StepsOnly || !gatesReplayed(v) {
			v.For = coeff.PurposeSteps
		}
	}
	decided := v.VerdictFor(v.For, scopeAll)
	v.Verdict, v.Missing = decided.Verdict, decided.Missing
	v.Pass = v.Verdict == coeff.VerdictPass
}

func gatesReplayed(v *result.Validation) bool {
	return slices.ContainsFunc(v.Runs, func(r result.ValidationRun) bool { return r.Metrics != nil })
}

// ofSteps reports whether a gate judges step times, OfReplay whether it judges a
// replayed run.
func ofSteps(name string) bool {
	t, known := ruleOf(name)
	return known && slices.Contains(t.Purposes, coeff.PurposeSteps) && !slices.Contains(coefficientGates, name)
}

func ofReplay(name string) bool { return slices.Contains(replayGateNames, name) }

func ruleOf(name string) (threshold, bool) {
	i := slices.IndexFunc(defaults, func(t threshold) bool { return t.Name == name })
	if i < 0 {
		return threshold{}, false
	}
	return defaults[i], true
}
