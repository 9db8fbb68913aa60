package validate

import (
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/pipeline/rows"
)

// The corrected replay repeats the machine as it was. The
// hold-out scatters as the hold-out did where it has rows enough, else as the
// whole phase.
func TestSpreadOfThePart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1000, 999} { // rows in each half
		tt, pred := &rows.Table{}, []float64(nil)
		for i := range 2 * n {
			y := 1000 * (1 + 0.2*rng.Float64())
			if i < n && i%3 == 0 {
				y = 4000
			}
			tt.Kept++
			tt.TimeNs = append(tt.TimeNs, int64(i))
			tt.Regime = append(tt.Regime, rows.Decode)
			tt.Steps = append(tt.Steps, 1)
			tt.Y = append(tt.Y, y)
			pred = append(pred, 1000)
		}
		s := scatterOf(tt, pred, &drift{}, 0, int64(n), int64(2*n))
		most := 0.0
		for range 1000 {
			most = max(most, s.at(int64(n)).draw(rng, rows.Decode, 1000))
		}
		if few := n < 1000; few != (most > 2) {
			t.Errorf("%d rows in the hold-out: the largest of 1000 draws is %.2f times the prediction", n, most)
		}
	}
}
