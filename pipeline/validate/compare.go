package validate

// This file compares one metric of a replay, such as TTFT, with the recording: distances between the
// two distributions, their quantiles, and the errors of single requests.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Compare fills one metric from samples in ms. Real and sim have one value per compared request in order
// of arrival; paired is set if real[i] and sim[i] are the same request. It returns nil when either
// side is empty.
func Compare(real, sim []float64, paired bool) *result.Metric {
	if len(real) == 0 || len(sim) == 0 {
		return nil
	}
	sortedReal, sortedSim := stat.Sorted(real), stat.Sorted(sim)
	k := stat.KolmogorovSmirnov(sortedReal, sortedSim) // AShare and BShare: real and sim below the largest distance
	m := &result.Metric{
		KSD:           k.D,
		PAsymptotic:   k.PAsymptotic,
		PExact:        result.OrNull(k.PExact()),
		NReal:         k.N,
		NSim:          k.M,
		DAtQuantile:   k.AShare,
		DAtMs:         k.At,
		DRealCDF:      k.AShare,
		DSimCDF:       k.BShare,
		WassersteinMs: stat.Wasserstein(sortedReal, sortedSim),
		RealVsRealD:   distanceOfHalves(real),
		RealMs:        sampleStats(real, sortedReal),
		SimMs:         sampleStats(sim, sortedSim),
	}
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = result.OrNull(medianPairedError(real, sim))
		m.PairedErr = pairedError(real, sim)
	} else { // a replay with noise; for plain ones compareShapes sets it
		beyond := stat.DistanceBeyond(sortedReal, sortedSim, shapeTolerance)
		m.BeyondD = &beyond
	}
	return m
}

// medianPairedError returns the median of |sim-real|/real over the pairs with a positive real
// value; NaN when there is none.
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

// pairedTrim is the share of the smallest and of the largest errors that a paired error excludes:
// single requests that queued on one side alone.
const pairedTrim = 0.1

// pairedError returns how far off the simulated times of the same requests are: the mean of log(sim/real) without its
// tails (spec#paired-error); nil without pairs. The requests are in order of arrival.
func pairedError(real, sim []float64) *result.Estimate {
	var logs []float64
	for i, r := range real {
		if r > 0 && sim[i] > 0 {
			logs = append(logs, math.Log(sim[i]/r))
		}
	}
	mean, lo, hi := stat.TrimmedMean(logs, pairedTrim)
	return result.NewEstimate(math.Expm1(mean), math.Expm1(lo), math.Expm1(hi))
}

// shapeTolerance is how far off times may be before their distributions count as different
// (spec#distance-beyond).
const shapeTolerance = 0.05

// compareShapes adds to m the distance beyond the tolerance between the recorded times and those of all
// noisy replays together, and what chance alone makes of it: the largest distance of one noisy replay
// from all, as if there were chanceReplays of them.
func compareShapes(m *result.Metric, real []float64, noisy [][]float64) {
	pool := stat.Sorted(slices.Concat(noisy...))
	if len(pool) == 0 || len(real) == 0 {
		return
	}
	beyond := stat.DistanceBeyond(stat.Sorted(real), pool, shapeTolerance)
	chance, plain := stat.LargestBeyond(noisy, pool, shapeTolerance)
	chance = min(1, chance*chanceFactor(len(noisy)))
	plain = min(1, plain*chanceFactor(len(noisy)))
	m.BeyondD = &beyond
	m.ChanceBeyondD = &chance
	m.ChanceKSD = &plain
}

// distanceOfHalves returns the Kolmogorov-Smirnov distance between the first and the second half of
// the real requests: how much the machine itself differs between two measurements. Nil for fewer
// than four.
func distanceOfHalves(real []float64) *float64 {
	if len(real) < 4 {
		return nil
	}
	half := len(real) / 2 // real is in order of arrival
	d := stat.KolmogorovSmirnov(real[:half], real[half:]).D
	return &d
}

// sampleStats returns quantiles and mean of a sample that is not empty, given in its order and sorted.
func sampleStats(s, sorted []float64) result.SampleStats {
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

// ecdf returns the empirical distribution of a non-empty sample as at most maxECDFPoints points
// [value, share at or below], the first and the last included.
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

// quantilePairs returns the points [quantile of a, quantile of b] at equal probabilities, of a Q-Q plot.
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
