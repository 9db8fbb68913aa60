package logged

// This file finds to which pass a logged time belongs: its own, or an earlier one.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// elapsedLag returns how many lines before its own is the line whose batch an elapsed time belongs
// to: 0, 1 or 2 (an asynchronous engine logs a step while a later one is scheduled). For each it
// fits elapsed to the counts of the batch by relative least squares on half of the blocks of 50
// passes, and compares the errors on the other half, for passes near prefills of more than 64
// tokens. It is conclusive if the smallest error is clearly below the second.
func (f *filler) elapsedLag(out *trace.TimeAudit) (lag int, conclusive bool) {
	var rows []int // passes that follow without a gap, so that each lag names a batch
	near := 0      // of these, passes with a prefill in one of the batches
	for i := reconstruct.Lags; i < len(f.passes); i++ {
		isChained := true
		most := int64(0) // prefill tokens of one of the batches
		for k := range reconstruct.Lags {
			p := &f.passes[i-k]
			isInBudget := p.prefillTokens <= f.dep.Engine.MaxNumBatchedTokens
			isChained = isChained && isInBudget && p.follows && !p.recompute && !p.it.Dummy && !p.hasEncoder()
			most = max(most, p.prefillTokens)
		}
		if isChained {
			rows = append(rows, i)
			if most > prefillNear {
				near++
			}
		}
	}
	if near < reconstruct.LagRows || len(rows) < 4*reconstruct.LagRows {
		return 0, false
	}
	rows = stat.Thin(rows, 20000) // enough for five coefficients
	y := make([]float64, len(rows))
	for k, i := range rows {
		y[k] = f.passes[i].it.ElapsedUs
	}
	// The error of each lag. Times below a tenth of the median do not get a larger weight.
	least := 0.1 * stat.Median(y)
	errs := make([]float64, reconstruct.Lags)
	for k := range errs {
		errs[k] = f.lagError(rows, y, k, least)
	}
	out.LagErrors = errs
	order := stat.Order(errs)
	lag = order[0]
	return lag, errs[lag] <= reconstruct.LagMargin*errs[order[1]]
}

// lagError returns the mean relative error of elapsed times (y, us, of the passes rows) that are predicted
// from the counts of the pass `lag` lines earlier, fitted on the other half of the blocks. Times below least
// count as least.
func (f *filler) lagError(rows []int, y []float64, lag int, least float64) float64 {
	sum := 0.0
	n := 0
	for half := range 2 { // the half that is fitted; blocks of 50 rows alternate
		m := ridge.New(len(f.passes[0].regressors()))
		for k, i := range rows {
			if k/50%2 == half {
				weight := 1 / math.Max(y[k], least)
				m.AddRow(weight*weight, f.passes[i-lag].regressors(), y[k])
			}
		}
		b := solveNormal(m)
		for k, i := range rows {
			most := max(f.passes[i].prefillTokens, f.passes[i-1].prefillTokens, f.passes[i-2].prefillTokens)
			if k/50%2 != half && most > prefillNear {
				sum += math.Abs(y[k]-ridge.Dot(f.passes[i-lag].regressors(), b)) / math.Max(y[k], least)
				n++
			}
		}
	}
	return sum / float64(max(1, n))
}

// regressors returns the features that predict the elapsed time of a pass in elapsedLag: a constant, prompt
// tokens (linear layers), their square (attention), and requests.
func (p *pass) regressors() []float64 {
	t := float64(p.prefillTokens)
	return []float64{1, t / 1e3, t * t / 1e6, float64(p.prefills), float64(p.decodes)} // scaled to similar sizes
}

// solveNormal returns the solution of small normal equations. A regressor that is always 0 gets the
// coefficient 0, because a little is added to the diagonal.
func solveNormal(g *ridge.Gram) []float64 {
	a := slices.Clone(g.G)
	b := slices.Clone(g.B)
	for r := range b {
		a[r*g.P+r] += 1e-9*a[r*g.P+r] + 1e-30
	}
	stat.Cholesky(a, g.P)
	stat.CholeskySolve(a, g.P, b)
	return b
}
