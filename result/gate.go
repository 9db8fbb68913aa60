package result

// This file has gates and verdicts as documents have them.

import (
	"strings"

	"github.com/blis-train/blis-train/coeff"
)

// PurposeVerdict is the verdict on a purpose in one scope, with the gates that failed and those that lack
// data.
type PurposeVerdict struct {
	coeff.PurposeVerdict
	Failed  []string `json:"failed"`  // "gate of scope"
	Missing []string `json:"missing"` // required gates that are null, one sentence each
}

// Gate is the outcome of one acceptance test in one scope (spec#gates). Package gate has the tests.
type Gate struct {
	coeff.Gate
	Source   string `json:"source"` // why the threshold is what it is
	Spec     string `json:"spec"`   // address of the gate's clause
	Required bool   `json:"required"`
	// Chance is the value that a replay of an exact model reaches by chance (spec#chance); null for
	// gates that are not about replays.
	Chance *float64 `json:"chance"`
	// Interval is the 95 % interval of a value that has a sampling error (spec#sampling-error); null elsewhere.
	Interval *[2]float64 `json:"interval"`
	// Purposes that the gate decides for.
	Purposes []string `json:"purposes"`
}

// Book is the address of the specification; the address of a clause is Book#NAME.
const Book = "https://github.com/blis-train/blis-train/blob/main/docs/spec.md"

// GateClause returns the address of a gate's clause.
func GateClause(name string) string { return Book + "#gate-" + strings.ReplaceAll(name, "_", "-") }
