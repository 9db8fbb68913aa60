package validate

import (
	"math"
	"testing"
)

func TestCompareReportsBothMedians(t *testing.T) {
	real := []float64{100, 200, 300, 400}
	sim := []float64{110, 180, 330, 400}
	m := Compare(real, sim, true)
	if math.Abs(m.MedianRelErr-5.0/250) > 1e-12 {
		t.Errorf("unpaired: got %v, want %v", m.MedianRelErr, 5.0/250)
	}
	if m.MedianRelErrPaired == nil || math.Abs(*m.MedianRelErrPaired-0.1) > 1e-12 {
		t.Errorf("paired: got %v, want 0.1", m.MedianRelErrPaired)
	}
	if m.RealVsRealD == nil || *m.RealVsRealD != 1 {
		t.Errorf("halves: got %v, want 1", m.RealVsRealD)
	}
	if Compare(real, sim, false).MedianRelErrPaired != nil {
		t.Error("unpaired comparison has a paired error")
	}
	if Compare(nil, sim, true) != nil {
		t.Error("a missing side must give null")
	}
}

func TestCurvesAreBounded(t *testing.T) {
	big := make([]float64, 100000)
	for i := range big {
		big[i] = float64(i * 7919 % 100003)
	}
	e := ecdf(big)
	if len(e) != 120 || e[0][0] != 0 || e[len(e)-1][1] != 1 {
		t.Errorf("ecdf: got %d points, first %v, last %v", len(e), e[0], e[len(e)-1])
	}
	if q := quantilePairs(big, big[:50]); len(q) != 50 {
		t.Errorf("qq: got %d points, want 50", len(q))
	}
	if one := ecdf([]float64{4}); len(one) != 1 || one[0] != [2]float64{4, 1} {
		t.Errorf("single value: got %v", one)
	}
}
