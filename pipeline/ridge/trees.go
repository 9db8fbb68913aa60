package ridge

import (
	"math"
	"slices"
)

// TreeOptions bound the residual model.
type TreeOptions struct {
	MaxTrees int     // 50
	Depth    int     // 3
	Rate     float64 // share of each tree that is added, 0.1
	MinRows  int     // rows in a leaf, 20
	Bins     int     // thresholds per column, 32, at most 255
}

// DefaultTreeOptions are 50 trees of depth 3 at rate 0.1.
func DefaultTreeOptions() TreeOptions {
	return TreeOptions{MaxTrees: 50, Depth: 3, Rate: 0.1, MinRows: 20, Bins: 32}
}

// Trees is an additive correction per step: the prediction of a row gains
// steps * sum of leaf values at x/steps.
type Trees struct {
	Trees [][]TreeNode `json:"trees" yaml:"trees"`
}

// TreeNode is a split (x[Column]/steps <= Threshold goes Left) or, with Column
// -1, a leaf of Value us per step.
type TreeNode struct {
	Column    int     `json:"column" yaml:"column"`
	Threshold float64 `json:"threshold" yaml:"threshold"`
	Left      int     `json:"left" yaml:"left"`
	Right     int     `json:"right" yaml:"right"`
	Value     float64 `json:"value" yaml:"value"`
}

// Predict is the correction of one row, us.
func (t *Trees) Predict(x []float64, steps float64) float64 {
	var sum float64
	for _, tree := range t.Trees {
		at := 0
		for tree[at].Column >= 0 {
			n := tree[at]
			at = n.Right
			if x[n.Column]/steps <= n.Threshold {
				at = n.Left
			}
		}
		sum += tree[at].Value
	}
	return sum * steps
}

// ResidualModel is the outcome of Boost.
type ResidualModel struct {
	Trees      Trees
	RMSEBefore float64 // hold-out, us
	RMSEAfter  float64
	Kept       bool // RMSEAfter is smaller
}

// Boost fits trees to the residuals y - pred of the training rows under weights
// w. The number of trees is the one with the smallest weighted error on the last
// fifth in time of each run's training rows, then all are fitted again; the
// hold-out rows only decide whether the model is kept.
func Boost(d *Data, w, pred []float64, train, hold []int32, o TreeOptions) ResidualModel {
	var out ResidualModel
	out.RMSEBefore = math.Sqrt(residualSquares(d, pred, nil, hold, nil) / float64(len(hold)))
	out.RMSEAfter = out.RMSEBefore
	var early, late []int32
	for _, s := range runsOf(d, train) {
		cut := len(s.rows) * 4 / 5
		early, late = append(early, s.rows[:cut]...), append(late, s.rows[cut:]...)
	}
	if len(early) == 0 || len(hold) == 0 {
		return out
	}
	trial := boost(d, w, pred, early, o.MaxTrees, o)
	best, bestSquares := 0, residualSquares(d, pred, nil, late, w)
	for n := range trial.Trees {
		part := Trees{trial.Trees[:n+1]}
		if s := residualSquares(d, pred, &part, late, w); s < bestSquares {
			best, bestSquares = n+1, s
		}
	}
	out.Trees = boost(d, w, pred, train, best, o)
	out.RMSEAfter = math.Sqrt(residualSquares(d, pred, &out.Trees, hold, nil) / float64(len(hold)))
	out.Kept = out.RMSEAfter < out.RMSEBefore
	return out
}

// residualSquares is sum w(y - pred - trees)^2; w nil: 1.
func residualSquares(d *Data, pred []float64, t *Trees, rows []int32, w []float64) float64 {
	var ss float64
	for _, i := range rows {
		r := d.Y[i] - pred[i]
		if t != nil {
			r -= t.Predict(d.Row(int(i)), d.steps(int(i)))
		}
		if w != nil {
			r *= math.Sqrt(w[i])
		}
		ss += r * r
	}
	return ss
}

// grower grows trees over binned columns.
type grower struct {
	d      *Data
	o      TreeOptions
	rows   []int32
	bins   [][]uint8   // per column, per entry of rows
	edges  [][]float64 // per column
	weight []float64   // w*steps^2 per entry of rows
	resid  []float64   // residual per step per entry of rows
}

