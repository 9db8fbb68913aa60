package gate

// This file derives the verdict for each purpose from the gates that count for it.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// IsPurpose reports whether the name is that of a purpose, or of all of them.
func IsPurpose(name string) bool {
	return name == coeff.PurposeAll || slices.Contains(coeff.Purposes, name)
}

// fillVerdicts derives the verdicts from the gates, and the one that decides: of the purpose asked for,
// over everything. Where nothing could be replayed, `replay` falls back to `steps` unless the user
// asked for it by name (spec#verdict).
func fillVerdicts(v *result.Validation, asked string) {
	v.Purposes = nil
	for _, purpose := range coeff.Purposes {
		for i := range v.Configs {
			v.Purposes = append(v.Purposes, verdictOn(v, purpose, &v.Configs[i]))
		}
		v.Purposes = append(v.Purposes, verdictOn(v, purpose, nil))
	}
	v.For = asked
	if asked == "" {
		v.For = defaultPurpose(v)
	}
	decided := v.VerdictFor(v.For, ScopeAll)
	v.Verdict = decided.Verdict
	v.Missing = decided.Missing
	v.Pass = v.Verdict == coeff.VerdictPass
}

// defaultPurpose returns replay, or steps if nothing was replayed and the streams of no recording say why. Else a
// recording that contradicts itself, or lost what a replay needs, would pass by its steps.
func defaultPurpose(v *result.Validation) string {
	if v.Options.StepsOnly {
		return coeff.PurposeSteps
	}
	for i := range v.Runs {
		r := &v.Runs[i]
		if r.Metrics != nil || harmsReplayAlone(r.Identities, result.IdentityFails) || harmsReplayAlone(r.Identities, result.IdentityUndecided) {
			return coeff.PurposeReplay
		}
	}
	return coeff.PurposeSteps
}

// harmsReplayAlone reports whether an identity with the effect is violated that harms replays and not steps, whose
// verdict it would leave as it is.
func harmsReplayAlone(all []result.Identity, effect string) bool {
	return slices.ContainsFunc(result.Violated(all, coeff.PurposeReplay, effect), func(id *result.Identity) bool {
		return !slices.Contains(id.Harms, coeff.PurposeSteps)
	})
}

// verdictOn returns the verdict on a purpose for one configuration or test run, or over everything
// where c is nil. A gate of scope all counts for the latter alone, except those of the coefficients
// themselves (signs, certificate, folds), which count for each.
func verdictOn(v *result.Validation, purpose string, c *result.ConfigErrors) result.PurposeVerdict {
	out := result.PurposeVerdict{Failed: []string{}, Missing: []string{}}
	out.Purpose = purpose
	out.Scope = ScopeAll
	out.Verdict = coeff.VerdictNotApplicable
	if c != nil {
		out.Scope = c.Scope
	}
	decisive := false // a gate without which the purpose has no verdict has a result
	for i := range v.Gates {
		g := &v.Gates[i]
		if !slices.Contains(g.Purposes, purpose) || c != nil && !concerns(g, c) {
			continue
		}
		switch {
		case g.Pass == nil && g.Required:
			out.Missing = append(out.Missing, fmt.Sprintf("%s of %s: %s", g.Name, g.Scope, g.Note))
		case g.Pass != nil && !*g.Pass:
			out.Failed = append(out.Failed, g.Name+" of "+g.Scope)
		}
		if g.Pass != nil && isDecisive(g.Name, purpose) {
			decisive = true
		}
	}
	switch {
	case len(out.Failed) > 0:
		out.Verdict = coeff.VerdictFail
	case len(out.Missing) > 0:
		out.Verdict = coeff.VerdictInsufficient
	case decisive:
		out.Verdict = coeff.VerdictPass
	}
	return out
}

// isDecisive reports whether a purpose can pass by this gate: a replay passes by what was replayed and
// not by steps alone, and no purpose passes by the gates of the coefficients alone.
func isDecisive(name, purpose string) bool {
	if purpose == coeff.PurposeReplay {
		return JudgesReplay(name)
	}
	g := Named(name)
	return !g.judgesCoefficients()
}

// concerns reports whether a gate is about a configuration or test run: its own scope, a replay of one
// of its runs, or the coefficients.
func concerns(g *result.Gate, c *result.ConfigErrors) bool {
	if g.Scope == c.Scope {
		return true
	}
	entry := Named(g.Name)
	return entry.judgesCoefficients() || entry.ofReplay != nil && slices.Contains(c.Runs, RunOf(g.Scope))
}

// ReplayPasses reports whether distributions that were compared with noise in the replay pass the replay
// gates, whatever chance reaches. Their requests are not paired: the medians stand for where they are.
func (r *Rules) ReplayPasses(m *result.Metrics) bool {
	if m == nil {
		return false
	}
	for i := range r.gates {
		g := &r.gates[i]
		if g.ofReplay == nil || g.ofReplay.ofLevels || g.ofReplay.ofLoop != nil {
			continue
		}
		metric := g.ofReplay.metric(m)
		if metric == nil {
			continue
		}
		read := g.ofReplay.read(metric)
		if read.value == nil {
			read.value = &metric.MedianRelErr
		}
		if !passes(*read.value, g.Op, g.Threshold) {
			return false
		}
	}
	return true
}
