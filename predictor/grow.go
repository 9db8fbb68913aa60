package predictor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
)

// boostOptions say how trees are grown.
type boostOptions struct {
	// Quantile is 0 for a mean: least sum w(y - f)^2; q in (0, 1) for a quantile: least sum w*max(q(y - f), (q-1)(y - f)).
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

// defaultBoost are 200 trees of depth 6 for a mean, with the settings that
// llm-d's latency predictor ships for XGBoost (llm-d-latency-predictor 04e44cd,
// training/training_server.py), but for its gamma of 0.2: that is in units of the
// loss, which change with the target's unit.
func defaultBoost() boostOptions {
	return boostOptions{Trees: 200, Depth: 6, Rate: 0.05, RowFrac: 0.8, ColFrac: 0.8, Lambda: 0.1, Alpha: 0.01, MinChild: 5, Bins: MaxBins,
		Seed: 1}
}

// growForest grows a forest for y. Weights w are scaled to mean 1; nil weighs all rows
// the same. The target is used as it is: pass logarithms for relative errors.
func growForest(m *matrix, y, w []float64, o boostOptions) (*forest.Forest, error) {
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("forest: target of row %d: got %g, want a finite number", i, v)
		}
	}
	b := &booster{m: m, o: o, y: y, w: meanOne(w, m.rows), margin: make([]float64, m.rows)}
	return b.boost(), nil
}

// meanOne scales n weights to mean 1; nil is equal ones.
func meanOne(w []float64, n int) []float64 {
	out := slices.Repeat([]float64{1}, n)
	copy(out, w)
	sum := stat.Sum(out, func(v float64) float64 { return v })
	for i := range out {
		out[i] *= float64(n) / sum
	}
	return out
}

