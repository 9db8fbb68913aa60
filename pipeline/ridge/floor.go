package ridge

import (
	"math"
	"slices"
)

// Constants of the noise floor.
const (
	floorNeighbours = 10
	floorMinRows    = 50
	floorMaxRows    = 20000
)

// Floor is what the nearest rows say a row should be: per row with query(i) the
// median y/steps of its 10 nearest other rows of the same configuration, times
// its steps. Distance is Euclidean on x_j/steps/scale_j, ties go to the earlier
// row. A configuration with more than 20,000 rows is evenly thinned first, and
// queries outside the thinned set are not answered. NaN where there is no
// answer: no query, thinned away, or fewer than 50 rows in the configuration.
func Floor(d *Data, scale []float64, query func(i int) bool, workers int) []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = math.NaN()
	}
	for _, c := range d.Configs() {
		var rows []int32
		for i, k := range d.Config {
			if k == c {
				rows = append(rows, int32(i))
			}
		}
		if len(rows) >= floorMinRows {
			floorConfig(d, scale, thin(rows, floorMaxRows), query, workers, out)
		}
	}
	return out
}

// thin keeps at most n rows, evenly spread.
func thin(rows []int32, n int) []int32 {
	if len(rows) <= n {
		return rows
	}
	out := make([]int32, n)
	for k := range out {
		out[k] = rows[k*len(rows)/n]
	}
	return out
}

func floorConfig(d *Data, scale []float64, rows []int32, query func(int) bool, workers int, out []float64) {
	t := newNeighbourTree(d, scale, rows)
	each(max(1, workers), len(rows), func(_, k int) {
		i := int(rows[k])
		if query(i) {
			out[i] = t.median(k) * d.steps(i)
		}
	})
}

// neighbourTree is a k-d tree over the rows' scaled points.
type neighbourTree struct {
	q      int       // coordinates: columns that vary
	points []float64 // in row order, len(level) x q
	level  []float64 // y/steps
	order  []int32   // positions, permuted by the tree
	nodes  []node
}

// node covers order[lo:hi); leaves have axis -1.
type node struct {
	lo, hi      int32
	axis        int32
	left, right int32
	min, max    []float64 // bounding box
}

const leafPoints = 16

func newNeighbourTree(d *Data, scale []float64, rows []int32) *neighbourTree {
	t := &neighbourTree{order: allRows(len(rows))}
	cols := varying(d, scale, rows)
	t.q = len(cols)
	for _, i := range rows {
		t.level = append(t.level, d.Y[i]/d.steps(int(i)))
		for _, j := range cols {
			t.points = append(t.points, d.Row(int(i))[j]/d.steps(int(i))/scale[j])
		}
	}
	t.build(0, int32(len(rows)))
	return t
}

// varying leaves out columns that add nothing to any distance.
func varying(d *Data, scale []float64, rows []int32) []int {
	var cols []int
	for j := range d.P {
		if scale[j] == 0 {
			continue
		}
		first := d.Row(int(rows[0]))[j] / d.steps(int(rows[0]))
		for _, i := range rows {
			if d.Row(int(i))[j]/d.steps(int(i)) != first {
				cols = append(cols, j)
				break
			}
		}
	}
	return cols
}

func (t *neighbourTree) point(k int32) []float64 {
	return t.points[int(k)*t.q : (int(k)+1)*t.q]
}

func (t *neighbourTree) build(lo, hi int32) int32 {
	n := node{lo: lo, hi: hi, axis: -1}
	n.min, n.max = t.box(lo, hi)
	at := int32(len(t.nodes))
	t.nodes = append(t.nodes, n)
	axis, width := int32(-1), 0.0
	for j := range t.q {
		if w := n.max[j] - n.min[j]; w > width {
			axis, width = int32(j), w
		}
	}
	if hi-lo <= leafPoints || axis < 0 {
		return at
	}
	part := t.order[lo:hi]
	slices.SortFunc(part, func(a, b int32) int {
		switch x, y := t.point(a)[axis], t.point(b)[axis]; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return int(a - b)
	})
	mid := (lo + hi) / 2
	left := t.build(lo, mid)
	right := t.build(mid, hi)
	t.nodes[at].axis, t.nodes[at].left, t.nodes[at].right = axis, left, right
	return at
}

func (t *neighbourTree) box(lo, hi int32) (lower, upper []float64) {
	lower = slices.Clone(t.point(t.order[lo]))
	upper = slices.Clone(lower)
	for _, k := range t.order[lo+1 : hi] {
		for j, x := range t.point(k) {
			lower[j], upper[j] = math.Min(lower[j], x), math.Max(upper[j], x)
		}
	}
	return lower, upper
}

// nearest holds the best candidates so far, ascending by (distance, position).
type nearest struct {
	self int32
	n    int
	dist [floorNeighbours]float64
	pos  [floorNeighbours]int32
}

func (b *nearest) worst() float64 {
	if b.n < floorNeighbours {
		return math.Inf(1)
	}
	return b.dist[b.n-1]
}

func (b *nearest) offer(dist float64, pos int32) {
	before := func(k int) bool {
		return dist < b.dist[k] || dist == b.dist[k] && pos < b.pos[k]
	}
	if b.n == floorNeighbours && !before(b.n-1) {
		return
	}
	if b.n < floorNeighbours {
		b.n++
	}
	k := b.n - 1
	for k > 0 && before(k-1) {
		b.dist[k], b.pos[k] = b.dist[k-1], b.pos[k-1]
		k--
	}
	b.dist[k], b.pos[k] = dist, pos
}

// median is the median level of the 10 nearest other points.
func (t *neighbourTree) median(k int) float64 {
	best := nearest{self: int32(k)}
	t.search(0, t.point(int32(k)), &best)
	levels := make([]float64, best.n)
	for i := range levels {
		levels[i] = t.level[best.pos[i]]
	}
	return Median(levels)
}

func (t *neighbourTree) search(at int32, x []float64, best *nearest) {
	n := &t.nodes[at]
	if n.axis < 0 {
		for _, k := range t.order[n.lo:n.hi] {
			if k == best.self {
				continue
			}
			best.offer(distance(x, t.point(k)), k)
		}
		return
	}
	l, r := t.gap(n.left, x), t.gap(n.right, x)
	first, second := n.left, n.right
	if r < l {
		first, second, l, r = second, first, r, l
	}
	if l <= best.worst() {
		t.search(first, x, best)
	}
	if r <= best.worst() {
		t.search(second, x, best)
	}
}

func distance(a, b []float64) float64 {
	var sum float64
	for j, v := range a {
		sum += (v - b[j]) * (v - b[j])
	}
	return sum
}

// gap is the squared distance to a node's box, never above that to a point in it.
func (t *neighbourTree) gap(at int32, x []float64) float64 {
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
	return sum * (1 - 1e-12)
}
