package export

// This file refuses exports that would mislead their reader.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Codes of refusals and remarks.
const (
	NothingToExport trace.Code = "nothing_to_export"
	unlearnedValue  trace.Code = "unlearned_value"
	impossibleValue trace.Code = "impossible_value"
	BeyondTraining  trace.Code = "lengths_beyond_training"
	BadEntry        trace.Code = "bad_entry"
	AssumedValue    trace.Code = "assumed_value"
	notValidated    trace.Code = "not_validated"
	OtherFit        trace.Code = "validation_of_other_fit"
	NotReproducible trace.Code = "not_reproducible"
	PoorProjection  trace.Code = "poor_projection"
	BadLedger       trace.Code = "bad_ledger"
	NotReplayable   trace.Code = "not_replayable"
	inputChanged    trace.Code = "input_changed"
	notComparable   trace.Code = "not_comparable"
)

// Refusal is a value that should not be given to a consumer.
type Refusal struct {
	Code     trace.Code
	Sentence string
}

// refusals returns the delays that BLIS would refuse or that the data do not determine, with the
// reason.
func refusals(alpha []blisValue) []Refusal {
	var out []Refusal
	for i, v := range alpha {
		at := fmt.Sprintf("alpha[%d] %s = %g %s", i, v.Name, v.value, v.Units)
		switch {
		case !(v.value >= 0) || math.IsInf(v.value, 0):
			out = append(out, Refusal{
				Code:     impossibleValue,
				Sentence: at + ": BLIS stops at start-up with \"must be a finite non-negative number\"",
			})
		case !v.learned:
			out = append(out, Refusal{Code: unlearnedValue, Sentence: at + ": " + v.origin + "; inside BLIS " + v.Zero})
		}
	}
	return out
}

// forceHint is the hint of refused exports.
const forceHint = "choose other configurations with --config LABEL, or write them all the same with --force %s"

// Refuse returns an error for the refusals, except for those that the options overrule, which it
// returns as warnings. hint is the format of the error's hint, with a place for the codes that
// --force would have to name.
func (o *Options) Refuse(rs []Refusal, hint string) ([]trace.Finding, error) {
	var warn []trace.Finding
	var msg, names []string
	var first trace.Code
	for _, r := range rs {
		if o.Overrules(r.Code) {
			warning := trace.Finding{Code: r.Code, Message: r.Sentence}
			if !slices.Contains(warn, warning) {
				warn = append(warn, warning)
			}
			continue
		}
		// Configurations of one label, or the entry of all together, may repeat a sentence.
		if slices.Contains(msg, r.Sentence) {
			continue
		}
		msg = append(msg, r.Sentence)
		if first == "" {
			first = r.Code
		}
		if !slices.Contains(names, string(r.Code)) {
			names = append(names, string(r.Code))
		}
	}
	if len(msg) == 0 {
		return warn, nil
	}
	return nil, &trace.Error{Code: first, Msg: strings.Join(msg, "; "),
		Hint: fmt.Sprintf(hint, strings.Join(names, ","))}
}
