package gate

// This file has the gates that judge the recording itself: whether its streams contradict each other.

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// Names of the gates that judge the recording itself, by purpose.
const (
	contradictionsSteps    = "contradictions_steps"
	contradictionsReplay   = "contradictions_replay"
	contradictionsWaits    = "contradictions_waits"
	contradictionsTransfer = "contradictions_transfer"
)

// JudgesStreams reports whether the gate counts contradictions between the streams of a recording.
func JudgesStreams(name string) bool {
	switch name {
	case contradictionsSteps, contradictionsReplay, contradictionsWaits, contradictionsTransfer:
		return true
	}
	return false
}

// IdentitiesOf returns the identities of the runs of a configuration or test run.
func IdentitiesOf(c *result.ConfigErrors, runs []result.ValidationRun) []result.Identity {
	var all []result.Identity
	for i := range runs {
		if slices.Contains(c.Runs, runs[i].ID) {
			all = append(all, runs[i].Identities...)
		}
	}
	return all
}

// violatedIdentities returns the reader of a gate: the number of violated identities (relations that
// must hold between the streams of a recording) that make a configuration unusable for the purpose.
// If the violations only leave the purpose undecided, the reading has no value but a reason, and
// without violations the gate does not apply (false).
func violatedIdentities(purpose string) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, runs []result.ValidationRun) (reading, bool) {
		all := IdentitiesOf(c, runs)
		fails := result.Violated(all, purpose, result.IdentityFails)
		if len(fails) > 0 {
			n := float64(len(fails))
			return reading{value: &n, remark: sentences(fails)}, true
		}
		undecided := result.Violated(all, purpose, result.IdentityUndecided)
		return reading{missing: sentences(undecided)}, len(undecided) > 0
	}
}

// violatedBetween returns what violatedIdentities does, for a purpose that uses coefficients on
// other configurations. With a single configuration the gate does not apply, because nothing is
// transferred.
func violatedBetween(purpose string) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	violated := violatedIdentities(purpose)
	return func(c *result.ConfigErrors, runs []result.ValidationRun) (reading, bool) {
		isOther := func(r result.ValidationRun) bool { return r.Config != c.Config }
		if !isUnseen(c) && !slices.ContainsFunc(runs, isOther) {
			return reading{}, false
		}
		return violated(c, runs)
	}
}

// sentences returns the sentences about violated identities, each once.
func sentences(identities []*result.Identity) string {
	var out []string
	for _, id := range identities {
		if !slices.Contains(out, id.Sentence) {
			out = append(out, id.Sentence)
		}
	}
	return strings.Join(out, "; ")
}
