package stat

import (
	"math"
	"testing"
)

func TestPaired(t *testing.T) {
	zero := make([]float64, 20)
	for _, c := range []struct {
		d []float64
		p float64
	}{
		{[]float64{1, 2, 3}, 0.25}, // two of eight patterns; one-sided it would be 0.125
		{[]float64{1, -1}, 1},
		{[]float64{3, 1, -1}, 0.75}, // |sum| = 3 or more: +3+1-1, +3-1+1, +3+1+1 and their opposites: 6 of 8
		{[]float64{0, 0, 0}, 1},
	} {
		got := Paired(c.d, zero[:len(c.d)])
		if got.P != c.p {
			t.Errorf("%v: got p %g, want %g", c.d, got.P, c.p)
		}
	}
	d := Paired([]float64{1, 2, 3, 4}, zero[:4])
	if half := 3.182446 * math.Sqrt(5.0/12); math.Abs(d.Mean-2.5) > 1e-12 || math.Abs(d.Hi-2.5-half) > 1e-5 || math.Abs(d.Lo-2.5+half) > 1e-5 {
		t.Errorf("got %+v, want 2.5 +- %g", d, half)
	}
	all := Paired([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, zero)
	if all.P != 2.0/(1<<20) {
		t.Errorf("twenty alike: got p %g, want 2 of 2^20", all.P)
	}
	if long := Paired(make([]float64, 30), make([]float64, 30)); long.P != 1 {
		t.Errorf("thirty zeros: got p %g, want 1", long.P)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, math.NaN()})
	for i, want := range []float64{0.03, 0.06, 0.06} { // 3*0.01, then 2*0.03, then max(0.06, 0.04)
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("got %v, want 0.03, 0.06, 0.06", got)
		}
	}
	if !math.IsNaN(got[3]) {
		t.Error("NaN did not stay")
	}
}
