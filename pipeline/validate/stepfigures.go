package validate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// stepFigures aggregate the tested rows of every scope: predicted against
// measured, residuals against batch, context and time, and what each term
// contributes per regime.
func stepFigures(groups []*scope, set *coeff.Set) *result.FitFigures {
	f := &result.FitFigures{PredVsMeasured: []result.Bin2D{}, Residuals: []result.ResidualBand{}, Contributions: []result.Contribution{}}
	bins := binner{}
	type column struct{ batch, context, time, err []float64 }
	var by [rows.Mixed + 1]column
	var steps [rows.Mixed + 1]float64
	sums := make([][]float64, rows.Mixed+1)
	for r := range sums {
		sums[r] = make([]float64, len(set.Beta))
	}
	for _, s := range groups {
		s.eachTested(func(t *taught, i int) {
			b := t.beta
			r, n := b.Regime[i], b.Steps[i]
			bins.add(r.String(), b.Y[i]/n, t.pred[i]/n)
			c := &by[r]
			c.batch, c.context = append(c.batch, b.Batch[i]), append(c.context, b.Context[i])
			c.time = append(c.time, float64(b.TimeNs[i]-t.drift.OriginNs)/nsPerS)
			c.err = append(c.err, (t.pred[i]-b.Y[i])/b.Y[i])
			steps[r] += n
			for k, x := range b.Row(i) {
				sums[r][k] += x * t.set.Beta[k].Value
			}
		})
	}
	f.PredVsMeasured = append(f.PredVsMeasured, bins.bins()...)
	for r := rows.Decode; r <= rows.Mixed; r++ {
		c := &by[r]
		f.Residuals = append(f.Residuals, bands("batch", r.String(), c.batch, c.err)...)
		f.Residuals = append(f.Residuals, bands("context", r.String(), c.context, c.err)...)
		f.Residuals = append(f.Residuals, bands("time", r.String(), c.time, c.err)...)
		for k := range set.Beta {
			if steps[r] > 0 {
				f.Contributions = append(f.Contributions, result.Contribution{Regime: r.String(), Name: set.Beta[k].Name, MeanUs: sums[r][k] / steps[r]})
			}
		}
	}
	return f
}
