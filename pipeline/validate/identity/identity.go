// Package identity has the statements that must hold between the streams of one recording: journeys,
// step summaries, snapshots, API spans, logged passes, client timings, load levels and the description
// of the deployment are records of the same run, so each is evidence about the others.
//
// [All] lists the identities, one entry each (table.go): the streams it compares, its tolerance, the
// purposes that a violation harms and the function that compares. [Check] applies them to the
// [Evidence] of one run and returns them as package result writes them. An identity is violated only
// where it was checked; one that this recording cannot check gives the reason.
//
// Files: order.go has stamps, counts.go tokens and requests by step, blocks.go the KV cache and the
// memory of the device, limits.go the limits of the scheduler, times.go clocks, physical floors and the
// library's prediction, resolution.go rounding, lengths.go lengths that times go with, counted.go tokens that
// the server's log counts, clients.go times of clients and spans, parts.go a part that differs from the rest,
// load.go the library's times of requests and load levels, losses.go what is known to be missing. Times are in
// us, stamps in ns.
package identity

import (
	"cmp"
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Identity is one statement about the streams of a run.
type Identity struct {
	Name      string
	Kind      string   // order, tokens, requests, blocks, memory, time, load, names or loss
	Streams   string   // what is compared
	Holds     string   // the statement, one sentence without its end
	Tolerance string   // what is not a violation
	Effect    string   // of a violation: result.IdentityFails, IdentityUndecided or IdentityNamed
	Harms     []string // purposes that a violation harms
	Causes    []string // names of identities whose violation is the cause of one of this
	repeats   bool     // it repeats what the extraction found
	compare   func(*facts) reading
}

// reading is what one identity found in a run. The compare function of each returns one; its comment says what violated
// and largest are where that is not plain.
type reading struct {
	checked  int     // number of comparisons (of requests, steps, ...)
	violated int     // of these, beyond the tolerance
	largest  float64 // departure from the statement, in the unit of the tolerance
	broken   bool    // the identity is violated: violated is more than the tolerance allows
	effect   string  // in place of the identity's own, where the size of the departure decides
	kinds    int     // of times compared, of which each has a median; for the library's times alone
	sentence string  // of a violation; set whether or not broken is
	why      string  // it could not be checked; empty: it could
}

// notChecked returns the reading of an identity that this recording cannot check.
func notChecked(format string, args ...any) reading {
	return reading{why: fmt.Sprintf(format, args...)}
}

// Evidence is one run with what is known about it.
type Evidence struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
	Steps      *rows.Steps          // the rebuilt batches; nil without step summaries
	Findings   []trace.Finding      // of the extraction
	Counted    []result.ServerCount // tokens that the server's log counts, beside those of requests
}

// What a violation harms.
var (
	stepsAndReplay = []string{coeff.PurposeSteps, coeff.PurposeReplay}
	replayAlone    = []string{coeff.PurposeReplay}
	replayAndWaits = []string{coeff.PurposeReplay, coeff.PurposeWaits}
	waitsAlone     = []string{coeff.PurposeWaits}
	everyPurpose   = []string{coeff.PurposeSteps, coeff.PurposeReplay, coeff.PurposeWaits, coeff.PurposeTransfer}
)

// Check compares the streams (kinds of records) of a run with each other. The result has every
// identity, in the order of the table. Errors are those of reading the snapshots.
func Check(e Evidence) ([]result.Identity, error) {
	f, err := newFacts(e)
	if err != nil {
		return nil, err
	}
	out := make([]result.Identity, len(identities))
	weights := map[string]int{} // by the name of the identity, see weightOf
	for i := range identities {
		out[i] = identities[i].apply(f)
		weights[out[i].Name] = weightOf(&out[i])
	}
	// A contradiction is stated once, by its cause: where a cause is violated too, the identity counts as
	// not checked. One that fails nothing (weight 1) hides none that does (2).
	for i := range identities {
		weight := weights[identities[i].Name]
		for _, cause := range identities[i].Causes {
			if weight > 0 && weights[cause] >= weight {
				out[i] = identities[i].notChecked(cause + " is violated, which changes this too")
			}
		}
	}
	return out, nil
}

// weightOf returns how much the violation of an identity decides: 0 if it holds, 1 if the violation is
// only named, 2 if it fails a verdict or leaves it open.
func weightOf(id *result.Identity) int {
	switch {
	case id.Status != result.IdentityViolated:
		return 0
	case id.Effect == result.IdentityNamed:
		return 1
	}
	return 2
}

// apply makes the comparison of an identity (two quantities of a recording that must agree) and
// returns its result, as written to the document, with a sentence about it.
func (id *Identity) apply(f *facts) result.Identity {
	r := id.compare(f)
	out := result.Identity{
		Name:      id.Name,
		Kind:      id.Kind,
		Streams:   id.Streams,
		Holds:     id.Holds,
		Tolerance: id.Tolerance,
		Status:    result.IdentityHolds,
		Checked:   r.checked,
		Violated:  r.violated,
		Largest:   result.OrNull(r.largest),
		Harms:     id.Harms,
	}
	if r.why != "" || r.checked == 0 {
		return id.notChecked(cmp.Or(r.why, "not recorded"))
	}
	if r.broken {
		out.Status = result.IdentityViolated
		out.Effect = cmp.Or(r.effect, id.Effect)
		out.Sentence = r.sentence
	}
	return out
}

// notChecked returns the result of an identity that was not checked.
func (id *Identity) notChecked(why string) result.Identity {
	return result.Identity{
		Name:      id.Name,
		Kind:      id.Kind,
		Streams:   id.Streams,
		Holds:     id.Holds,
		Tolerance: id.Tolerance,
		Status:    result.IdentityNotChecked,
		Sentence:  why,
		Harms:     id.Harms,
	}
}

// All returns the identities in the order in which documents have them.
func All() []Identity { return append([]Identity{}, identities...) }