func boost(d *Data, w, pred []float64, rows []int32, trees int, o TreeOptions) Trees {
	g := &grower{d: d, o: o, rows: rows}
	g.bin()
	for _, i := range rows {
		s := d.steps(int(i))
		g.weight = append(g.weight, w[i]*s*s)
		g.resid = append(g.resid, (d.Y[i]-pred[i])/s)
	}
	var out Trees
	for range trees {
		tree := g.grow()
		if len(tree) == 1 {
			break
		}
		out.Trees = append(out.Trees, tree)
	}
	return out
}

// bin places the columns' values between evenly spaced quantiles.
func (g *grower) bin() {
	for j := range g.d.P {
		v := make([]float64, len(g.rows))
		for k, i := range g.rows {
			v[k] = g.d.Row(int(i))[j] / g.d.steps(int(i))
		}
		sorted := slices.Sorted(slices.Values(v))
		var edges []float64
		for b := 1; b < g.o.Bins; b++ {
			e := sorted[b*len(sorted)/g.o.Bins]
			if e < sorted[len(sorted)-1] && (len(edges) == 0 || e > edges[len(edges)-1]) {
				edges = append(edges, e)
			}
		}
		bins := make([]uint8, len(v))
		for k, x := range v {
			b, _ := slices.BinarySearch(edges, x)
			bins[k] = uint8(b)
		}
		g.edges, g.bins = append(g.edges, edges), append(g.bins, bins)
	}
}

// grow makes one tree and takes its correction out of the residuals.
func (g *grower) grow() []TreeNode {
	var tree []TreeNode
	g.split(&tree, allRows(len(g.rows)), g.o.Depth)
	return tree
}

// split appends the subtree over the given entries and returns its position.
func (g *grower) split(tree *[]TreeNode, at []int32, depth int) int {
	pos := len(*tree)
	*tree = append(*tree, TreeNode{Column: -1})
	column, bin := -1, uint8(0)
	if depth > 0 && len(at) >= 2*g.o.MinRows {
		column, bin = g.bestSplit(at)
	}
	if column < 0 {
		(*tree)[pos].Value = g.leaf(at)
		return pos
	}
	var left, right []int32
	for _, k := range at {
		if g.bins[column][k] <= bin {
			left = append(left, k)
		} else {
			right = append(right, k)
		}
	}
	l := g.split(tree, left, depth-1)
	r := g.split(tree, right, depth-1)
	(*tree)[pos] = TreeNode{Column: column, Threshold: g.edges[column][bin], Left: l, Right: r}
	return pos
}

// leaf is the damped weighted mean residual, taken out of the residuals.
func (g *grower) leaf(at []int32) float64 {
	var sw, sr float64
	for _, k := range at {
		sw += g.weight[k]
		sr += g.weight[k] * g.resid[k]
	}
	if sw <= 0 {
		return 0
	}
	value := g.o.Rate * sr / sw
	for _, k := range at {
		g.resid[k] -= value
	}
	return value
}

// bestSplit is the column and bin with the largest drop of weighted squares, or
// column -1; ties go to the first.
func (g *grower) bestSplit(at []int32) (int, uint8) {
	best, column, bin := 0.0, -1, uint8(0)
	var sw, sr [256]float64
	var n [256]int
	for j, edges := range g.edges {
		clear(sw[:])
		clear(sr[:])
		clear(n[:])
		var tw, tr float64
		for _, k := range at {
			b := g.bins[j][k]
			w := g.weight[k]
			sw[b], sr[b], n[b] = sw[b]+w, sr[b]+w*g.resid[k], n[b]+1
			tw, tr = tw+w, tr+w*g.resid[k]
		}
		var lw, lr float64
		ln := 0
		for b := range edges {
			lw, lr, ln = lw+sw[b], lr+sr[b], ln+n[b]
			if ln < g.o.MinRows || len(at)-ln < g.o.MinRows || lw <= 0 || tw-lw <= 0 {
				continue
			}
			gain := lr*lr/lw + (tr-lr)*(tr-lr)/(tw-lw) - tr*tr/tw
			if gain > best*(1+1e-12) {
				best, column, bin = gain, j, uint8(b)
			}
		}
	}
	return column, bin
}
