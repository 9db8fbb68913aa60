package validate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

// TestGapsAreThinnedAsTheyStand: the gaps are those that a list of all of them,
// evenly thinned, would hold; those before a stamp, of idle steps, and beside a step
// that is missing are left out.
func TestGapsAreThinnedAsTheyStand(t *testing.T) {
	for _, most := range []int64{3, 200} { // decodes a step: few gaps, and more than are kept
		rng := rand.New(rand.NewPCG(1, uint64(most)))
		var list []stepMark
		at := int64(5)
		for id := int64(7); len(list) < 4000; id++ {
			at += 1 + rng.Int64N(1e7)
			if rng.IntN(50) > 0 {
				list = append(list, newStepMark(id, at, rng.Int64N(most), rng.Int64N(most)))
			}
		}
		part := list[10:3990]
		for lag := range 3 {
			from := list[500].startNs
			var all []float64
			for i := lag; i+1 < len(part); i++ {
				s := part[i]
				next := part[i+1]
				done := part[i-lag]
				if s.startNs < from || !s.isBusy || next.id != s.id+1 || done.id != s.id-int64(lag) {
					continue
				}
				for range done.decodes {
					all = append(all, float64(next.startNs-s.startNs)/1e6)
				}
			}
			got := tokenGaps(part, lag, from)
			want := stat.Thin(all, maxGaps)
			if !slices.Equal(got, want) || len(all) == 0 || most > 100 && len(got) != maxGaps {
				t.Errorf("lag %d: got %d gaps, want %d of %d", lag, len(got), len(want), len(all))
			}
		}
	}
}
