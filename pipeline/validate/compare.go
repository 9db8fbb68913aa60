package validate

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
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
		NReal: k.N, NSim: k.M,
		DAtQuantile: k.AShare, DAtMs: k.At, DRealCDF: k.AShare, DSimCDF: k.BShare,
		WassersteinMs: stat.Wasserstein(real, sim),
		RealVsRealD:   halvesD(real),
		RealMs:        statsOf(real), SimMs: statsOf(sim),
	}
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = result.OrNull(medianPairedError(real, sim))
	}
	return m
}

// medianPairedError is the median of |sim-real|/real over the pairs with a
// positive real value; NaN when there is none.
func medianPairedError(real, sim []float64) float64 {
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
	return new(stat.KolmogorovSmirnov(real[:h], real[h:]).D)
}

// statsOf describes a non-empty sample.
func statsOf(s []float64) result.SampleStats {
	o := stat.Sorted(s)
	return result.SampleStats{
		P50: stat.Quantile(o, 0.5), P90: stat.Quantile(o, 0.9), P99: stat.Quantile(o, 0.99),
		Mean: stat.Mean(s),
	}
}

// Sizes of aggregated figures: they bound the report whatever the number of rows.
const (
	maxECDFPoints = 120
	maxQQPoints   = 60
	figureDigits  = 5
)

// ecdf is the empirical distribution of a non-empty sample as at most
// maxECDFPoints points [value, share at or below], first and last included.
func ecdf(sample []float64) [][2]float64 {
	o := stat.Sorted(sample)
	n := len(o)
	k := min(n, maxECDFPoints)
	out := make([][2]float64, 0, k)
	for i := 0; i < k; i++ {
		at := n - 1
		if k > 1 {
			at = i * (n - 1) / (k - 1)
		}
		out = append(out, [2]float64{short(o[at]), short(float64(at+1) / float64(n))})
	}
	return out
}

// short rounds a number that is only drawn.
func short(v float64) float64 { return stat.Round(v, figureDigits) }

// quantilePairs are [quantile of a, quantile of b] at equal probabilities.
func quantilePairs(a, b []float64) [][2]float64 {
	a, b = stat.Sorted(a), stat.Sorted(b)
	k := min(len(a), len(b), maxQQPoints)
	out := make([][2]float64, 0, k)
	for i := 0; i < k; i++ {
		p := (float64(i) + 0.5) / float64(k)
		out = append(out, [2]float64{short(stat.Quantile(a, p)), short(stat.Quantile(b, p))})
	}
	return out
}
