package validate

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Compare fills one metric from samples in ms. Real and sim have one value per compared request in order
// of arrival; paired says that real[i] and sim[i] are the same request. It returns nil when either side is
// empty.
func Compare(real, sim []float64, paired bool) *result.Metric {
	if len(real) == 0 || len(sim) == 0 {
		return nil
	}
	k := stat.KolmogorovSmirnov(real, sim)
	m := &result.Metric{
		KSD:           k.D,
		PAsymptotic:   k.PAsymptotic,
		PExact:        result.OrNull(k.PExact),
		NReal:         k.N,
		NSim:          k.M,
		DAtQuantile:   k.AShare,
		DAtMs:         k.At,
		DRealCDF:      k.AShare,
		DSimCDF:       k.BShare,
		WassersteinMs: stat.Wasserstein(real, sim),
		RealVsRealD:   distanceOfHalves(real),
		RealMs:        sampleStats(real),
		SimMs:         sampleStats(sim),
	}
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = result.OrNull(medianPairedError(real, sim))
	}
	return m
}

// medianPairedError is the median of |sim-real|/real over the pairs with a positive real value; NaN when
// there is none.
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

// distanceOfHalves is the Kolmogorov-Smirnov distance between the first and the second half of the real
// requests: how much the machine itself differs between two measurements. Nil for fewer than four.
func distanceOfHalves(real []float64) *float64 {
	if len(real) < 4 {
		return nil
	}
	half := len(real) / 2
	d := stat.KolmogorovSmirnov(real[:half], real[half:]).D
	return &d
}

// sampleStats describes a non-empty sample.
func sampleStats(s []float64) result.SampleStats {
	sorted := stat.Sorted(s)
	return result.SampleStats{
		P50:  stat.Quantile(sorted, 0.5),
		P90:  stat.Quantile(sorted, 0.9),
		P99:  stat.Quantile(sorted, 0.99),
		Mean: stat.Mean(s),
	}
}

// Sizes of curves: they bound the report whatever the number of requests.
const (
	maxECDFPoints = 120
	maxQQPoints   = 60
	curveDigits   = 5 // significant digits of a number that is only drawn
)

// ecdf is the empirical distribution of a non-empty sample as at most maxECDFPoints points [value, share
// at or below], the first and the last included.
func ecdf(sample []float64) [][2]float64 {
	sorted := stat.Sorted(sample)
	n := len(sorted)
	points := min(n, maxECDFPoints)
	out := make([][2]float64, 0, points)
	for i := range points {
		at := n - 1
		if points > 1 {
			at = i * (n - 1) / (points - 1)
		}
		share := float64(at+1) / float64(n)
		out = append(out, [2]float64{stat.Round(sorted[at], curveDigits), stat.Round(share, curveDigits)})
	}
	return out
}

// quantilePairs are [quantile of a, quantile of b] at equal probabilities.
func quantilePairs(a, b []float64) [][2]float64 {
	a, b = stat.Sorted(a), stat.Sorted(b)
	points := min(len(a), len(b), maxQQPoints)
	out := make([][2]float64, 0, points)
	for i := range points {
		p := (float64(i) + 0.5) / float64(points)
		out = append(out, [2]float64{
			stat.Round(stat.Quantile(a, p), curveDigits),
			stat.Round(stat.Quantile(b, p), curveDigits),
		})
	}
	return out
}
