package predictor

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
func (g *grower) best(n *node) treesSplit {
	var best treesSplit
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
				best = treesSplit{gain, c, b, left}
			}
		}
	}
	return best
}

// weight minimises  sum.g*v + (sum.h+lambda)*v^2/2 + alpha*|v|.
func (g *grower) weight(sum cell) float64 {
	if sum.h+g.o.Lambda <= 0 {
		return 0
	}
	return -shrink(sum.g, g.o.Alpha) / (sum.h + g.o.Lambda)
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
