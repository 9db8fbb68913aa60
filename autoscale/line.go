package autoscale

import (
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// exactDigits prints a number so that reading it gives the same number.
func exactDigits(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// poorLine is the relative error on the grid above which a line is warned about.
const poorLine = 0.10

// batchSizes are 1, 2, 4, ... and the largest.
func batchSizes(largest int64) []int64 {
	var out []int64
	for b := int64(1); b < largest; b *= 2 {
		out = append(out, b)
	}
	return append(out, largest)
}

// decodeBatch is a batch of n decodes in the middle of their output.
func decodeBatch(n int64, l export.Lengths) []trace.Chunk {
	c := trace.Chunk{
		Computed: trace.Int(float64(l.Prompt) + l.Output/2),
		Prompt:   trace.Int(l.Prompt),
		New:      1,
	}
	return slices.Repeat([]trace.Chunk{c}, int(n))
}

// line is a non-negative linear model of a quantity and how well it holds on the grid it was fitted on.
type line struct {
	coef            []float64
	maxErr, meanErr float64 // relative
	points          int
	least           int64   // requests of a batch from which on it was fitted
	above           float64 // relative, at worst, with fewer requests
}

// fitLine minimises the sum of squared relative errors of y over x'c with c >=
// 0. With at most three columns every active set is tried, which is exact.
func fitLine(x [][]float64, y []float64) line {
	p := len(x[0])
	gram := make([]float64, p*p)
	sums := make([]float64, p)
	for i := range x {
		for r := range p {
			u := x[i][r] / y[i]
			sums[r] += u
			for c := range p {
				gram[r*p+c] += u * x[i][c] / y[i]
			}
		}
	}
	best := make([]float64, p)
	bestSSE := math.Inf(1)
	for set := 1; set < 1<<p; set++ {
		var cols []int
		for _, j := range []int{0, 1, 2}[:p] {
			if set&(1<<j) != 0 {
				cols = append(cols, j)
			}
		}
		k := len(cols)
		a := make([]float64, k*k)
		z := make([]float64, k)
		c := make([]float64, p)
		var scale []float64 // of the columns, so that their pivots can be compared
		for _, j := range cols {
			scale = append(scale, math.Sqrt(gram[j*p+j]))
		}
		for r, jr := range cols {
			z[r] = sums[jr] / scale[r]
			for q, jq := range cols {
				a[r*k+q] = gram[jr*p+jq] / (scale[r] * scale[q])
			}
		}
		if slices.Min(scale) == 0 || stat.Cholesky(a, k) < k {
			continue
		}
		if stat.CholeskySolve(a, k, z); slices.Min(z) < 0 {
			continue
		}
		for r, j := range cols {
			c[j] = z[r] / scale[r]
		}
		var sse float64
		for i := range x {
			r := 1 - ridge.Dot(x[i], c)/y[i]
			sse += r * r
		}
		if sse < bestSSE {
			best, bestSSE = c, sse
		}
	}
	l := line{coef: best, points: len(y)}
	for _, e := range l.errors(x, y) {
		l.maxErr = math.Max(l.maxErr, math.Abs(e))
		l.meanErr += math.Abs(e) / float64(len(y))
	}
	return l
}

// errors are relative, signed, of each point.
func (l *line) errors(x [][]float64, y []float64) []float64 {
	out := make([]float64, len(y))
	for i := range x {
		out[i] = ridge.Dot(x[i], l.coef)/y[i] - 1
	}
	return out
}

// iterationDepths are the depths of the contexts on the grid of [iterationLine], times the mean one.
var iterationDepths = []float64{0.25, 1, 2}

// iterationLine fits ms = alpha + beta*computed tokens + gamma*KV tokens read over decode batches at
// three context depths, alone and with prompt chunks of three sizes. A consumer that only sizes engines
// always fills them (isSized). For it the line is fitted to as many of the larger batches as possible, at
// least those from half of the largest on, such that it stays within poorLine of the model there and
// does not underestimate smaller batches; where no such line exists, to all batches.
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
				if chunk = min(chunk, budget-b); chunk > 0 {
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
	// The line of the largest range of batch sizes b and up that it fits, and below which it is never too low.
	for i, b := range sizes[:len(sizes)-1] {
		k := i * len(y) / len(sizes)
		upper := fitLine(x[k:], y[k:])
		if upper.maxErr > poorLine {
			continue
		}
		rest := append(upper.errors(x[:k], y[:k]), 0)
		if slices.Min(rest) >= -poorLine {
			upper.least = b
			upper.above = slices.Max(rest)
			return upper, nil
		}
	}
	return whole, nil
}
