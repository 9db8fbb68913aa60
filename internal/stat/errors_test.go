package stat

import (
	"math"
	"testing"
)

func TestErrorsOfMeans(t *testing.T) {
	nan := math.NaN()
	if got, want := StdErr([]float64{1, nan, 3, 5}), math.Sqrt(4.0/3); math.Abs(got-want) > 1e-12 {
		t.Errorf("of 1, 3 and 5: got %g, want %g", got, want)
	}
	for _, v := range [][]float64{nil, {2}, {2, nan}} {
		if got := StdErr(v); got != 0 {
			t.Errorf("of %v: got %g, want 0", v, got)
		}
	}
	one := Paired([]float64{3}, []float64{1})
	if one.N != 1 || one.Mean != 2 || one.P != 1 {
		t.Errorf("one pair: got %+v", one)
	}
	none := Paired(nil, nil)
	if none.N != 0 || !math.IsNaN(none.Mean) || !math.IsNaN(none.P) || !math.IsNaN(none.Lo) || !math.IsNaN(none.Hi) {
		t.Errorf("no pair: got %+v", none)
	}
	two := Paired([]float64{3, 5}, []float64{1, 1})
	if two.Mean != 3 || two.P != 0.5 || !(two.Lo < 3 && two.Hi > 3) {
		t.Errorf("two pairs: got %+v, want a mean of 3 whose sign two of four patterns reach", two)
	}
}
