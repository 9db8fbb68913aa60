package ridge

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
)

// BlockGram is the Gram of one contiguous piece of a run: the unit the
// bootstrap draws, because neighbours in time err together.
type BlockGram struct {
	Config, Run int32
	Gram        *Gram
}

// Constants of the block length: ten correlation times keep the variance a
// block cannot see under about a tenth, and at least minBlocks per run keep the
// quantiles usable.
const (
	blockTimes   = 10
	minBlocks    = 8
	maxBlocks    = 40
	minBlockRows = 4
	maxCorrRows  = 20000
	maxCorrLag   = 200
	corrNoise    = 0.05
)

// rowBlocks cuts every run into contiguous blocks long against the correlation
// time of its relative residuals under beta and sums each with weights w.
func rowBlocks(d *Data, w, beta []float64, o Options) []BlockGram {
	seqs, _ := Sequences(d, o)
	out := make([]BlockGram, 0, len(seqs)*maxBlocks)
	var pieces [][]int32
	for _, s := range seqs {
		n := numBlocks(len(s.Rows), correlationRows(d, s.Rows, beta, o.EpsUs))
		bounds := BlockBounds(len(s.Rows), n)
		for b := range n {
			out = append(out, BlockGram{Config: s.Config, Run: s.Run})
			pieces = append(pieces, s.Rows[bounds[b]:bounds[b+1]])
		}
	}
	par.Each(o.Threads(), len(out), func(_, k int) { out[k].Gram = OfRows(d, w, pieces[k], 1) })
	return out
}

// numBlocks is the number of blocks for n rows with correlation time tau.
func numBlocks(n int, tau float64) int {
	b := int(float64(n) / (blockTimes * tau))
	b = min(max(b, minBlocks), maxBlocks)
	return max(1, min(b, n/minBlockRows))
}

// correlationRows is the integrated correlation time of the relative residuals
// in rows: 1 + 2*sum of autocorrelations up to the first under 0.05.
func correlationRows(d *Data, rows []int32, beta []float64, epsUs float64) float64 {
	rows = rows[:min(len(rows), maxCorrRows)]
	e := make([]float64, len(rows))
	var m float64
	x := d.Reader()
	for k, i := range rows {
		pred := Dot(x.Row(int(i)), beta)
		e[k] = (d.Y[i] - pred) / math.Max(pred, epsUs*d.StepsOf(int(i)))
		m += e[k] / float64(len(rows))
	}
	var zero float64
	for k := range e {
		e[k] -= m
		zero += float64(e[k] * e[k])
	}
	tau := 1.0
	for lag := 1; lag < min(maxCorrLag, len(e)/4) && zero > 0; lag++ {
		var c float64
		for k := lag; k < len(e); k++ {
			c += float64(e[k] * e[k-lag])
		}
		if c/zero < corrNoise {
			break
		}
		tau += 2 * c / zero
	}
	return tau
}

// OfCells are the fold blocks of every run, balanced: what the bootstrap draws
// when only Gram matrices are left.
func OfCells(c *Cells, minCellRows int) []BlockGram {
	factor := c.Balance(minCellRows)
	type key struct{ config, run, block int32 }
	var keys []key
	var out []BlockGram
	for i := range c.List {
		cell := &c.List[i]
		k := key{cell.Config, cell.Run, cell.Block}
		at := slices.Index(keys, k)
		if at < 0 {
			at = len(keys)
			keys = append(keys, k)
			out = append(out, BlockGram{Config: cell.Config, Run: cell.Run, Gram: New(c.P)})
		}
		out[at].Gram.AddScaled(factor[i], &cell.Gram)
	}
	return out
}

// OfIntervals are the blocks of an interval-censored fit: the quadratic the
// loss of each row is at the fit. Rows that exert no pull say nothing more about
// the coefficients, so data that every prediction satisfies give no interval.
func OfIntervals(d *Data, w []float64, fit CensoredFit, o Options) []BlockGram {
	view := *d
	view.Variants, view.Y = nil, fit.Y
	bent := make([]float64, len(w))
	for i := range w {
		bent[i] = w[i] * fit.Bend[i]
	}
	return rowBlocks(&view, bent, fit.Fit.Beta, o)
}
