package identity

// This file compares a run with the other runs of an evaluation. Each is one recording, so that the facts of one run do not
// show it: the caller counts (package validate), and this file has the statement.

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// RunsDiffer is the name of the identity of equal runs.
const RunsDiffer = "runs_differ"

// Tolerances of equal runs.
const (
	CopiedSteps = 8    // step times that a stretch has: so many are equal in copies alone
	MostCopied  = 0.05 // share of the stretches of a run that another may have too
)

// runsDiffer is not checked in one run; see WithCopies.
func runsDiffer(*facts) reading { return notChecked("no other run with step times") }

// WithCopies sets the identity RunsDiffer among those of a run. Of its stretches, compared were looked for in runs before it, and
// the run named other has copied of them. identities without it, those of a slice of a run, stay as they are.
func WithCopies(identities []result.Identity, other string, compared, copied int) {
	for i := range identities {
		if identities[i].Name != RunsDiffer {
			continue
		}
		id := &identities[i]
		share := float64(copied) / float64(compared)
		id.Status = result.IdentityHolds
		id.Sentence = ""
		id.Checked, id.Violated = compared, copied
		id.Largest = result.OrNull(share)
		if share > MostCopied {
			id.Status = result.IdentityViolated
			id.Effect = result.IdentityFails
			id.Sentence = fmt.Sprintf("%.3g %% of the stretches of %d steps take the same times as in run %s: one of the two is a copy, and what was held out was "+
				"seen in the fit", 100*share, CopiedSteps, other)
		}
	}
}
