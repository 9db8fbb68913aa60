package validate

import (
	"math"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// Compare fills one metric from samples in ms. Real and sim hold one value per
// compared request in order of arrival; paired tells that real[i] and sim[i] are
// the same request. It returns nil when either side is empty.
func Compare(real, sim []float64, paired bool) *result.Metric {
	if len(real) == 0 || len(sim) == 0 {
		return nil
	}
	k := stat.KolmogorovSmirnov(real, sim)
	m := &result.Metric{
		KSD: k.D, PAsymptotic: k.PAsymptotic, PExact: result.OrNull(k.PExact),
		NReal: k.N, NSim: k.M, NEffective: effectivePair(real, sim),
		DAtQuantile: k.AShare, DAtMs: k.At, DRealCDF: k.AShare, DSimCDF: k.BShare,
		WassersteinMs: stat.Wasserstein(real, sim),
		RealVsRealD:   halvesD(real),
		RealMs:        Stats(real), SimMs: Stats(sim),
	}
	m.PEffective = stat.KolmogorovSurvival(math.Sqrt(m.NEffective) * k.D)
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = result.OrNull(MedianPairedError(real, sim))
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
	return stat.Median(e)
}

// halvesD is D between the first and the second half of the real requests: what
// the machine itself does between two measurements.
func halvesD(real []float64) *float64 {
	if len(real) < 4 {
		return nil
	}
	h := len(real) / 2
	d := stat.KolmogorovSmirnov(real[:h], real[h:]).D
	return &d
}

func effectivePair(a, b []float64) float64 {
	n, m := stat.EffectiveSize(a), stat.EffectiveSize(b)
	return n * m / (n + m)
}