// booster is the state between trees.
type booster struct {
	m      *matrix
	o      boostOptions
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
	if b.o.Quantile > 0 {
		all := make([]weighted, b.m.rows)
		for i := range all {
			all[i] = weighted{b.y[i], b.w[i]}
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

// gradient of the loss at a row's margin; the second derivative is the weight.
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

// quantile is the smallest value whose weight, with that of all below, reaches q
// of the whole. It reorders v.
func quantile(v []weighted, q float64) float64 {
	slices.SortFunc(v, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	total := stat.Sum(v, func(x weighted) float64 { return x.weight })
	sum := 0.0
	for _, x := range v {
		if sum += x.weight; sum >= q*total {
			return x.value
		}
	}
	return v[len(v)-1].value
}

// Streams of draws.
const (
	streamRows uint64 = iota + 1
	streamCols
)

// drawColumns picks share of the columns, at least one, in ascending order.
func drawColumns(n int, share float64, seed, tree uint64) []int {
	columns := make([]int, n)
	keys := make([]float64, n)
	for c := range columns {
		columns[c], keys[c] = c, stat.Draw(seed, streamCols, tree, uint64(c))
	}
	slices.SortFunc(columns, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	columns = columns[:max(1, int(math.Round(share*float64(n))))]
	slices.Sort(columns)
	return columns
}

// MaxBins is the largest number of bins of a column.
const MaxBins = 256

// matrix is binned columns of equal length.
type matrix struct {
	rows  int
	bins  [][]uint8   // per column, per row
	edges [][]float32 // per column, ascending: a value is in bin b when edges[b-1] <= value < edges[b]
}

// newMatrix rounds columns to float32 and bins them: one bin per distinct value
// where at most maxBins differ, else bins of about equal numbers of rows. Edges
// lie halfway between the values they part. Values must be finite; NaN, unknown,
// is below all of them, as at a split of the finished forest.
func newMatrix(columns [][]float64, maxBins int) (*matrix, error) {
	if maxBins < 2 || maxBins > MaxBins {
		return nil, fmt.Errorf("forest: bins: got %d, want 2 to %d", maxBins, MaxBins)
	}
	if len(columns) < 1 || len(columns) > forest.MaxFeatures {
		return nil, fmt.Errorf("forest: columns: got %d, want 1 to %d", len(columns), forest.MaxFeatures)
	}
	m := &matrix{rows: len(columns[0])}
	values := make([]float32, m.rows)
	sorted := make([]float32, m.rows)
	for c, column := range columns {
		if len(column) != m.rows {
			return nil, fmt.Errorf("forest: column %d: got %d rows, want %d", c, len(column), m.rows)
		}
		for i, v := range column {
			values[i] = float32(v)
			switch {
			case v != v:
				values[i] = float32(math.Inf(-1))
			case math.IsInf(float64(values[i]), 0):
				return nil, fmt.Errorf("forest: column %d, row %d: got %g, want a finite float32 or NaN", c, i, v)
			}
		}
		copy(sorted, values)
		slices.Sort(sorted)
		edges := binEdges(sorted, maxBins)
		m.edges = append(m.edges, edges)
		m.bins = append(m.bins, binOf(values, edges))
	}
	return m, nil
}

// binEdges parts ascending values into at most maxBins bins.
func binEdges(sorted []float32, maxBins int) []float32 {
	distinct := 0
	for i, v := range sorted {
		if i == 0 || v != sorted[i-1] {
			distinct++
		}
	}
	var edges []float32
	n, k := len(sorted), 1 // the next edge leaves k of maxBins parts of the rows below it
	for i := 1; i < n; i++ {
		if sorted[i] == sorted[i-1] || distinct > maxBins && i*maxBins < k*n {
			continue
		}
		edges = append(edges, between(sorted[i-1], sorted[i]))
		k = i*maxBins/n + 1
	}
	return edges
}

// between is a float32 above lo and at most hi, halfway where one lies between; hi
// itself where lo stands for unknown.
func between(lo, hi float32) float32 {
	if mid := float32((float64(lo) + float64(hi)) / 2); mid > lo {
		return mid
	}
	return hi
}

func binOf(values, edges []float32) []uint8 {
	bins := make([]uint8, len(values))
	for i, v := range values {
		b, found := slices.BinarySearch(edges, v)
		if found { // v == edges[b]: at the edge is above it
			b++
		}
		bins[i] = uint8(b)
	}
	return bins
}

// grower grows one tree after the other and reuses its memory.
type grower struct {
	*booster
	offset  []int   // per column: where its bins start in a histogram; the last is the length
	columns []int   // drawn for this tree
	rows    []int32 // drawn rows, those of a node side by side, in index order
	sums    []cell  // gradient and weight of each of rows
	inBag   []bool
	spare   []int32
	spared  []cell
	free    [][]cell // histograms of no further use
}

// cell sums gradients and weights of rows.
type cell struct{ g, h float64 }

// node is a node that may still be split.
type node struct {
	lo, hi int // rows
	sum    cell
	hist   []cell
	best   bestSplit
}

// bestSplit parts a node: bins <= bin of column go left.
type bestSplit struct {
	gain        float64 // 0: none
	column, bin int
	left        cell
}

// binned is a node as rows of the matrix see it.
type binned struct {
	column, left int // column Leaf: a leaf
	bin          uint8
	value        float32
}

func newGrower(b *booster) *grower {
	g := &grower{booster: b, inBag: make([]bool, b.m.rows)}
	at := 0
	for _, edges := range b.m.edges {
		g.offset = append(g.offset, at)
		at += len(edges) + 1
	}
	g.offset = append(g.offset, at)
	g.spare = make([]int32, b.m.rows)
	g.spared = make([]cell, b.m.rows)
	return g
}

// grow grows tree t, adds it to the margins and returns it.
func (g *grower) grow(t uint64) forest.Tree {
	root, loss := g.root(t)
	least := 1e-12 * loss
	var nodes []binned
	level := []*node{root}
	for depth := 0; len(level) > 0; depth++ {
		if depth < g.o.Depth {
			for _, n := range level {
				n.best = g.best(n)
			}
		}
		var parents, next []*node
		first := len(nodes) + len(level) // place of the next level's first node
		for _, n := range level {
			if n.best.gain <= least {
				nodes = append(nodes, binned{column: forest.Leaf, value: g.leaf(n)})
				g.recycle(n)
				continue
			}
			left, right := g.split(n)
			nodes = append(nodes, binned{column: n.best.column, bin: uint8(n.best.bin), left: first + len(next)})
			parents = append(parents, n)
			next = append(next, left, right)
		}
		if depth+1 < g.o.Depth {
			g.histograms(parents, next)
		} else {
			for _, n := range parents {
				g.recycle(n)
			}
		}
		level = next
	}
	g.addOutOfBag(nodes)
	return g.tree(nodes)
}

// root draws rows and columns and returns the root and its loss.
func (g *grower) root(t uint64) (*node, float64) {
	g.columns = drawColumns(len(g.m.bins), g.o.ColFrac, g.o.Seed, t)
	g.rows, g.sums = g.rows[:0], g.sums[:0]
	for i := range g.m.rows {
		g.inBag[i] = g.o.RowFrac == 1 || stat.Draw(g.o.Seed, streamRows, t, uint64(i)) < g.o.RowFrac
		if g.inBag[i] {
			g.rows = append(g.rows, int32(i))
			g.sums = append(g.sums, cell{g.gradient(i), g.w[i]})
		}
	}
	n := &node{hi: len(g.rows)}
	loss := 0.0
	for _, s := range g.sums {
		n.sum.g += s.g
		n.sum.h += s.h
		if s.h > 0 {
			loss += s.g * s.g / s.h
		}
	}
	n.hist = g.take()
	g.fill([]*node{n})
	return n, loss
}

// split parts the rows of a node, in order, and makes its children.
func (g *grower) split(n *node) (left, right *node) {
	bins := g.m.bins[n.best.column]
	bin := uint8(n.best.bin)
	at, over := n.lo, 0
	for k := n.lo; k < n.hi; k++ {
		row := g.rows[k]
		if bins[row] <= bin {
			g.rows[at], g.sums[at] = row, g.sums[k]
			at++
			continue
		}
		g.spare[over], g.spared[over] = row, g.sums[k]
		over++
	}
	copy(g.rows[at:n.hi], g.spare[:over])
	copy(g.sums[at:n.hi], g.spared[:over])
	left = &node{lo: n.lo, hi: at, sum: n.best.left}
	return left, &node{lo: at, hi: n.hi, sum: cell{n.sum.g - left.sum.g, n.sum.h - left.sum.h}}
}

// value is what the leaf of a node would be before the rate.
func (g *grower) value(n *node) float64 {
	if g.o.Quantile > 0 && n.hi > n.lo {
		rest := make([]weighted, 0, n.hi-n.lo)
		for k := n.lo; k < n.hi; k++ {
			row := g.rows[k]
			rest = append(rest, weighted{g.y[row] - g.margin[row], g.w[row]})
		}
		return quantile(rest, g.o.Quantile)
	}
	// minimises  sum.g*v + (sum.h+lambda)*v^2/2 + alpha*|v|
	if n.sum.h+g.o.Lambda <= 0 {
		return 0
	}
	return -shrink(n.sum.g, g.o.Alpha) / (n.sum.h + g.o.Lambda)
}

// leaf adds a node's leaf to the margins of its rows and returns it.
func (g *grower) leaf(n *node) float32 {
	v := float32(g.o.Rate * g.value(n))
	for _, row := range g.rows[n.lo:n.hi] {
		g.margin[row] += float64(v)
	}
	return v
}

// addOutOfBag adds the tree to the margins of the rows it was not grown on.
func (g *grower) addOutOfBag(nodes []binned) {
	if g.o.RowFrac == 1 {
		return
	}
	for i := range g.m.rows {
		if g.inBag[i] {
			continue
		}
		n := &nodes[0]
		for n.column != forest.Leaf {
			next := n.left
			if g.m.bins[n.column][i] > n.bin {
				next++
			}
			n = &nodes[next]
		}
		g.margin[i] += float64(n.value)
	}
}

func (g *grower) tree(nodes []binned) forest.Tree {
	t := make(forest.Tree, len(nodes))
	for i, n := range nodes {
		t[i] = forest.Node{Feature: n.column, Value: n.value}
		if n.column != forest.Leaf {
			t[i].Value = g.m.edges[n.column][n.bin]
		}
	}
	return t
}

// take returns an empty histogram of all columns.
func (g *grower) take() []cell {
	if n := len(g.free); n > 0 {
		h := g.free[n-1]
		g.free = g.free[:n-1]
		clear(h)
		return h
	}
	return make([]cell, g.offset[len(g.offset)-1])
}

// recycle gives a node's histogram back.
func (g *grower) recycle(n *node) {
	if n.hist != nil {
		g.free, n.hist = append(g.free, n.hist), nil
	}
}

// histograms sums the smaller child of each parent from its rows; the larger
// one's is the parent's minus that, in the parent's memory. children holds
// left and right of each parent in turn.
func (g *grower) histograms(parents, children []*node) {
	small := make([]*node, len(parents))
	for i := range parents {
		small[i] = children[2*i]
		if r := children[2*i+1]; r.hi-r.lo < small[i].hi-small[i].lo {
			small[i] = r
		}
		small[i].hist = g.take()
	}
	g.fill(small)
	for i := range parents {
		h := parents[i].hist
		for _, c := range g.columns {
			for k := g.offset[c]; k < g.offset[c+1]; k++ {
				h[k].g -= small[i].hist[k].g
				h[k].h -= small[i].hist[k].h
			}
		}
		large := children[2*i]
		if large == small[i] {
			large = children[2*i+1]
		}
		large.hist, parents[i].hist = h, nil
	}
}

// fill sums histograms of nodes from their rows, a column of a node at a time.
func (g *grower) fill(nodes []*node) {
	for _, n := range nodes {
		for _, c := range g.columns {
			sumColumn(n.hist[g.offset[c]:g.offset[c+1]], g.m.bins[c], g.rows[n.lo:n.hi], g.sums[n.lo:n.hi])
		}
	}
}

// sumColumn adds the sums of rows to the bins they are in.
func sumColumn(hist []cell, bins []uint8, rows []int32, sums []cell) {
	for k, s := range sums {
		h := &hist[bins[rows[k]]]
		h.g += s.g
		h.h += s.h
	}
}

// best is the split of a node that lowers the loss most.
func (g *grower) best(n *node) bestSplit {
	var best bestSplit
	parent := g.score(n.sum)
	for _, c := range g.columns {
		hist := n.hist[g.offset[c]:g.offset[c+1]]
		var left cell
		for b := range len(hist) - 1 {
			left.g += hist[b].g
			left.h += hist[b].h
			right := cell{n.sum.g - left.g, n.sum.h - left.h}
			if left.h < g.o.MinChild || left.h <= 0 {
				continue
			}
			if right.h < g.o.MinChild || right.h <= 0 {
				break
			}
			if gain := g.score(left) + g.score(right) - parent; gain > best.gain {
				best = bestSplit{gain, c, b, left}
			}
		}
	}
	return best
}

// score is twice the loss that the best leaf removes.
func (g *grower) score(sum cell) float64 {
	if sum.h+g.o.Lambda <= 0 {
		return 0
	}
	s := shrink(sum.g, g.o.Alpha)
	return s * s / (sum.h + g.o.Lambda)
}

// shrink moves v towards 0 by a, and not beyond.
func shrink(v, a float64) float64 {
	switch {
	case v > a:
		return v - a
	case v < -a:
		return v + a
	}
	return 0
}
