package validate

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// Sizes of aggregated figures: they bound the report whatever the number of rows.
const (
	maxECDFPoints = 120
	maxQQPoints   = 60
	binsPerDecade = 12
	maxBands      = 20
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
		out = append(out, [2]float64{figure(o[at]), figure(float64(at+1) / float64(n))})
	}
	return out
}

// figure rounds a number that is only drawn to five significant digits.
func figure(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// quantilePairs are [quantile of a, quantile of b] at equal probabilities.
func quantilePairs(a, b []float64) [][2]float64 {
	a, b = stat.Sorted(a), stat.Sorted(b)
	k := min(len(a), len(b), maxQQPoints)
	out := make([][2]float64, 0, k)
	for i := 0; i < k; i++ {
		p := (float64(i) + 0.5) / float64(k)
		out = append(out, [2]float64{figure(stat.Quantile(a, p)), figure(stat.Quantile(b, p))})
	}
	return out
}

// binner counts (measured, predicted) in log-log cells by regime.
type binner map[binKey]int

type binKey struct {
	regime string
	x, y   int
}

func (b binner) add(regime string, measured, predicted float64) {
	if measured <= 0 || predicted <= 0 {
		return
	}
	b[binKey{regime, logBin(measured), logBin(predicted)}]++
}

func logBin(v float64) int { return int(math.Floor(math.Log10(v) * binsPerDecade)) }

func binCentre(i int) float64 { return math.Pow(10, (float64(i)+0.5)/binsPerDecade) }

// bins lists the cells by regime, measured, predicted.
func (b binner) bins() []result.Bin2D {
	keys := make([]binKey, 0, len(b))
	for k := range b {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(p, q binKey) int {
		if c := strings.Compare(p.regime, q.regime); c != 0 {
			return c
		}
		if p.x != q.x {
			return p.x - q.x
		}
		return p.y - q.y
	})
	out := make([]result.Bin2D, 0, len(keys))
	for _, k := range keys {
		out = append(out, result.Bin2D{Regime: k.regime, X: binCentre(k.x), Y: binCentre(k.y), N: b[k]})
	}
	return out
}

// bands are the 10, 50 and 90 % quantiles of err in at most maxBands groups of
// equal size along x.
func bands(against, regime string, x, err []float64) []result.ResidualBand {
	order := stat.Order(x)
	groups := min(maxBands, len(order)/5)
	var out []result.ResidualBand
	for g := 0; g < groups; g++ {
		part := order[g*len(order)/groups : (g+1)*len(order)/groups]
		xs, es := pick(x, part), stat.Sorted(pick(err, part))
		out = append(out, result.ResidualBand{
			Against: against, Regime: regime, X: figure(stat.Mean(xs)), N: len(part),
			P10: figure(stat.Quantile(es, 0.1)), P50: figure(stat.Quantile(es, 0.5)), P90: figure(stat.Quantile(es, 0.9)),
		})
	}
	return out
}

func pick(x []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for i, k := range at {
		out[i] = x[k]
	}
	return out
}
