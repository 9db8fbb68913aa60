package validate

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// Compare fills one metric from samples in ms. Real and sim hold one value per
// compared request in order of arrival; paired tells that real[i] and sim[i] are
// the same request. It returns nil when either side is empty.
func Compare(real, sim []float64, paired bool) *result.Metric {
	if len(real) == 0 || len(sim) == 0 {
		return nil
	}
	k := KolmogorovSmirnov(real, sim)
	m := &result.Metric{
		KSD: k.D, PAsymptotic: k.PAsymptotic, PExact: finite(k.PExact),
		NReal: k.N, NSim: k.M, NEffective: effectivePair(real, sim),
		DAtQuantile: k.AShare, DAtMs: k.At, DRealCDF: k.AShare, DSimCDF: k.BShare,
		WassersteinMs: Wasserstein(real, sim),
		RealVsRealD:   halvesD(real),
		RealMs:        Stats(real), SimMs: Stats(sim),
	}
	m.PEffective = KolmogorovSurvival(math.Sqrt(m.NEffective) * k.D)
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = finite(MedianPairedError(real, sim))
	}
	return m
}

// MedianPairedError is the median of |sim-real|/real over the pairs with a
// positive real value; NaN when there is none.
func MedianPairedError(real, sim []float64) float64 {
	var e []float64
	for i, r := range real {
		if r > 0 {
			e = append(e, math.Abs(sim[i]-r)/r)
		}
	}
	if len(e) == 0 {
		return math.NaN()
	}
	return Median(e)
}

// halvesD is D between the first and the second half of the real requests: what
// the machine itself does between two measurements.
func halvesD(real []float64) *float64 {
	if len(real) < 4 {
		return nil
	}
	h := len(real) / 2
	d := KolmogorovSmirnov(real[:h], real[h:]).D
	return &d
}

func effectivePair(a, b []float64) float64 {
	n, m := EffectiveSize(a), EffectiveSize(b)
	return n * m / (n + m)
}

// finite is a pointer to v, or nil when v is no number.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// orderOf sorts positions by value, then position.
func orderOf(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	return order
}
