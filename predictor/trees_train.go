package predictor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
)

// growForest grows a forest for y. Weights w are scaled to mean 1; nil weighs all rows
// the same. The target is used as it is: pass logarithms for relative errors.
func growForest(m *matrix, y, w []float64, o treesOptions) (*forest.Forest, error) {
	if m.rows == 0 || len(y) != m.rows || w != nil && len(w) != m.rows {
		return nil, fmt.Errorf("forest: got %d targets and %d weights for %d rows, want one each and at least one", len(y), len(w), m.rows)
	}
	b := &booster{m: m, o: o, y: y, w: meanOne(w, m.rows), margin: make([]float64, m.rows)}
	if b.w == nil {
		return nil, fmt.Errorf("forest: weights: got a negative one or a sum of 0, want >= 0 and > 0")
	}
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("forest: target of row %d: got %g, want a finite number", i, v)
		}
	}
	return b.boost(), nil
}

// meanOne scales weights to mean 1; nil when that cannot be done.
func meanOne(w []float64, n int) []float64 {
	out := make([]float64, n)
	sum := 0.0
	for i := range out {
		out[i] = 1
		if w != nil {
			out[i] = w[i]
		}
		if !(out[i] >= 0) {
			return nil
		}
		sum += out[i]
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil
	}
	for i := range out {
		out[i] *= float64(n) / sum
	}
	return out
}

// booster is the state between trees.
type booster struct {
	m      *matrix
	o      treesOptions
	y, w   []float64
	margin []float64 // per row: base + trees so far
}

func (b *booster) boost() *forest.Forest {
	base := b.base()
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

// base is the best constant.
func (b *booster) base() float64 {
	if b.o.Loss == pinballLoss {
		all := make([]weighted, b.m.rows)
		for i := range all {
			all[i] = weighted{b.y[i], b.w[i]}
		}
		return quantile(all, b.o.Quantile)
	}
	sum, weight := 0.0, 0.0
	for i, v := range b.y {
		sum += float64(b.w[i] * v)
		weight += b.w[i]
	}
	return sum / weight
}

// gradient of the loss at a row's margin; the second derivative is the weight.
func (b *booster) gradient(i int) float64 {
	r := b.margin[i] - b.y[i]
	if b.o.Loss == squared {
		return b.w[i] * r
	}
	if r < 0 {
		return -b.w[i] * b.o.Quantile
	}
	return b.w[i] * (1 - b.o.Quantile)
}

// weighted is a value and its weight.
type weighted struct{ value, weight float64 }

// quantile is the smallest value whose weight, with that of all below, reaches q
// of the whole. It reorders v.
func quantile(v []weighted, q float64) float64 {
	slices.SortFunc(v, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
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
