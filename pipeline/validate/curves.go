package validate

import "github.com/blis-train/blis-train/internal/stat"

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
