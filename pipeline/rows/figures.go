package rows

// This file aggregates predicted and measured step times into the figures of the report, of a size
// that does not depend on the number of rows.

import (
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Sizes of the figures: they bound a report whatever the number of rows.
const (
	binsPerDecade = 12
	maxBands      = 20
	minBandRows   = 5
	figureDigits  = 5
)

// Figures returns aggregates of the validated rows for the report: predicted against measured time,
// residuals against batch, context and time, and the part of each term in a mean step.
func (s *StepErrors) Figures(terms []string) *result.FitFigures {
	f := &result.FitFigures{PredVsMeasured: []result.Bin2D{}, Residuals: []result.ResidualBand{}, Contributions: []result.Contribution{}}
	f.PredVsMeasured = append(f.PredVsMeasured, s.countBins()...)
	for _, axis := range []struct {
		name string
		of   func(t *Table, i int32) float64
	}{
		{"batch", func(t *Table, i int32) float64 { return t.Batch[i] }},
		{"context", func(t *Table, i int32) float64 { return t.Context[i] }},
		{"time", func(t *Table, i int32) float64 { return float64(t.TimeNs[i]-t.TimeNs[0]) / 1e9 }},
	} {
		for r := Decode; r <= Mixed; r++ {
			f.Residuals = append(f.Residuals, s.residualBands(axis.name, r, axis.of)...)
		}
	}
	for r := Decode; r <= Mixed; r++ {
		f.Contributions = append(f.Contributions, s.contributions(r, terms)...)
	}
	return f
}

// eachOfRegime visits the judged rows of one regime; k is the index of the row in s.rows.
func (s *StepErrors) eachOfRegime(r Regime, visit func(sample *Sample, k int, row int32)) {
	for k, ref := range s.refs {
		if sample := s.samples[ref.sample]; sample.Table.Regime[ref.row] == r {
			visit(sample, k, ref.row)
		}
	}
}

// countBins returns the numbers of rows by regime in a grid of measured and predicted time per
// step, both logarithmic.
func (s *StepErrors) countBins() []result.Bin2D {
	var out []result.Bin2D
	bin := func(us float64) int { return int(math.Floor(math.Log10(us) * binsPerDecade)) }
	centre := func(bin int) float64 { return math.Pow(10, (float64(bin)+0.5)/binsPerDecade) }
	for r := Decode; r <= Mixed; r++ {
		count := map[[2]int]int{}
		s.eachOfRegime(r, func(sample *Sample, k int, row int32) {
			y := s.rows.Y[k] / sample.Table.Steps[row]
			p := s.rows.Pred[k] / sample.Table.Steps[row]
			if y > 0 && p > 0 {
				count[[2]int{bin(y), bin(p)}]++
			}
		})
		bins := slices.Collect(maps.Keys(count))
		stat.SortStable(bins, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		for _, k := range bins {
			out = append(out, result.Bin2D{Regime: r.String(), X: centre(k[0]), Y: centre(k[1]), N: count[k]})
		}
	}
	return out
}

// residualBands returns quantiles of the relative error (prediction - y)/y along one quantity,
// which of returns for a row.
func (s *StepErrors) residualBands(against string, r Regime, of func(t *Table, i int32) float64) []result.ResidualBand {
	var x, residual []float64
	s.eachOfRegime(r, func(sample *Sample, k int, row int32) {
		if y := s.rows.Y[k]; y > 0 {
			x = append(x, of(sample.Table, row))
			residual = append(residual, (s.rows.Pred[k]-y)/y)
		}
	})
	short := func(v float64) float64 { return stat.Round(v, figureDigits) }
	var out []result.ResidualBand
	for _, b := range stat.Bands(x, residual, maxBands, minBandRows) {
		out = append(out, result.ResidualBand{
			Against: against, Regime: r.String(), X: short(b.X), P10: short(b.P10), P50: short(b.P50), P90: short(b.P90), N: b.N,
		})
	}
	return out
}

// contributions returns the mean time in us per engine step that each term predicts, without terms
// that are 0.
func (s *StepErrors) contributions(r Regime, terms []string) []result.Contribution {
	sum := make([]float64, len(terms))
	var steps float64
	s.eachOfRegime(r, func(sample *Sample, _ int, row int32) {
		steps += sample.Table.Steps[row]
		for j, x := range sample.Table.Row(int(row)) {
			sum[j] += x * sample.Beta[j]
		}
	})
	var out []result.Contribution
	for j, v := range sum {
		if v != 0 {
			out = append(out, result.Contribution{Regime: r.String(), Name: terms[j], MeanUs: v / steps})
		}
	}
	return out
}
