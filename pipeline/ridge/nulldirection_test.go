package ridge

import (
	"math"
	"testing"
)

// TestDirectionWithoutRows: two terms that are proportional in every row share one direction that no row
// determines. Its rounding errors are not part of the covariance: it is that of the two terms' sum, spread
// as the least squares of smallest norm spread it.
func TestDirectionWithoutRows(t *testing.T) {
	// Each block has the rows (x, 3x) with targets y; the blocks differ.
	blocksOf := func(shape func(x float64) []float64, p int) []BlockGram {
		var blocks []BlockGram
		for k := range 12 {
			g := New(p)
			d := &Data{P: p}
			var rows []int32
			var w []float64
			for i := range 20 {
				x := 1 + math.Mod(float64(7*k+3*i), 11)/7
				d.X = append(d.X, shape(x)...)
				d.Y = append(d.Y, 5*x+math.Mod(float64(5*k+i), 13)/4)
				rows = append(rows, int32(i))
				w = append(w, 1)
			}
			acc := NewAccumulator(d)
			acc.Add(rows, w)
			acc.Fill(-1, g)
			blocks = append(blocks, BlockGram{Gram: g})
		}
		return blocks
	}
	one := newBootstrap(blocksOf(func(x float64) []float64 { return []float64{x} }, 1))
	two := newBootstrap(blocksOf(func(x float64) []float64 { return []float64{x, 3 * x} }, 2))
	for _, b := range []*bootstrap{one, two} {
		if _, err := b.solveAll(); err != nil {
			t.Fatal(err)
		}
	}
	ofSum := make([]float64, 1)
	one.covariance(ofSum)
	got := make([]float64, 4)
	two.covariance(got)
	// The terms are scaled to equal norms, so each holds half of x's coefficient b: b/2 and b/6.
	want := []float64{ofSum[0] / 4, ofSum[0] / 12, ofSum[0] / 12, ofSum[0] / 36}
	for i, w := range want {
		if math.Abs(got[i]-w) > 1e-9*w {
			t.Errorf("element %d: got %.12g, want %.12g", i, got[i], w)
		}
	}
}
