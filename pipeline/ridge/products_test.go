package ridge

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The kernel of this architecture sums in the one order, bit for bit, at every length.
func TestSumProductsInOneOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		x, y := make([]float64, n), make([]float64, n)
		for i := range x {
			x[i], y[i] = rng.NormFloat64()*math.Ldexp(1, rng.IntN(40)), rng.NormFloat64()
		}
		if got, want := sumProducts(x, y), lanes(x, y); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%d products: sum %x, in lanes %x", n, got, want)
		}
	}
}
