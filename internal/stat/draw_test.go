package stat

import (
	"math"
	"testing"
)

// Draws are uniform over cells and do not follow their index, for keys that
// differ in the last place, in the first, or in both.
func TestDraw(t *testing.T) {
	const n, cells = 100_000, 100
	for name, key := range map[string]func(i uint64) float64{
		"index":  func(i uint64) float64 { return Draw(1, 2, i) },
		"seed":   func(i uint64) float64 { return Draw(i, 2, 3) },
		"both":   func(i uint64) float64 { return Draw(i, i) },
		"number": func(i uint64) float64 { return (float64(DrawN(1000, 7, i)) + 0.5) / 1000 },
	} {
		var count [cells]float64
		last, together := 0.0, 0.0
		for i := range uint64(n) {
			u := key(i)
			if !(u >= 0 && u < 1) {
				t.Fatalf("%s: got %g, want in [0, 1)", name, u)
			}
			count[int(u*cells)]++
			together += (u - 0.5) * (last - 0.5)
			last = u
		}
		chi2 := 0.0
		for _, c := range count {
			chi2 += (c - n/cells) * (c - n/cells) / (n / cells)
		}
		if chi2 > 149 { // 0.999 quantile at 99 degrees of freedom
			t.Errorf("%s: chi-square %.0f over %d cells", name, chi2, cells)
		}
		if r := together / n * 12; math.Abs(r) > 4/math.Sqrt(n) {
			t.Errorf("%s: neighbours correlate by %.4f", name, r)
		}
	}
	if Draw(1, 2) == Draw(2, 1) {
		t.Error("the order of keys does not matter, want it to")
	}
}
