package predictor

import (
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// TestDecisionRows compares every column of the rows of a run with preemptions, aborts and shared prefixes.
func TestDecisionRows(t *testing.T) {
	r := build(t, decisionRandom(rand.New(rand.NewPCG(8, 7))), engine(), DefaultOptions())
	var some []Row
	for i := 0; i < len(r.Rows); i += 8 {
		some = append(some, r.Rows[i])
	}
	testkit.Document(t, "rows", map[string]any{"rows": some, "dropped": r.Dropped, "requests": r.Requests, "warnings": r.Warnings})
}
