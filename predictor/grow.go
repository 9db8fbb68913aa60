package predictor

// This file grows one tree. It follows XGBoost's histogram method; doc.go describes the steps.

import (
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
)

// grower grows one tree after the other and reuses its memory.
type grower struct {
	*booster
	offset  []int           // per column: where its bins start in a histogram; the last is the length
	columns []int           // drawn for this tree
	rows    []int32         // drawn rows, those of a node side by side, in index order
	sums    []gradientSum   // gradient and weight of each of rows
	inBag   []bool          // per row of the matrix: drawn for this tree
	spare   []int32         // memory of splitNode for rows
	spared  []gradientSum   // memory of splitNode for sums
	free    [][]gradientSum // histograms whose memory can be used again
}

// gradientSum sums gradients and weights of rows.
type gradientSum struct{ g, h float64 } // gradient and weight (second derivative)

// node is a node of the tree under construction that may still be split: a stretch of the grower's
// rows.
type node struct {
	lo, hi int           // its rows are rows[lo:hi]
	sum    gradientSum   // over its rows
	hist   []gradientSum // sums by column and bin, see grower.offset; nil if it is not split further
	best   bestSplit
}

// bestSplit divides a node: rows whose bin of the column is at most bin go to the left.
type bestSplit struct {
	gain        float64 // twice the loss that the split removes; 0: no split
	column, bin int
	left        gradientSum // of the rows that go to the left
}

// binned is a node of the finished tree with a bin in place of a threshold.
type binned struct {
	column int     // forest.Leaf: a leaf
	left   int     // place of the left child; the right one follows it
	bin    uint8   // rows up to this bin go to the left
	value  float32 // of a leaf
}

// newGrower returns a grower for the booster's rows.
func newGrower(b *booster) *grower {
	g := &grower{booster: b, inBag: make([]bool, b.m.rows)}
	at := 0
	for _, edges := range b.m.edges {
		g.offset = append(g.offset, at)
		at += len(edges) + 1
	}
	g.offset = append(g.offset, at)
	g.spare = make([]int32, b.m.rows)
	g.spared = make([]gradientSum, b.m.rows)
	return g
}

