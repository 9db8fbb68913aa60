package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestCrossFitsNeverSawTheirBlock: steps that are twice as long in one block move the fits that learn from it, and
// not by a bit the fit without it, though both learn from the hold-out.
func TestCrossFitsNeverSawTheirBlock(t *testing.T) {
	const n, slowBlock = 600, 1
	blocks := result.NewCrossBlocks("r", "", 0, n*1e7, 20*1e7)
	crossed := func(factor float64) *result.CrossFits {
		rng := rand.New(rand.NewPCG(3, 4))
		table := planted("r", "gpu/a", n, func(i int) ([]float64, float64) {
			work := 0.5e-3 + 1e-3*rng.Float64()
			y := (1000 + 1.5e6*work) * (1 + 0.02*rng.NormFloat64())
			if blocks.Block(int64(i)*1e7) == slowBlock {
				y *= factor
			}
			return vector(t, map[string]float64{"decode_weight_load": work}), y
		})
		f := fitterOf(t, table)
		f.used[0].Blocks = []result.CrossBlocks{blocks}
		s, m, err := f.selectBeta()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SolveAt(m, f.gamma, false); err != nil {
			t.Fatal(err)
		}
		if err := f.crossFit(context.Background(), s, nil); err != nil {
			t.Fatal(err)
		}
		if f.out.Cross == nil || len(f.out.Cross.Fits) != result.CrossFolds {
			t.Fatalf("got %+v", f.out.Cross)
		}
		return f.out.Cross
	}
	before, after := crossed(1), crossed(2)
	for block := range result.CrossFolds {
		a, b := &before.Fits[block], &after.Fits[block]
		most := 0.0
		for j := range a.Beta {
			most = math.Max(most, math.Abs(a.Beta[j]-b.Beta[j]))
		}
		if block == slowBlock && (most > 0 || a.Learned != n-n/5-40) {
			t.Errorf("the fit without the slow block learned from %d rows and moved by %g, want %d and 0", a.Learned, most, n-n/5-40)
		}
		if block != slowBlock && !(most > 0) {
			t.Errorf("the fit without block %d did not learn from the slow one", block)
		}
	}
}
