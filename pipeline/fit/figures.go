package fit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// Sizes of the aggregates: the report stays small whatever the number of rows.
const (
	binsPerDecade = 12
	residualBins  = 24
	minBinRows    = 5
)

// figures aggregates a solved step-time model for the report.
func figures(s *solved) *result.FitFigures {
	return &result.FitFigures{PredVsMeasured: predVsMeasured(s), Residuals: residuals(s), Contributions: contributions(s)}
}

// predVsMeasured bins hold-out rows, us per engine step, on a log-log grid.
func predVsMeasured(s *solved) []result.Bin2D {
	type key struct {
		regime int32
		x, y   int
	}
	counts := map[key]int{}
	for _, i := range s.pool.hold {
		steps := s.data.Steps[i]
		y, p := s.data.Y[i]/steps, s.pred[i]/steps
		if y > 0 && p > 0 {
			counts[key{s.data.Regime[i], logBin(y), logBin(p)}]++
		}
	}
	keys := make([]key, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.regime != b.regime {
			return int(a.regime - b.regime)
		}
		if a.x != b.x {
			return a.x - b.x
		}
		return a.y - b.y
	})
	out := []result.Bin2D{}
	for _, k := range keys {
		out = append(out, result.Bin2D{Regime: rows.Regime(k.regime).String(), X: binCentre(k.x), Y: binCentre(k.y), N: counts[k]})
	}
	return out
}

func logBin(v float64) int          { return int(math.Floor(math.Log10(v) * binsPerDecade)) }
func binCentre(b int) float64       { return math.Pow(10, (float64(b)+0.5)/binsPerDecade) }
func relative(y, p float64) float64 { return (p - y) / y }

// residuals are quantile bands of (prediction - y)/y over the hold-out against
// batch, context and time.
func residuals(s *solved) []result.ResidualBand {
	out := []result.ResidualBand{}
	for _, q := range []struct {
		name string
		of   func(t *rows.Table, r int32) float64
	}{
		{"batch", func(t *rows.Table, r int32) float64 { return t.Batch[r] }},
		{"context", func(t *rows.Table, r int32) float64 { return t.Context[r] }},
		{"time", func(t *rows.Table, r int32) float64 { return float64(t.TimeNs[r]-t.TimeNs[0]) / 1e9 }},
	} {
		for regime := rows.Decode; regime <= rows.Mixed; regime++ {
			out = append(out, bands(s, q.name, regime, q.of)...)
		}
	}
	return out
}

func bands(s *solved, name string, regime rows.Regime, of func(*rows.Table, int32) float64) []result.ResidualBand {
	type point struct{ x, r float64 }
	var pts []point
	for _, i := range s.pool.hold {
		t, r := s.pool.tables[s.pool.table[i]], s.pool.row[i]
		if t.Regime[r] == regime && s.data.Y[i] > 0 {
			pts = append(pts, point{of(t, r), relative(s.data.Y[i], s.pred[i])})
		}
	}
	slices.SortStableFunc(pts, func(a, b point) int {
		switch {
		case a.x < b.x:
			return -1
		case a.x > b.x:
			return 1
		}
		return 0
	})
	bins := min(residualBins, len(pts)/minBinRows)
	var out []result.ResidualBand
	for b := range bins {
		part := pts[b*len(pts)/bins : (b+1)*len(pts)/bins]
		var r []float64
		var x float64
		for _, p := range part {
			r = append(r, p.r)
			x += p.x / float64(len(part))
		}
		slices.Sort(r)
		out = append(out, result.ResidualBand{Against: name, Regime: regime.String(), X: x,
			P10: stat.Quantile(r, 0.1), P50: stat.Quantile(r, 0.5), P90: stat.Quantile(r, 0.9), N: len(r)})
	}
	return out
}

// contributions are the mean us per engine step of each term by regime, over
// all rows.
func contributions(s *solved) []result.Contribution {
	out := []result.Contribution{}
	for regime := rows.Decode; regime <= rows.Mixed; regime++ {
		sum := make([]float64, len(s.terms))
		var steps float64
		for i := range s.data.Len() {
			if rows.Regime(s.data.Regime[i]) != regime {
				continue
			}
			steps += s.data.Steps[i]
			for j, x := range s.data.Row(i) {
				sum[j] += x * s.fit.Beta[j] * s.termFactor(i, j)
			}
		}
		for j, v := range sum {
			if steps > 0 && v != 0 {
				out = append(out, result.Contribution{Regime: regime.String(), Name: s.terms[j].name, MeanUs: v / steps})
			}
		}
	}
	return out
}
