package ridge

// This file has the intervals of mean predictions over sets of rows.

import "math"

// MeanIntervals returns, for each set of rows, the interval of the mean prediction over them (the mean
// of x.beta). The columns are changed so that this mean is the coefficient of one of them, the pivot;
// then it has an interval as every coefficient has (Data.Confidence).
func (d *Data) MeanIntervals(fit Fit, sets [][]int32, o Options) []Interval {
	blocks := rowBlocks(d, predictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(d.P)
	for _, b := range blocks {
		total.Add(b.Gram)
	}
	scale, _ := total.Scale()
	out := make([]Interval, len(sets))
	for k, rows := range sets {
		out[k] = noInterval()
		mean := d.meanRow(rows)
		pivot := pivotOf(mean, scale)
		if pivot < 0 {
			continue
		}
		moved := make([]BlockGram, len(blocks))
		for i, b := range blocks {
			moved[i] = BlockGram{Config: b.Config, Run: b.Run, Gram: b.Gram.withMean(mean, pivot)}
		}
		b := newBootstrap(moved)
		if b == nil {
			continue
		}
		known, err := b.solveAll()
		if err != nil || !known[pivot] {
			continue
		}
		cov := make([]float64, d.P*d.P)
		b.covariance(cov)
		out[k].set(FromBlocks, b.beta(pivot), math.Sqrt(cov[pivot*d.P+pivot]), b.quantiles(o)[pivot])
	}
	return out
}

// meanRow returns the mean features of some rows.
func (d *Data) meanRow(rows []int32) []float64 {
	mean := make([]float64, d.P)
	for _, i := range rows {
		for j, x := range d.Row(int(i)) {
			mean[j] += x / float64(len(rows))
		}
	}
	return mean
}

// pivotOf returns the column whose mean is largest relative to its scale; -1 if all means are 0.
// Dividing by the mean of this column loses the fewest digits.
func pivotOf(mean, scale []float64) int {
	pivot := -1
	largest := 0.0
	for j, m := range mean {
		if share := math.Abs(m) / scale[j]; scale[j] > 0 && share > largest {
			pivot = j
			largest = share
		}
	}
	return pivot
}

// withMean returns the Gram matrix of the same rows in other columns: column k, the pivot, is
// x_k/mean_k and has the coefficient mean.beta, the others are x_j - x_k*mean_j/mean_k and keep
// theirs.
func (g *Gram) withMean(mean []float64, pivot int) *Gram {
	p := g.P
	out := New(p)
	*out = Gram{P: p, G: out.G, B: out.B, W: g.W, Q: g.Q, N: g.N}
	// G becomes T'GT for the change of columns T: half is GT, the loop below multiplies by T'.
	half := make([]float64, p*p)
	share := func(j int) float64 { return mean[j] / mean[pivot] }
	for i := range p {
		for j := range p {
			if j == pivot {
				half[i*p+j] = g.G[i*p+j] / mean[pivot]
			} else {
				half[i*p+j] = g.G[i*p+j] - share(j)*g.G[i*p+pivot]
			}
		}
	}
	for i := range p {
		for j := range p {
			if i == pivot {
				out.G[i*p+j] = half[i*p+j] / mean[pivot]
			} else {
				out.G[i*p+j] = half[i*p+j] - share(i)*half[pivot*p+j]
			}
		}
		if i == pivot {
			out.B[i] = g.B[i] / mean[pivot]
		} else {
			out.B[i] = g.B[i] - share(i)*g.B[pivot]
		}
	}
	return out
}
