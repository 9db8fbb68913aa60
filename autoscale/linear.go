package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/trace"
)

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

// decodes is a batch of n decodes in the middle of their output.
func decodes(n int64, l export.Lengths) []trace.Chunk {
	c := trace.Chunk{Computed: int64(math.Round(float64(l.Prompt) + float64(l.Output/2))), Prompt: int64(math.Round(l.Prompt)), New: 1}
	batch := make([]trace.Chunk, n)
	for i := range batch {
		batch[i] = c
	}
	return batch
}

// line is a non-negative linear model of a quantity and how well it holds on
// the grid it was fitted on.
type line struct {
	coef            []float64
	maxErr, meanErr float64 // relative
	points          int
}

// fitLine minimises the sum of squared relative errors of y over x'c with c >=
// 0. With at most three columns every active set is tried, which is exact.
func fitLine(x [][]float64, y []float64) line {
	p := len(x[0])
	best, bestSSE := make([]float64, p), math.Inf(1)
	for set := 1; set < 1<<p; set++ {
		c, ok := solveSubset(x, y, set)
		if !ok {
			continue
		}
		var sse float64
		for i := range x {
			r := 1 - dot(x[i], c)/y[i]
			sse += float64(r * r)
		}
		if sse < bestSSE {
			best, bestSSE = c, sse
		}
	}
	l := line{coef: best, points: len(y)}
	for i := range x {
		e := math.Abs(dot(x[i], best)/y[i] - 1)
		l.maxErr = math.Max(l.maxErr, e)
		l.meanErr += e / float64(len(y))
	}
	return l
}

// solveSubset solves the relative least squares over the columns in set; ok is
// false when it is singular or a coefficient comes out negative.
func solveSubset(x [][]float64, y []float64, set int) ([]float64, bool) {
	p := len(x[0])
	var cols []int
	scale := make([]float64, p) // column norms, so that the pivots compare
	for j := range p {
		if set&(1<<j) == 0 {
			continue
		}
		for i := range x {
			scale[j] += x[i][j] * x[i][j] / (y[i] * y[i])
		}
		if scale[j] == 0 {
			return nil, false
		}
		scale[j] = math.Sqrt(scale[j])
		cols = append(cols, j)
	}
	k := len(cols)
	a := make([][]float64, k)
	for r, jr := range cols {
		a[r] = make([]float64, k+1)
		for i := range x {
			u := x[i][jr] / (y[i] * scale[jr])
			for c, jc := range cols {
				a[r][c] += u * x[i][jc] / (y[i] * scale[jc])
			}
			a[r][k] += u
		}
	}
	z, ok := eliminate(a)
	if !ok {
		return nil, false
	}
	coef := make([]float64, p)
	for r, j := range cols {
		if z[r] < 0 {
			return nil, false
		}
		coef[j] = z[r] / scale[j]
	}
	return coef, true
}

// eliminate solves the augmented system in place by Gauss with row pivots;
// rows are scaled to a unit diagonal, so a pivot below 1e-12 is singular.
func eliminate(a [][]float64) ([]float64, bool) {
	k := len(a)
	for c := range k {
		p := c
		for r := c + 1; r < k; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[p][c]) {
				p = r
			}
		}
		if math.Abs(a[p][c]) < 1e-12 {
			return nil, false
		}
		a[c], a[p] = a[p], a[c]
		for r := c + 1; r < k; r++ {
			f := a[r][c] / a[c][c]
			for j := c; j <= k; j++ {
				a[r][j] -= float64(f * a[c][j])
			}
		}
	}
	z := make([]float64, k)
	for r := k - 1; r >= 0; r-- {
		s := a[r][k]
		for j := r + 1; j < k; j++ {
			s -= float64(a[r][j] * z[j])
		}
		z[r] = s / a[r][r]
	}
	return z, true
}

func dot(a, b []float64) float64 {
	var s float64
	for i := range a {
		s += float64(a[i] * b[i])
	}
	return s
}

// iterationDepths are the depths of the contexts on the grid of [iterationLine], times the mean one.
var iterationDepths = []float64{0.25, 1, 2}

// iterationLine is ms = alpha + beta*computed tokens + gamma*KV tokens read,
// over decode batches at three depths, alone and with prompt chunks of three sizes.
func iterationLine(t export.StepTimer, l export.Lengths, largest, budget int64) (line, error) {
	var x [][]float64
	var y []float64
	prompt := max(1, int64(math.Round(l.Prompt)))
	for _, b := range batchSizes(largest) {
		for _, depth := range iterationDepths {
			deep := export.Lengths{Prompt: l.Prompt * depth, Output: l.Output * depth}
			for _, chunk := range []int64{0, min(prompt, 64), min(prompt, 512), prompt} {
				batch := decodes(b, deep)
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
				x, y = append(x, []float64{1, computed, read}), append(y, us/1000)
			}
		}
	}
	return fitLine(x, y), nil
}

// lineWarnings warns about lines that miss the physics by more than 10 %.
func lineWarnings(label, what string, l line) []trace.Finding {
	if l.maxErr <= poorLine {
		return nil
	}
	return []trace.Finding{trace.Findingf(export.PoorProjection, "%s: the %s line is off by up to %.0f %% of the physics model on its grid "+
		"(mean %.1f %%)", label, what, 100*l.maxErr, 100*l.meanErr)}
}
