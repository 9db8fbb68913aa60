package autoscale

// This file approximates the time of an engine step by a line with three non-negative coefficients,
// for consumers that cannot use a physics model.

import (
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// exactDigits returns v in the fewest digits from which the same number is read back.
func exactDigits(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// poorLine is the largest relative error on the grid without a warning.
const poorLine = 0.10

// batchSizes returns 1, 2, 4 and so on up to the largest, and the largest.
func batchSizes(largest int64) []int64 {
	var out []int64
	for b := int64(1); b < largest; b *= 2 {
		out = append(out, b)
	}
	return append(out, largest)
}

// decodeBatch returns a batch of n decodes in the middle of their output.
func decodeBatch(n int64, l export.Lengths) []trace.Chunk {
	c := trace.Chunk{
		Computed: trace.Int(float64(l.Prompt) + l.Output/2),
		Prompt:   trace.Int(l.Prompt),
		New:      1,
	}
	return slices.Repeat([]trace.Chunk{c}, int(n))
}

// line is a non-negative linear model of a step time, and how well it agrees with the grid of
// batches to which it was fitted.
type line struct {
	coef            []float64 // alpha, beta and gamma, see iterationLine
	maxErr, meanErr float64   // relative, absolute values
	points          int       // of the grid
	least           int64     // smallest batch size, requests, to which it was fitted
	above           float64   // largest relative overestimate for smaller batches
}

// fitLine returns the coefficients c >= 0 that minimise the sum of squared relative errors of x'c
// against y. There are at most three columns, so every set of positive coefficients is tried, which
// is exact.
func fitLine(x [][]float64, y []float64) line {
	columns := len(x[0])
	gram := make([]float64, columns*columns)
	right := make([]float64, columns)
	for i := range x {
		for r := range columns {
			relative := x[i][r] / y[i]
			right[r] += relative
			for c := range columns {
				gram[r*columns+c] += relative * x[i][c] / y[i]
			}
		}
	}
	// The least squares of each set of columns, by the normal equations; sets with a negative
	// coefficient are out.
	best := make([]float64, columns)
	bestSSE := math.Inf(1)
	for set := 1; set < 1<<columns; set++ { // bit j: column j is in the set
		var cols []int
		for j := range columns {
			if set&(1<<j) != 0 {
				cols = append(cols, j)
			}
		}
		size := len(cols)
		matrix := make([]float64, size*size)
		scaled := make([]float64, size)
		coefs := make([]float64, columns)
		var scale []float64 // of the columns, so that their pivots can be compared
		for _, j := range cols {
			scale = append(scale, math.Sqrt(gram[j*columns+j]))
		}
		for r, jr := range cols {
			scaled[r] = right[jr] / scale[r]
			for q, jq := range cols {
				matrix[r*size+q] = gram[jr*columns+jq] / (scale[r] * scale[q])
			}
		}
		if slices.Min(scale) == 0 || stat.Cholesky(matrix, size) < size {
			continue
		}
		stat.CholeskySolve(matrix, size, scaled)
		if slices.Min(scaled) < 0 {
			continue
		}
		for r, j := range cols {
			coefs[j] = scaled[r] / scale[r]
		}
		var sse float64
		for i := range x {
			r := 1 - ridge.Dot(x[i], coefs)/y[i]
			sse += r * r
		}
		if sse < bestSSE {
			best, bestSSE = coefs, sse
		}
	}
	l := line{coef: best, points: len(y)}
	for _, e := range l.errors(x, y) {
		l.maxErr = math.Max(l.maxErr, math.Abs(e))
		l.meanErr += math.Abs(e) / float64(len(y))
	}
	return l
}

// errors returns the relative error of each point, with its sign.
func (l *line) errors(x [][]float64, y []float64) []float64 {
	out := make([]float64, len(y))
	for i := range x {
		out[i] = ridge.Dot(x[i], l.coef)/y[i] - 1
	}
	return out
}

// iterationDepths are the context depths of the grid of [iterationLine], as multiples of the mean.
var iterationDepths = []float64{0.25, 1, 2}

// iterationLine fits ms = alpha + beta*computed tokens + gamma*KV tokens read to the step times
// that t predicts, over batches of decodes at three context depths, alone and with prompt chunks of
// three sizes. A consumer that only sizes engines (isSized) always fills them. For it the line is
// fitted to as many of the larger batch sizes as possible, at least those from half of the largest
// on, such that its error there is at most poorLine and it does not underestimate smaller batches.
// If no such line exists, and for other consumers, it is fitted to all batches.
func iterationLine(t export.StepTimer, l export.Lengths, largest, budget int64, isSized bool) (line, error) {
	var x [][]float64
	var y []float64
	prompt := max(1, trace.Int(l.Prompt))
	sizes := batchSizes(largest)
	for _, b := range sizes {
		for _, depth := range iterationDepths {
			deep := export.Lengths{Prompt: l.Prompt * depth, Output: l.Output * depth}
			for _, chunk := range []int64{0, min(prompt, 64), min(prompt, 512), prompt} {
				batch := decodeBatch(b, deep)
				chunk = min(chunk, budget-b) // each decode takes one token of the budget
				if chunk > 0 {
					batch = append(batch, trace.Chunk{Prompt: chunk, New: chunk})
				}
				us, err := t.StepUs(batch)
				if err != nil {
					return line{}, err
				}
				var computed, read float64
				for _, c := range batch {
					computed += float64(c.New)
					read += float64(c.Computed + c.New)
				}
				x = append(x, []float64{1, computed, read})
				y = append(y, us/1000)
			}
		}
	}
	whole := fitLine(x, y)
	whole.least = 1
	if !isSized {
		return whole, nil
	}
	// Use the line of the largest range of batch sizes (b and up) that it fits, and below which it
	// is never too low.
	for i, b := range sizes[:len(sizes)-1] {
		k := i * len(y) / len(sizes) // first point of size b: every size has as many points
		upper := fitLine(x[k:], y[k:])
		if upper.maxErr > poorLine {
			continue
		}
		rest := append(upper.errors(x[:k], y[:k]), 0) // 0: for the first size there is no rest
		if slices.Min(rest) >= -poorLine {
			upper.least = b
			upper.above = slices.Max(rest)
			return upper, nil
		}
	}
	return whole, nil
}
