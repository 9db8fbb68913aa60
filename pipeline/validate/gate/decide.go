package gate

// This file evaluates the gates of a validation, from the coefficients to the replays, and decides
// which of them count.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// ScopeAll is the scope of a gate that judges all runs together.
const ScopeAll = coeff.ScopeAll

// InsufficientData begins the note of a replay gate that needs more requests or load levels.
const InsufficientData = "insufficient data"

// Notes of gates: why one has no result, or what its value leaves out.
const (
	noteInsufficient  = InsufficientData + ": chance alone reaches %.3g with %d %s, want below %g: %s"
	noteWideInterval  = InsufficientData + ": between %s and %s %%, want within %s %%, with %d compared: %s"
	noteFewValues     = InsufficientData + ": %d compared, want at least %d"
	noteFewWindows    = InsufficientData + ": %d held-out windows of 10 s compared, want at least %d"
	noteRepeated      = "%d of %s"
	noteFewInFolds    = InsufficientData + ": %s has %d rows in %d folds, want at least %d in each"
	noteNoDelays      = InsufficientData + ": no such request, want at least %d"
	noteFewLevels     = InsufficientData + ": five load levels at least decide"
	noteNoChance      = InsufficientData + ": too few step times tell what chance alone reaches"
	noteEmpty         = "no request to compare arrives in this part of the phase"
	noteSaturated     = "saturated"
	noteRebuilt       = "load rebuilt from steps"
	noteOneConfig     = "not applicable with one configuration"
	noteNoFit         = "no fit report given"
	noteNoRows        = "no rows"
	noteOutliers      = "%d of %d rows are outliers (%.1f %%; left out here up to 1 %%), the largest error %.3g times the median"
	noteNoSteps       = "learned from requests: no steps were recorded"
	noteNoFloor       = "no noise floor: fewer than 50 rows"
	noteOtherSource   = "%s requests: errors are printed, not gated"
	noteSampled       = "journeys are sampled at %g: the rest of the load is unknown"
	noteNoStamps      = "stamps missing on one side"
	noteOneToken      = "every answer has one token, and so no ITL: record longer answers"
	noteOneTimeOfBoth = "learned from requests of one output token, whose time does not tell the overhead from the step that " +
		"computes the prompt: record longer answers"
	noteNoReplay      = "not replayed"
	noteNegative      = "%s is negative"
	noteZeroOrLess    = "%s is at its bound of 0, where its interval ends: another term took its cost"
	noteAtZero        = "%s is at its bound of 0: another term took its cost"
	noteNotIdentified = "no term is identified"
)

// Decide fills the gates of v, the verdicts by purpose, and the verdict for the purpose asked for;
// empty: replay, or steps where nothing was replayed. fit may be nil: gates that only the fit can
// answer then have no value and are not required.
func (r *Rules) Decide(v *result.Validation, fit *result.Fit, set *coeff.Set, asked string) {
	r.fillGates(v, fit, set)
	if asked == "" && learnedFromRequests(fit) && !v.Options.StepsOnly {
		asked = coeff.PurposeReplay
	}
	fillVerdicts(v, asked)
}

// fillGates appends the gates: those of the coefficients and the fit, those of each configuration,
// those of everything, those of each replay.
func (r *Rules) fillGates(v *result.Validation, fit *result.Fit, set *coeff.Set) {
	for i := range r.gates {
		if g := &r.gates[i]; g.ofCoefficients != nil {
			v.Gates = append(v.Gates, r.apply(g, ScopeAll, g.ofCoefficients(set)))
		}
	}
	v.Gates = append(v.Gates, r.leftOutGates(fit, v.Configs)...)
	for i := range r.gates {
		g := &r.gates[i]
		switch {
		case g.ofFit == nil:
		case fit == nil:
			v.Gates = append(v.Gates, r.apply(g, ScopeAll, reading{missing: noteNoFit, optional: true}))
		default:
			v.Gates = append(v.Gates, r.apply(g, ScopeAll, g.ofFit(fit)))
		}
	}
	for k := range v.Configs {
		c := &v.Configs[k]
		for i := range r.gates {
			g := &r.gates[i]
			if g.ofConfig == nil {
				continue
			}
			if read, applies := g.ofConfig(c, v.Runs); applies {
				v.Gates = append(v.Gates, r.apply(g, c.Scope, read))
			}
		}
	}
	for i := range r.gates {
		if g := &r.gates[i]; g.ofAll != nil {
			if read, applies := g.ofAll(v); applies {
				v.Gates = append(v.Gates, r.apply(g, ScopeAll, read))
			}
		}
	}
	if !v.Options.StepsOnly {
		v.Gates = append(v.Gates, r.replayGates(v, learnedFromRequests(fit))...)
	}
	if learnedFromRequests(fit) {
		waiveStepGates(v.Gates)
		leaveOverheadOpen(v)
	}
}

