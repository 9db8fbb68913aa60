package stat

import (
	"cmp"
	"math"
	"slices"
)

// minTargetUs is the |y| under which a row has no relative error.
const minTargetUs = 1

// Rows are targets with what is predicted of them, us.
type Rows struct {
	Y, Pred []float64
	Steps   []float64 // engine steps a row covers; nil: 1
	Const   []float64 // predictions of the best constant; nil or NaN: unknown
	Floor   []float64 // predictions of the nearest rows; nil or NaN: unknown
	Outlier []bool    // left out of the largest error; nil: none
}

// Errors are the errors of predictions on a set of rows; NaN where no row tells.
type Errors struct {
	Rows     int // rows with a prediction
	Excluded int // of these, rows with |y| < 1 us: left out of the relative errors

	MAPE      float64 // mean of |pred - y|/|y|
	MAPEConst float64 // that of the best constant
	MAPEFloor float64 // that of the nearest rows, where they are known
	Skill     float64 // see Skill
	MedianAPE float64
	P95APE    float64
	WAPE      float64 // sum |pred - y| / sum |y|
	Bias      float64 // sum(pred - y) / sum y
	RMSEUs    float64
	MAEUs     float64 // mean of |pred - y|, us
	// MaxErrorRatio is the largest |pred - y| over the median y, outliers left out unless they are many.
	MaxErrorRatio  float64
	Outliers       int
	LargestOutlier float64 // their largest |pred - y| over the median y
}

// outlierShare is the share of rows that may be left out of the largest error (spec#outliers).
const outlierShare = 0.01

// HasFewOutliers reports whether outliers may be left out of the largest error.
func (e *Errors) HasFewOutliers() bool { return float64(e.Outliers) <= outlierShare*float64(e.Rows) }

// Errors compares the predictions with the targets on the rows keep says yes to
// (nil: all). Rows without a prediction (NaN) do not count.
func (r *Rows) Errors(keep func(i int) bool) Errors {
	nan := math.NaN()
	e := Errors{
		MAPE: nan, MAPEConst: nan, MAPEFloor: nan, Skill: nan, MedianAPE: nan, P95APE: nan,
		WAPE: nan, Bias: nan, RMSEUs: nan, MAEUs: nan, MaxErrorRatio: nan, LargestOutlier: nan,
	}
	var sumAbs, sumDiff, sumY, sumAbsY, squares, largest, outlier float64
	n := r.count(keep)
	ape := make([]float64, 0, n)
	targets := make([]float64, 0, n)
	for i, y := range r.Y {
		if keep != nil && !keep(i) || math.IsNaN(r.Pred[i]) {
			continue
		}
		d := r.Pred[i] - y
		e.Rows++
		sumAbs += math.Abs(d)
		sumDiff += d
		squares += d * d
		sumY, sumAbsY = sumY+y, sumAbsY+math.Abs(y)
		if r.Outlier != nil && r.Outlier[i] {
			e.Outliers, outlier = e.Outliers+1, math.Max(outlier, math.Abs(d))
		} else {
			largest = math.Max(largest, math.Abs(d))
		}
		targets = append(targets, y)
		if math.Abs(y) < minTargetUs {
			e.Excluded++
			continue
		}
		ape = append(ape, math.Abs(d/y))
	}
	if e.Rows == 0 {
		return e
	}
	e.WAPE, e.Bias, e.RMSEUs = sumAbs/sumAbsY, sumDiff/sumY, math.Sqrt(squares/float64(e.Rows))
	e.MAEUs = sumAbs / float64(e.Rows)
	slices.Sort(targets)
	median := Quantile(targets, 0.5)
	if e.Outliers > 0 {
		e.LargestOutlier = outlier / median
	}
	if !e.HasFewOutliers() {
		largest = math.Max(largest, outlier)
	}
	e.MaxErrorRatio = largest / median
	e.MAPE = Mean(ape)
	slices.Sort(ape)
	e.MedianAPE, e.P95APE = Quantile(ape, 0.5), Quantile(ape, 0.95)
	e.MAPEConst, e.MAPEFloor = r.mape(r.Const, keep), r.mape(r.Floor, keep)
	e.Skill = skill(e.MAPE, e.MAPEConst, e.MAPEFloor)
	return e
}

