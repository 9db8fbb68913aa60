package predictor

// This file grows the forests (boosted trees; doc.go describes the steps). The margin of a row is
// the prediction of the trees grown so far; rates, fractions and penalties are those of XGBoost.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
)

// boostOptions decide how trees are grown.
type boostOptions struct {
	// Quantile selects the loss. 0 is the squared error, sum w*(y - f)^2, whose minimum is a mean.
	// q in (0, 1) is the pinball loss, sum w*max(q*(y - f), (q-1)*(y - f)), whose minimum is the
	// q quantile.
	Quantile float64
	Trees    int     // >= 0
	Depth    int     // splits on the way to a leaf, 1 to 12
	Rate     float64 // share of each tree that is added, in (0, 1]
	RowFrac  float64 // rows drawn for each tree, in (0, 1]
	ColFrac  float64 // columns drawn for each tree, in (0, 1]; at least one is
	Lambda   float64 // squared penalty on a leaf, in rows of mean weight, >= 0
	Alpha    float64 // absolute penalty on a leaf, in gradients of mean weight, >= 0
	MinChild float64 // least weight of a leaf, in rows of mean weight, >= 0
	Bins     int     // of a column, 2 to MaxBins

	Seed uint64
}

// defaultBoost returns 200 trees of depth 6 for a mean, with the settings that llm-d's latency
// predictor uses for XGBoost (llm-d-latency-predictor 04e44cd, training/training_server.py). Its
// gamma of 0.2 is not used: gamma is in units of the loss, which change with the target's unit.
func defaultBoost() boostOptions {
	return boostOptions{
		Trees:    200,
		Depth:    6,
		Rate:     0.05,
		RowFrac:  0.8,
		ColFrac:  0.8,
		Lambda:   0.1,
		Alpha:    0.01,
		MinChild: 5,
		Bins:     MaxBins,
		Seed:     1,
	}
}

// growForest returns a forest grown for the targets y of the rows of m. The weights w are scaled to
// mean 1; nil weighs all rows the same. Targets are used as they are: pass logarithms for relative
// errors.
func growForest(m *matrix, y, w []float64, o boostOptions) (*forest.Forest, error) {
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("forest: target of row %d: got %g, want a finite number", i, v)
		}
	}
	b := &booster{m: m, o: o, y: y, w: scaleToMeanOne(w, m.rows), margin: make([]float64, m.rows)}
	return b.boost(), nil
}

// scaleToMeanOne returns n weights scaled to mean 1; nil means equal weights.
func scaleToMeanOne(w []float64, n int) []float64 {
	out := slices.Repeat([]float64{1}, n)
	copy(out, w)
	total := 0.0
	for _, weight := range out {
		total += weight
	}
	for i := range out {
		out[i] *= float64(n) / total
	}
	return out
}

// booster is the state of growing a forest between two trees.
type booster struct {
	m      *matrix
	o      boostOptions
	y, w   []float64
	margin []float64 // per row: base + trees so far
}

// boost grows the trees and returns the forest.
func (b *booster) boost() *forest.Forest {
	base := b.startValue()
	for i := range b.margin {
		b.margin[i] = base
	}
	g := newGrower(b)
	out := &forest.Forest{Base: base, Trees: make([]forest.Tree, 0, b.o.Trees)}
	for t := range b.o.Trees {
		out.Trees = append(out.Trees, g.grow(uint64(t)))
	}
	return out
}

// startValue returns the constant with the smallest loss: the weighted mean or quantile of the targets.
func (b *booster) startValue() float64 {
	if b.o.Quantile > 0 {
		all := make([]weighted, b.m.rows)
		for i := range all {
			all[i] = weighted{value: b.y[i], weight: b.w[i]}
		}
		return quantile(all, b.o.Quantile)
	}
	sum, weight := 0.0, 0.0
	for i, v := range b.y {
		sum += b.w[i] * v
		weight += b.w[i]
	}
	return sum / weight
}

// gradient returns the first derivative of row i's loss by its margin (half of it for the squared
// error). The second derivative is taken to be the row's weight, also for the pinball loss, whose
// second derivative is 0.
func (b *booster) gradient(i int) float64 {
	r := b.margin[i] - b.y[i]
	if b.o.Quantile == 0 {
		return b.w[i] * r
	}
	if r < 0 {
		return -b.w[i] * b.o.Quantile
	}
	return b.w[i] * (1 - b.o.Quantile)
}

// weighted is a value and its weight.
type weighted struct{ value, weight float64 }

// byValue sorts by the values. Package slices would add a copy of its sorting for this type to the program.
type byValue []weighted

func (v byValue) Len() int           { return len(v) }
func (v byValue) Less(i, k int) bool { return v[i].value < v[k].value }
func (v byValue) Swap(i, k int)      { v[i], v[k] = v[k], v[i] }

// quantile returns the smallest value of v such that the weight of the values up to it reaches the
// share q of all weight. It reorders v.
func quantile(v []weighted, q float64) float64 {
	sort.Sort(byValue(v))
	total := 0.0
	for _, x := range v {
		total += x.weight
	}
	sum := 0.0
	for _, x := range v {
		if sum += x.weight; sum >= q*total {
			return x.value
		}
	}
	return v[len(v)-1].value
}

// drawColumns returns a random share of n columns, at least one, in ascending order. The draw
// depends on the seed and the tree only.
func drawColumns(n int, share float64, seed, tree uint64) []int {
	columns := make([]int, n)
	keys := make([]float64, n)
	for c := range columns {
		columns[c] = c
		keys[c] = stat.Draw(seed, streamCols, tree, uint64(c))
	}
	stat.SortStable(columns, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b))
	})
	columns = columns[:max(1, int(math.Round(share*float64(n))))]
	slices.Sort(columns)
	return columns
}

// Streams of random draws, so that drawing columns does not change which rows are drawn.
const (
	streamRows uint64 = iota + 1
	streamCols
)