// learnedFromRequests reports whether the coefficients were fitted without step traces. Then the
// times of clients and stock spans decide, and there may be no steps to compare.
func learnedFromRequests(fit *result.Fit) bool { return fit != nil && fit.Requests != nil }

// waiveStepGates requires nothing of steps that were not recorded.
func waiveStepGates(gates []result.Gate) {
	for i := range gates {
		g := &gates[i]
		if g.Value == nil && (g.Name == certificate || JudgesSteps(g.Name)) {
			g.Required = false
			g.Note = noteNoSteps
		}
	}
}

// leaveOverheadOpen leaves a failed overhead undecided where the requests had one output token each: the fit knows the
// overhead and the step that computes the prompt by their sum alone, which is TTFT and judged as such.
func leaveOverheadOpen(v *result.Validation) {
	for k := range v.Configs {
		c := &v.Configs[k]
		oneToken, longer := false, false
		for i := range v.Runs {
			if run := &v.Runs[i]; slices.Contains(c.Runs, run.ID) && run.Metrics != nil {
				oneToken = oneToken || hasOneToken(run.Metrics)
				longer = longer || run.Metrics.ITL != nil
			}
		}
		for i := range v.Gates {
			g := &v.Gates[i]
			if g.Name == overheadOfTTFT && g.Scope == c.Scope && g.Pass != nil && !*g.Pass && oneToken && !longer {
				g.Pass = nil
				g.Note = noteOneTimeOfBoth
			}
		}
	}
}

// hasOneToken reports whether the compared requests had one output token each: the times of their first and last tokens
// are known, and there is none between tokens.
func hasOneToken(m *result.Metrics) bool { return m.TTFT != nil && m.E2E != nil && m.ITL == nil }

// leftOutGates returns the gates on the configurations that cross-validation held out of each
// model.
func (r *Rules) leftOutGates(fit *result.Fit, configs []result.ConfigErrors) []result.Gate {
	if fit == nil {
		return r.leftOutOf("beta", nil, configs, noteNoFit)
	}
	gates := r.leftOutOf("beta", fit.Beta.Loco, configs, noteOneConfig)
	for i := range fit.Alpha {
		gates = append(gates, r.leftOutOf(fit.Alpha[i].Name, fit.Alpha[i].Loco, configs, noteOneConfig)...)
	}
	return gates
}

// leftOutOf returns the gates of one model. Without left-out configurations none is required.
func (r *Rules) leftOutOf(model string, leftOut []result.Loco, configs []result.ConfigErrors, none string) []result.Gate {
	var gates []result.Gate
	for i := range r.gates {
		g := &r.gates[i]
		if g.ofLeftOut == nil || g.ofLeftOut.model != model {
			continue
		}
		if len(leftOut) == 0 {
			gates = append(gates, r.apply(g, ScopeAll, reading{missing: none, optional: true}))
		}
		for k := range leftOut {
			read := reading{value: g.ofLeftOut.value(&leftOut[k]), size: leftOut[k].Rows, missing: noteNoRows}
			if g.ofLeftOut.ofWindows {
				read.size = max(1, leftOut[k].Windows)
				read.windows = true
			}
			gates = append(gates, r.apply(g, leftOutScope(&leftOut[k], configs), read))
		}
	}
	return gates
}

// leftOutScope returns the scope under which the configuration is judged, else its label.
func leftOutScope(l *result.Loco, configs []result.ConfigErrors) string {
	for i := range configs {
		if configs[i].Config == l.Config && !configs[i].TestRun {
			return configs[i].Scope
		}
	}
	return cmp.Or(l.Label, l.Config)
}

// replayGates returns the gates on the plain replay of every run and phase, on requests that were
// held out of the fit (spec#held-out-replay). An in-sample replay has no gates. A saturated phase
// has gates without a value that are not required. If no replay can decide, there are gates of the
// scope all whose notes are the reasons.
func (r *Rules) replayGates(v *result.Validation, fromRequests bool) []result.Gate {
	var gates []result.Gate
	decided := false // some replay can decide
	why := "nothing was held out of the fit"
	undecided := "" // the first reason of a replay that cannot
	for i := range v.Runs {
		run := &v.Runs[i]
		if run.Split.Kind == result.SplitInSample || run.IsFigure() {
			continue
		}
		why = "no unsaturated phase with requests that the coefficients never saw was replayed"
		note, required := whyNotJudged(run, fromRequests)
		decided = decided || required
		undecided = cmp.Or(undecided, run.Undecided)
		for k := range r.gates {
			g := &r.gates[k]
			if g.ofReplay == nil || !g.ofReplay.applies(run) {
				continue
			}
			var read reading
			if note == "" && run.Metrics != nil {
				read = g.ofReplay.readMetrics(run.Metrics)
			}
			read.missing = cmp.Or(note, noteNoStamps)
			if note == "" && run.Metrics != nil && hasOneToken(run.Metrics) {
				read.missing = noteOneToken
			}
			read.optional = !required
			gates = append(gates, r.replayGate(g, run, read))
		}
	}
	if decided {
		return gates
	}
	for i := range r.gates {
		if g := &r.gates[i]; g.ofReplay != nil && !g.ofReplay.ofLevels && g.ofReplay.ofLoop == nil {
			gates = append(gates, r.apply(g, ScopeAll, reading{missing: cmp.Or(undecided, why)}))
		}
	}
	return gates
}

