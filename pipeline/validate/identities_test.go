package validate

import (
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/identity"
	"github.com/blis-train/blis-train/result"
)

// TestDoubtfulStreamsAreBlamed: a failed replay without another cause is explained by the comparisons of its own run
// that are violated and leave replay open, except by losses.
func TestDoubtfulStreamsAreBlamed(t *testing.T) {
	violated := func(kind, effect, sentence string) result.Identity {
		return result.Identity{Kind: kind, Effect: effect, Sentence: sentence, Status: result.IdentityViolated, Harms: []string{coeff.PurposeReplay}}
	}
	v := &result.Validation{Runs: []result.ValidationRun{
		{ID: "a", Identities: []result.Identity{
			violated(identity.KindLoss, result.IdentityUndecided, "lost"),
			violated("time", result.IdentityNamed, "named"),
			violated("time", result.IdentityUndecided, "another unit"),
			violated("order", result.IdentityUndecided, "another order"),
		}},
		{ID: "b"},
	}}
	diagnoses := []result.Diagnosis{
		{Scope: "a/phase", Cause: result.CauseUnknown},
		{Scope: "a/phase", Cause: result.CauseMachineDrift, Sentence: "drift"},
		{Scope: "b", Cause: result.CauseUnknown, Sentence: "no cause"},
	}
	blameDoubtfulStreams(v, diagnoses)
	for i, want := range []result.Diagnosis{
		{Cause: result.CauseStreams, Sentence: "another unit; another order"},
		{Cause: result.CauseMachineDrift, Sentence: "drift"},
		{Cause: result.CauseUnknown, Sentence: "no cause"},
	} {
		if got := diagnoses[i]; got.Cause != want.Cause || got.Sentence != want.Sentence {
			t.Errorf("%d: got %s, %q, want %s, %q", i, got.Cause, got.Sentence, want.Cause, want.Sentence)
		}
	}
}