// mape is the mean absolute percentage error of other predictions of the rows.
func (r *Rows) mape(pred []float64, keep func(i int) bool) float64 {
	var sum float64
	n := 0
	for i := range pred {
		if y := r.Y[i]; (keep == nil || keep(i)) && !math.IsNaN(pred[i]) && math.Abs(y) >= minTargetUs {
			sum, n = sum+math.Abs((pred[i]-y)/y), n+1
		}
	}
	return sum / float64(n)
}

// skill is 1 - (mape - floor)/(constant - floor): 1 at the noise floor, 0 at the
// best constant; NaN when the two leave nothing to explain.
func skill(mape, constant, floor float64) float64 {
	if !(constant > floor) {
		return math.NaN()
	}
	return 1 - (mape-floor)/(constant-floor)
}

// BestConstant is the target per step that minimises the mean absolute
// percentage error of the rows keep says yes to (nil: all) when every row is
// predicted by it times its steps: the median of y/steps weighted by steps/|y|.
// NaN without rows.
func (r *Rows) BestConstant(keep func(i int) bool) float64 {
	n := r.count(keep)
	level := make([]float64, 0, n)
	weight := make([]float64, 0, n)
	for i, y := range r.Y {
		if (keep == nil || keep(i)) && math.Abs(y) >= minTargetUs {
			level = append(level, y/r.steps(i))
			weight = append(weight, r.steps(i)/math.Abs(y))
		}
	}
	return WeightedMedian(level, weight)
}

// count is how many rows keep says yes to: memory for them is allocated once.
func (r *Rows) count(keep func(i int) bool) int {
	if keep == nil {
		return len(r.Y)
	}
	n := 0
	for i := range r.Y {
		if keep(i) {
			n++
		}
	}
	return n
}

func (r *Rows) steps(i int) float64 {
	if r.Steps == nil {
		return 1
	}
	return r.Steps[i]
}

// nearestPoints is how many neighbours speak for a point.
const nearestPoints = 10

// Neighbours finds the nearest points of a point in a k-d tree.
type Neighbours struct {
	dim    int
	points []float64 // row-major
	level  []float64
	order  []int32 // positions, permuted by the tree
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

// NewNeighbours builds the tree over points of the given dimension (row-major),
// each with a level.
func NewNeighbours(points []float64, dim int, level []float64) *Neighbours {
	t := &Neighbours{dim: dim, points: points, level: level, order: make([]int32, len(level))}
	for k := range t.order {
		t.order[k] = int32(k)
	}
	t.build(0, int32(len(level)))
	return t
}

// Median is the median level of the 10 points nearest to point k, itself left
// out; Euclidean distance, ties to the earlier point. NaN for a point alone.
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

func (t *Neighbours) point(k int32) []float64 { return t.points[int(k)*t.dim : (int(k)+1)*t.dim] }

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
	slices.SortFunc(t.order[lo:hi], func(a, b int32) int {
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

// nearest holds the best candidates so far, ascending by (distance, position).
type nearest struct {
	self int32
	n    int
	dist [nearestPoints]float64
	pos  [nearestPoints]int32
}

// worst is the distance a candidate must not exceed.
func (b *nearest) worst() float64 {
	if b.n < nearestPoints {
		return math.Inf(1)
	}
	return b.dist[b.n-1]
}

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

func squaredDistance(a, b []float64) float64 {
	var sum float64
	for j, v := range a {
		sum += (v - b[j]) * (v - b[j])
	}
	return sum
}

// gap is the squared distance to a node's box, never above that to a point in it.
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
	return sum * (1 - 1e-12)
}

// band is how values are distributed in one group of neighbours along x.
type band struct {
	X             float64 // mean of the group
	P10, P50, P90 float64 // quantiles of the values
	N             int
}

// Bands sorts the values by x and cuts them into groups of equal size: at most
// groups, each with at least least values; none when there are fewer.
func Bands(x, v []float64, groups, least int) []band {
	order := Order(x)
	n := len(order)
	groups = min(groups, n/least)
	out := make([]band, 0, groups)
	for g := range groups {
		part := order[g*n/groups : (g+1)*n/groups]
		band := band{N: len(part)}
		values := make([]float64, len(part))
		for k, i := range part {
			values[k] = v[i]
			band.X += x[i] / float64(len(part))
		}
		slices.Sort(values)
		band.P10, band.P50, band.P90 = Quantile(values, 0.1), Quantile(values, 0.5), Quantile(values, 0.9)
		out = append(out, band)
	}
	return out
}
