package stat

// This file finds the points nearest to a point, with a tree.

import (
	"cmp"
	"math"
	"slices"
)

// nearestPoints is the number of neighbours that Median uses.
const nearestPoints = 10

// Neighbours is a k-d tree of points, each with a level, the number that is predicted from its
// neighbours.
type Neighbours struct {
	dim    int       // coordinates of a point
	points []float64 // row-major
	level  []float64 // by point
	order  []int32   // points, permuted so that those of a node are side by side
	nodes  []node    // the root first
}

// node is a node of the tree, over the points order[lo:hi].
type node struct {
	lo, hi      int32
	axis        int32     // coordinate by which the points are divided among left and right; -1: a leaf
	left, right int32     // positions in nodes
	min, max    []float64 // bounding box
}

// leafPoints is the largest number of points in a leaf of the tree.
const leafPoints = 16

// NewNeighbours returns the tree over points of the given dimension (row-major), each with a level.
// gonum's kdtree takes 1.8 times as long for 5,000 points of 12 dimensions, and does not define
// which of equally far points it keeps.
func NewNeighbours(points []float64, dim int, level []float64) *Neighbours {
	t := &Neighbours{dim: dim, points: points, level: level, order: make([]int32, len(level))}
	for k := range t.order {
		t.order[k] = int32(k)
	}
	t.build(0, int32(len(level)))
	return t
}

// Median returns the median level of the 10 points nearest to point k, without k itself, by
// Euclidean distance. Of equally far points the earlier ones count. It returns NaN for a single
// point.
func (t *Neighbours) Median(k int) float64 {
	best := nearest{self: int32(k)}
	t.search(0, t.point(int32(k)), &best)
	levels := make([]float64, best.n)
	for i := range levels {
		levels[i] = t.level[best.pos[i]]
	}
	slices.Sort(levels)
	return Quantile(levels, 0.5)
}

// point returns the coordinates of point k.
func (t *Neighbours) point(k int32) []float64 { return t.points[int(k)*t.dim : (int(k)+1)*t.dim] }

// build adds the node of order[lo:hi] and those below it, split at the median of the widest axis,
// and returns its index.
func (t *Neighbours) build(lo, hi int32) int32 {
	n := node{lo: lo, hi: hi, axis: -1}
	n.min, n.max = t.box(lo, hi)
	at := int32(len(t.nodes))
	t.nodes = append(t.nodes, n)
	axis, width := int32(-1), 0.0
	for j := range t.dim {
		if w := n.max[j] - n.min[j]; w > width {
			axis, width = int32(j), w
		}
	}
	if hi-lo <= leafPoints || axis < 0 {
		return at
	}
	slices.SortStableFunc(t.order[lo:hi], func(a, b int32) int {
		return cmp.Or(cmp.Compare(t.point(a)[axis], t.point(b)[axis]), cmp.Compare(a, b))
	})
	mid := (lo + hi) / 2
	left := t.build(lo, mid)
	right := t.build(mid, hi)
	t.nodes[at].axis = axis
	t.nodes[at].left = left
	t.nodes[at].right = right
	return at
}

// box returns the bounding box of order[lo:hi].
func (t *Neighbours) box(lo, hi int32) (lower, upper []float64) {
	lower = slices.Clone(t.point(t.order[lo]))
	upper = slices.Clone(lower)
	for _, k := range t.order[lo+1 : hi] {
		for j, x := range t.point(k) {
			lower[j], upper[j] = math.Min(lower[j], x), math.Max(upper[j], x)
		}
	}
	return lower, upper
}

// search offers the points below node at to best, those of the half nearer to x first.
func (t *Neighbours) search(at int32, x []float64, best *nearest) {
	n := &t.nodes[at]
	if n.axis < 0 {
		for _, k := range t.order[n.lo:n.hi] {
			if k != best.self {
				best.offer(squaredDistance(x, t.point(k)), k)
			}
		}
		return
	}
	// A half whose box lies farther from x than the worst point so far has none to offer.
	near, far := t.gap(n.left, x), t.gap(n.right, x)
	first, second := n.left, n.right
	if far < near {
		first, second, near, far = second, first, far, near
	}
	if near <= best.worst() {
		t.search(first, x, best)
	}
	if far <= best.worst() {
		t.search(second, x, best)
	}
}

// gap returns the squared distance of x to a node's box, which is at most that to any point in it.
func (t *Neighbours) gap(at int32, x []float64) float64 {
	n := &t.nodes[at]
	var sum float64
	for j, v := range x {
		switch {
		case v < n.min[j]:
			sum += (n.min[j] - v) * (n.min[j] - v)
		case v > n.max[j]:
			sum += (v - n.max[j]) * (v - n.max[j])
		}
	}
	return sum * (1 - 1e-9) // distances are rounded to a relative 2^-33 (roundTies), which must not exclude a box
}

// nearest has the nearest points so far, ascending by distance and position.
type nearest struct {
	self int32                  // the point whose neighbours are sought, which is none of them
	n    int                    // number of points so far
	dist [nearestPoints]float64 // squared
	pos  [nearestPoints]int32   // the points
}

// worst returns the squared distance that a candidate must not exceed.
func (b *nearest) worst() float64 {
	if b.n < nearestPoints {
		return math.Inf(1)
	}
	return b.dist[b.n-1]
}

// offer inserts a point at a squared distance if it is nearer than the last of the nearest.
func (b *nearest) offer(dist float64, pos int32) {
	before := func(k int) bool { return dist < b.dist[k] || dist == b.dist[k] && pos < b.pos[k] }
	if b.n == nearestPoints && !before(b.n-1) {
		return
	}
	if b.n < nearestPoints {
		b.n++
	}
	k := b.n - 1
	for k > 0 && before(k-1) {
		b.dist[k], b.pos[k] = b.dist[k-1], b.pos[k-1]
		k--
	}
	b.dist[k], b.pos[k] = dist, pos
}

// squaredDistance returns the squared distance, rounded so that distances which differ only by
// rounding errors are ties.
func squaredDistance(a, b []float64) float64 {
	var sum float64
	for j, v := range a {
		sum += (v - b[j]) * (v - b[j])
	}
	return roundTies(sum)
}

// tieBits is the number of bits, of the 52 in a distance's fraction, that decide which point is
// nearer.
const tieBits = 32

// roundTies returns a positive number rounded to tieBits. Rows of one batch shape have the same
// features, so equal distances are common. Without rounding their order would depend on the last
// bit, which differs between architectures, and so would the noise floor and the gate beta_skill.
func roundTies(v float64) float64 {
	const dropped = 52 - tieBits
	bits := math.Float64bits(v) + 1<<(dropped-1)
	return math.Float64frombits(bits &^ (1<<dropped - 1))
}