// grow grows the tree number t, adds its leaves to the margins and returns it.
func (g *grower) grow(t uint64) forest.Tree {
	root, loss := g.makeRoot(t)
	least := 1e-12 * loss // a smaller gain is rounding
	var nodes []binned
	level := []*node{root}
	for depth := 0; len(level) > 0; depth++ {
		if depth < g.o.Depth {
			for _, n := range level {
				n.best = g.bestSplitOf(n)
			}
		}
		// A node becomes a leaf if no split is worth it, else two nodes of the next level.
		var parents, next []*node
		first := len(nodes) + len(level) // place of the next level's first node
		for _, n := range level {
			if n.best.gain <= least {
				nodes = append(nodes, binned{column: forest.Leaf, value: g.leaf(n)})
				g.recycle(n)
				continue
			}
			left, right := g.splitNode(n)
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
	return g.toTree(nodes)
}

// makeRoot draws the rows and columns of tree t and returns its root, and the loss that the root's
// best leaf would remove.
func (g *grower) makeRoot(t uint64) (*node, float64) {
	g.columns = drawColumns(len(g.m.bins), g.o.ColFrac, g.o.Seed, t)
	g.rows, g.sums = g.rows[:0], g.sums[:0]
	for i := range g.m.rows {
		g.inBag[i] = g.o.RowFrac == 1 || stat.Draw(g.o.Seed, streamRows, t, uint64(i)) < g.o.RowFrac
		if g.inBag[i] {
			g.rows = append(g.rows, int32(i))
			g.sums = append(g.sums, gradientSum{g: g.gradient(i), h: g.w[i]})
		}
	}
	n := &node{hi: len(g.rows)}
	loss := 0.0 // sum of g^2/h: what a leaf for each row of its own would remove
	for _, s := range g.sums {
		n.sum.g += s.g
		n.sum.h += s.h
		if s.h > 0 {
			loss += s.g * s.g / s.h
		}
	}
	n.hist = g.takeHistogram()
	g.fillHistograms([]*node{n})
	return n, loss
}

// splitNode divides the rows of a node by its best split, in their order, and returns its children.
func (g *grower) splitNode(n *node) (left, right *node) {
	bins := g.m.bins[n.best.column]
	bin := uint8(n.best.bin)
	at := n.lo // the next row that goes to the left is moved here
	over := 0  // rows that go to the right, set aside
	for k := n.lo; k < n.hi; k++ {
		row := g.rows[k]
		if bins[row] <= bin {
			g.rows[at] = row
			g.sums[at] = g.sums[k]
			at++
			continue
		}
		g.spare[over] = row
		g.spared[over] = g.sums[k]
		over++
	}
	copy(g.rows[at:n.hi], g.spare[:over])
	copy(g.sums[at:n.hi], g.spared[:over])
	left = &node{lo: n.lo, hi: at, sum: n.best.left}
	return left, &node{lo: at, hi: n.hi, sum: gradientSum{g: n.sum.g - left.sum.g, h: n.sum.h - left.sum.h}}
}

// value returns the value of a node's leaf before it is multiplied by the rate.
func (g *grower) value(n *node) float64 {
	if g.o.Quantile > 0 && n.hi > n.lo {
		rest := make([]weighted, 0, n.hi-n.lo)
		for k := n.lo; k < n.hi; k++ {
			row := g.rows[k]
			rest = append(rest, weighted{value: g.y[row] - g.margin[row], weight: g.w[row]})
		}
		return quantile(rest, g.o.Quantile)
	}
	// minimises  sum.g*v + (sum.h+lambda)*v^2/2 + alpha*|v|
	if n.sum.h+g.o.Lambda <= 0 {
		return 0
	}
	return -softThreshold(n.sum.g, g.o.Alpha) / (n.sum.h + g.o.Lambda)
}

// leaf adds the value of a node's leaf to the margins of its rows and returns it.
func (g *grower) leaf(n *node) float32 {
	v := float32(g.o.Rate * g.value(n))
	for _, row := range g.rows[n.lo:n.hi] {
		g.margin[row] += float64(v)
	}
	return v
}

// addOutOfBag adds the tree to the margins of the rows on which it was not grown.
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

// toTree returns the nodes with thresholds.
func (g *grower) toTree(nodes []binned) forest.Tree {
	t := make(forest.Tree, len(nodes))
	for i, n := range nodes {
		t[i] = forest.Node{Feature: n.column, Value: n.value}
		if n.column != forest.Leaf {
			t[i].Value = g.m.edges[n.column][n.bin]
		}
	}
	return t
}

// takeHistogram returns an empty histogram of all columns, one that was recycled if there is one.
func (g *grower) takeHistogram() []gradientSum {
	if n := len(g.free); n > 0 {
		h := g.free[n-1]
		g.free = g.free[:n-1]
		clear(h)
		return h
	}
	return make([]gradientSum, g.offset[len(g.offset)-1])
}

// recycle makes the histogram of a node available to takeHistogram.
func (g *grower) recycle(n *node) {
	if n.hist != nil {
		g.free = append(g.free, n.hist)
		n.hist = nil
	}
}

// histograms makes the histograms of children. It sums that of the smaller child of each parent
// from its rows; that of the larger child is the parent's minus the smaller one's, in the parent's
// memory. children has the left and the right child of each parent in turn.
func (g *grower) histograms(parents, children []*node) {
	small := make([]*node, len(parents))
	for i := range parents {
		small[i] = children[2*i]
		if r := children[2*i+1]; r.hi-r.lo < small[i].hi-small[i].lo {
			small[i] = r
		}
		small[i].hist = g.takeHistogram()
	}
	g.fillHistograms(small)
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
		large.hist = h
		parents[i].hist = nil
	}
}

// fillHistograms adds the rows of nodes to their histograms.
func (g *grower) fillHistograms(nodes []*node) {
	for _, n := range nodes {
		for _, c := range g.columns {
			sumColumn(n.hist[g.offset[c]:g.offset[c+1]], g.m.bins[c], g.rows[n.lo:n.hi], g.sums[n.lo:n.hi])
		}
	}
}

// sumColumn adds gradients and weights of rows to the bins of one column.
func sumColumn(hist []gradientSum, bins []uint8, rows []int32, sums []gradientSum) {
	for k, s := range sums {
		h := &hist[bins[rows[k]]]
		h.g += s.g
		h.h += s.h
	}
}

// bestSplitOf returns the split of a node that lowers the loss most; one of gain 0 if none lowers
// it.
func (g *grower) bestSplitOf(n *node) bestSplit {
	var best bestSplit
	parent := g.splitScore(n.sum)
	for _, c := range g.columns {
		hist := n.hist[g.offset[c]:g.offset[c+1]]
		var left gradientSum
		for b := range len(hist) - 1 { // after the last bin nothing is left for the right
			left.g += hist[b].g
			left.h += hist[b].h
			right := gradientSum{g: n.sum.g - left.g, h: n.sum.h - left.h}
			if left.h < g.o.MinChild || left.h <= 0 {
				continue
			}
			if right.h < g.o.MinChild || right.h <= 0 {
				break
			}
			if gain := g.splitScore(left) + g.splitScore(right) - parent; gain > best.gain {
				best = bestSplit{gain: gain, column: c, bin: b, left: left}
			}
		}
	}
	return best
}

// splitScore returns twice the loss that the best leaf for these rows removes.
func (g *grower) splitScore(sum gradientSum) float64 {
	if sum.h+g.o.Lambda <= 0 {
		return 0
	}
	s := softThreshold(sum.g, g.o.Alpha)
	return s * s / (sum.h + g.o.Lambda)
}

// softThreshold returns v moved towards 0 by a, at most to 0.
func softThreshold(v, a float64) float64 {
	switch {
	case v > a:
		return v - a
	case v < -a:
		return v + a
	}
	return 0
}
