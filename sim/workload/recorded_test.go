package workload

import (
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// TestPermute: requests in any order, among them none, one, those that stay and one cycle of all, are moved to the places
// that a copy would give them.
func TestPermute(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	orders := [][]int{{}, {0}, {0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {1, 0, 3, 2}}
	for range 50 {
		orders = append(orders, rng.Perm(1+rng.IntN(20)))
	}
	for _, order := range orders {
		requests := make([]sim.Request, len(order))
		for i := range requests {
			requests[i].PromptTokens = int64(i)
		}
		permute(requests, append([]int{}, order...))
		for i, from := range order {
			if got := requests[i].PromptTokens; got != int64(from) {
				t.Errorf("order %v: place %d: got request %d, want %d", order, i, got, from)
			}
		}
	}
}
