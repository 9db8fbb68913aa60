package result

// This file has identities, relations between the streams of a recording, as documents have them.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Identity is one statement that must hold between the streams of a run (spec#identities), and whether it
// does. Package pipeline/validate/identity has the statements.
type Identity struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`      // order, tokens, requests, blocks, memory, time, load, names or loss
	Streams   string   `json:"streams"`   // what is compared
	Holds     string   `json:"holds"`     // the statement
	Tolerance string   `json:"tolerance"` // what is not a violation
	Status    string   `json:"status"`    // holds | violated | not checked
	Effect    string   `json:"effect"`    // of the violation: fails | insufficient | named; empty: none
	Checked   int      `json:"checked"`   // comparisons
	Violated  int      `json:"violated"`
	Largest   *float64 `json:"largest"`  // departure, in the unit of the tolerance; null: not checked
	Harms     []string `json:"harms"`    // purposes that a violation harms
	Sentence  string   `json:"sentence"` // of a violation, or why it was not checked
}

// Statuses of an Identity.
const (
	IdentityHolds      = "holds"
	IdentityViolated   = "violated"
	IdentityNotChecked = "not checked"
)

// Effects of a violated Identity on the purposes it harms.
const (
	IdentityFails     = "fails"        // they fail: the data contradict themselves
	IdentityUndecided = "insufficient" // they do not pass: too much is missing, or it is not known which side is right
	IdentityNamed     = "named"        // a warning
)

// PurposeUse is whether the streams of a run allow a purpose at all.
type PurposeUse struct {
	Purpose string   `json:"purpose"`
	Status  string   `json:"status"`            // usable | insufficient | contradicted
	Because []string `json:"because,omitempty"` // names of the violated identities
}

// Statuses of a PurposeUse.
const (
	UseAllowed      = "usable"
	UseInsufficient = "insufficient"
	UseContradicted = "contradicted"
)

// StreamsDisagree is the code of the finding of a violated identity between the streams of a run.
const StreamsDisagree trace.Code = "streams_disagree"

// Violated returns the violated identities that harm a purpose with one of the effects.
func Violated(identities []Identity, purpose string, effects ...string) []*Identity {
	var out []*Identity
	for i := range identities {
		id := &identities[i]
		if id.Status == IdentityViolated && slices.Contains(id.Harms, purpose) && slices.Contains(effects, id.Effect) {
			out = append(out, id)
		}
	}
	return out
}

// UsesOf returns what the identities allow a run to be used for, for each of the purposes.
func UsesOf(identities []Identity, purposes []string) []PurposeUse {
	var out []PurposeUse
	for _, purpose := range purposes {
		use := PurposeUse{Purpose: purpose, Status: UseAllowed}
		because := Violated(identities, purpose, IdentityFails)
		if len(because) > 0 {
			use.Status = UseContradicted
		} else if because = Violated(identities, purpose, IdentityUndecided); len(because) > 0 {
			use.Status = UseInsufficient
		}
		for _, id := range because {
			use.Because = append(use.Because, id.Name)
		}
		out = append(out, use)
	}
	return out
}