// whyNotJudged returns the note about a replay on which gates are not evaluated, "" for others, and
// whether a result is required all the same. fromRequests is set if the coefficients were fitted to
// clients' requests: then replays of clients' requests are gated like those of journeys.
func whyNotJudged(run *result.ValidationRun, fromRequests bool) (note string, required bool) {
	judgedSource := run.Source == "" || run.Source == result.SourceJourneys || run.Source == result.SourcePasses
	sampled := run.JourneySampleRate != nil && *run.JourneySampleRate < 1
	switch {
	case run.Saturated:
		return noteSaturated, false
	case run.Phase != "" && run.Replayed == 0 && run.Metrics == nil:
		return noteEmpty, false
	case run.Undecided != "":
		return run.Undecided, run.Informs == ""
	case run.Informs != "":
		return run.Informs, false
	case !fromRequests && !judgedSource:
		return fmt.Sprintf(noteOtherSource, run.Source), false
	case sampled && run.Rebuilt == 0:
		return fmt.Sprintf(noteSampled, *run.JourneySampleRate), true
	case run.Metrics == nil && run.Source == result.SourcePoints:
		return noteFewLevels, true
	case run.Metrics == nil:
		return noteNoReplay, true
	case run.Requests == 0:
		return noteEmpty, false
	}
	return "", true
}

// replayGate returns the gate on one figure of a replay: an estimate with its interval, or a
// statistic with the value that chance alone reaches. Such a statistic fails if it is at or over
// the threshold and over chance, passes if both are under the threshold, and otherwise has no
// result: more requests would decide (spec#chance).
func (r *Rules) replayGate(g *Gate, run *result.ValidationRun, read reading) result.Gate {
	if read.estimate {
		read.size = run.Requests
	}
	out := r.apply(g, ReplayScope(run), read)
	if read.value == nil {
		return out
	}
	chance := read.chance
	switch {
	case read.estimate: // apply has judged it
	case chance == nil && run.Source == result.SourcePoints:
		out.Pass = nil
		out.Note = noteFewLevels
	case chance == nil:
		out.Pass = nil
		out.Note = noteNoChance
	case *chance >= g.Threshold && (*read.value < g.Threshold || *read.value <= *chance):
		out.Pass = nil
		// Chance falls with the square root of the number.
		needed := float64(run.Requests) * math.Pow(chanceMargin**chance/g.Threshold, 2)
		out.Note = fmt.Sprintf(noteInsufficient, *chance, run.Requests, comparedNoun(run), g.Threshold, wouldDecide(needed, comparedNoun(run)))
	}
	if run.Rebuilt > 0 {
		out.Note = joinNotes(out.Note, noteRebuilt)
	}
	return out
}

// comparedNoun returns the word for what a replay compares.
func comparedNoun(run *result.ValidationRun) string {
	if run.Source == result.SourcePoints {
		return "load levels"
	}
	return "requests"
}

// Ends of the scopes of replays that are not gated: on requests that the fit has seen, and of a hold-out
// beside a cross-fitted replay.
const (
	inSample  = " (in-sample)"
	lastShare = " (hold-out)"
)

// ReplayScope returns the name of a replayed run, phase and split: "id/phase (in-sample)".
func ReplayScope(run *result.ValidationRun) string {
	scope := run.ID
	if run.Phase != "" {
		scope += "/" + run.Phase
	}
	switch {
	case run.Split.Kind == result.SplitInSample:
		scope += inSample
	case run.IsFigure():
		scope += lastShare
	}
	return scope
}

// RunOf returns the id of the run in a scope of ReplayScope.
func RunOf(scope string) string {
	id, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(scope, inSample), lastShare), "/")
	return id
}

// FailedByScope returns the names of failed gates by scope, and the scopes in the order of the
// gates.
func FailedByScope(gates []result.Gate) (scopes []string, names map[string][]string) {
	names = map[string][]string{}
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		if names[g.Scope] == nil {
			scopes = append(scopes, g.Scope)
		}
		if !slices.Contains(names[g.Scope], g.Name) {
			names[g.Scope] = append(names[g.Scope], g.Name)
		}
	}
	return scopes, names
}
