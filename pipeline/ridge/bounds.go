package ridge

// This file has targets that are known only as intervals: how far a prediction is from them, and the
// scatter and the multiple of a prediction that agree with them best.

import (
	"math"
)

// Bounds are targets known as intervals: the target of row i lies in [Lo[i], Hi[i]] us; equal ends
// are an exact target. Rows with Hi < 0 must be dropped before.
type Bounds struct{ Lo, Hi []float64 }

// Subset returns the bounds of the given rows.
func (b Bounds) Subset(rows []int32) Bounds {
	var out Bounds
	for _, i := range rows {
		out.Lo = append(out.Lo, b.Lo[i])
		out.Hi = append(out.Hi, b.Hi[i])
	}
	return out
}

// clip returns the value in the interval of row i nearest to v.
func (b Bounds) clip(i int, v float64) float64 {
	return math.Min(math.Max(v, b.Lo[i]), b.Hi[i])
}

// Distance returns how far v lies outside the interval of row i, in us: max(0, lo - v, v - hi).
func (b Bounds) Distance(i int, v float64) float64 { return math.Abs(v - b.clip(i, v)) }

// Score returns the mean over configurations of sum w*loss/(1000 us)^2 on the given rows; NaN
// without rows. pred is the prediction of a row in us.
func (b Bounds) Score(d *Data, w []float64, rows []int32, spreadUs float64, pred func(i int32) float64) float64 {
	sums := map[int32]float64{}
	var order []int32 // configurations as they come, for the same sum in every run
	for _, i := range rows {
		c := d.Config[i]
		if _, isKnown := sums[c]; !isKnown {
			order = append(order, c)
		}
		sums[c] += w[i] * b.Pull(int(i), pred(i), spreadUs).Loss / (censoredYBarUs * censoredYBarUs)
	}
	if len(order) == 0 {
		return math.NaN()
	}
	var total float64
	for _, c := range order {
		total += sums[c]
	}
	return total / float64(len(order))
}

// agree reports whether m*pred lies in every interval and at least one row is exact.
func (b Bounds) agree(pred []float64, rows []int32, m float64) bool {
	isExact := false
	for _, i := range rows {
		if b.Distance(int(i), m*pred[i]) > resolutionUs {
			return false
		}
		isExact = isExact || b.Lo[i] == b.Hi[i]
	}
	return isExact
}

// resolutionUs is the width that an exact target counts with, and the distance that still counts as
// inside.
const resolutionUs = 1

// surprise returns -log of the probability that a target scattered about v by a logistic law of
// scale spreadUs falls into the interval of row i. The loss of Pull is this but for a term that
// depends on the spread, not on v; comparing spreads needs that term.
func (b Bounds) surprise(i int, v, spreadUs float64) float64 {
	out := b.Pull(i, v, spreadUs).Loss / (4 * spreadUs * spreadUs)
	if lo, hi := b.Lo[i], b.Hi[i]; lo > 0 || lo == hi {
		out -= math.Log(-math.Expm1(-math.Max(hi-lo, resolutionUs) / spreadUs))
	}
	return out
}

// Spread returns the scale in the grid (ascending, us) at which the intervals are most likely, when
// targets scatter by a logistic law about the best multiple of pred; of equally likely scales the
// largest. It is 0 when one multiple satisfies every interval and an exact row determines it.
func (b Bounds) Spread(w, pred []float64, rows []int32, grid []float64) float64 {
	if b.agree(pred, rows, b.Multiple(w, pred, rows, 0, 0)) {
		return 0
	}
	best, bestLoss := grid[0], math.Inf(1)
	for _, s := range grid {
		m := b.Multiple(w, pred, rows, s, 0)
		var loss float64
		for _, i := range rows {
			loss += w[i] * b.surprise(int(i), m*pred[i], s)
		}
		if loss <= bestLoss {
			best, bestLoss = s, loss
		}
	}
	return best
}

// Multiple returns the smallest m >= 0 at which m*pred meets the intervals of the rows best. It
// minimises sum w*loss + tight*(m - 1)^2, which is convex in m; tight, in us^2, pulls m toward 1.
// With tight 0 and rows that exert no pull it returns 0.
func (b Bounds) Multiple(w, pred []float64, rows []int32, spreadUs, tight float64) float64 {
	width := b.widthFactors(rows, spreadUs)
	// slope returns half the first and the second derivative at m.
	slope := func(m float64) (first, second float64) {
		first = tight * (m - 1)
		second = tight
		for k, i := range rows {
			if p := b.pull(int(i), m*pred[i], spreadUs, width[k], false); p != (Pull{}) {
				first += w[i] * pred[i] * p.Slope
				second += w[i] * pred[i] * pred[i] * p.Bend
			}
		}
		return first, second
	}
	lo, hi := 0.0, 1.0
	if first, _ := slope(lo); !(first < 0) {
		return 0
	}
	// The slope never falls, so doubling the upper end until it is positive brackets the minimum.
	for first, _ := slope(hi); first < 0 && hi < maxMultiple; first, _ = slope(hi) {
		lo, hi = hi, 2*hi
	}
	m := hi
	for range multipleSteps { // Newton steps inside a shrinking bracket
		first, second := slope(m)
		if first < 0 {
			lo = m
		} else {
			hi = m
		}
		next := m - first/second
		if !(next > lo && next < hi) {
			next = (lo + hi) / 2
		}
		if math.Abs(next-m) <= multipleTol*m {
			break
		}
		m = next
	}
	return m
}

// Limits of Multiple: the largest, its steps, and the relative step that ends them.
const (
	maxMultiple   = 1 << 40
	multipleSteps = 100
	multipleTol   = 1e-12
)

// withAnchor returns the options of an interval fit with Prior set to the multiple of the anchor
// that meets the intervals of the rows best.
func (o *Options) withAnchor(d *Data, b Bounds, w []float64, rows []int32) *Options {
	if o.Anchor == nil {
		return o
	}
	m := b.Multiple(w, Predict(d, o.Anchor), rows, o.SpreadUs, o.AnchorTight)
	out := *o
	out.Prior = make([]float64, len(o.Anchor))
	for j, v := range o.Anchor {
		out.Prior[j] = m * v
	}
	return &out
}
