package ridge

// This file has the loss of an interval target: how it pulls a prediction that lies outside, or near an
// end.

import (
	"math"
)

// Pull is the effect of one interval on a prediction v: the loss, half its slope and half its
// curvature, all 0 where the interval exerts no pull. v - Slope is the refreshed target
// (spec#interval-fit).
type Pull struct {
	Loss  float64 // us^2
	Slope float64 // us
	Bend  float64 // between 0 and 1
}

// Pull returns the pull of the interval of row i on a prediction v. Without a spread the loss is
// the squared distance d^2 to the interval, 0 inside, so that v - Slope is clip(v, lo, hi). With a
// spread s the target scatters about v by a logistic law of scale s. The loss is then, up to a
// constant, -log of the probability that the target falls between the ends:
//
//	loss = 4 s^2 (log(1 + exp((lo-v)/s)) + log(1 + exp((v-hi)/s)))     [us^2]
//
// It is convex, and up to a constant equal to (v - lo)^2 near an exact target. Far outside it grows
// linearly, so that a single late row pulls no harder than any other. A few s inside it is flat,
// like the distance loss. A lower end at or below 0 exerts no pull: targets are not negative.
func (b Bounds) Pull(i int, v, spreadUs float64) Pull {
	return b.pull(i, v, spreadUs, b.widthFactor(i, spreadUs), true)
}

// widthFactor returns exp(-(hi-lo)/spreadUs) of row i, 0 without a spread. With it pull needs one
// exponential for both ends. A fit computes it once for each row.
func (b Bounds) widthFactor(i int, spreadUs float64) float64 {
	if spreadUs == 0 {
		return 0
	}
	return math.Exp((b.Lo[i] - b.Hi[i]) / spreadUs)
}

// widthFactors returns the width factors of the given rows.
func (b Bounds) widthFactors(rows []int32, spreadUs float64) []float64 {
	out := make([]float64, len(rows))
	for k, i := range rows {
		out[k] = b.widthFactor(int(i), spreadUs)
	}
	return out
}

// pull returns what Pull does, given the width factor of row i; the loss only withLoss, because a
// search along a line needs only slope and curvature.
func (b Bounds) pull(i int, v, spreadUs, widthFactor float64, withLoss bool) Pull {
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		if r := v - b.clip(i, v); r != 0 {
			return Pull{Loss: r * r, Slope: r, Bend: 1}
		}
		return Pull{}
	}
	if b.silent(i, v, spreadUs) {
		return Pull{}
	}
	// How many spreads the prediction lies beyond each end. At most one of them is positive, and
	// together they are minus the width of the interval.
	above := (v - hi) / spreadUs
	below := math.Inf(-1)
	if lo > 0 || lo == hi {
		below = (lo - v) / spreadUs
	}
	// exp(-|above|) and exp(-|below|); that of the nearer end gives the other.
	var expAbove, expBelow float64
	switch {
	case math.IsInf(below, -1):
		expAbove = math.Exp(-math.Abs(above))
	case above >= 0:
		expAbove = math.Exp(-above)
		expBelow = widthFactor * expAbove
	case below >= 0:
		expBelow = math.Exp(-below)
		expAbove = widthFactor * expBelow
	case above >= below:
		expAbove = math.Exp(above)
		expBelow = widthFactor / expAbove
	default:
		expBelow = math.Exp(below)
		expAbove = widthFactor / expBelow
	}
	// The slope has the probabilities of a target beyond the ends, the curvature their derivatives.
	p := Pull{
		Slope: 2 * spreadUs * (beyond(above, expAbove) - beyond(below, expBelow)),
		Bend:  2 * (expAbove/((1+expAbove)*(1+expAbove)) + expBelow/((1+expBelow)*(1+expBelow))),
	}
	if withLoss {
		out := math.Max(0, math.Max(above, below))
		p.Loss = 4 * spreadUs * spreadUs * (out + math.Log1p(expAbove+expBelow+expAbove*expBelow))
	}
	return p
}

// beyond returns the probability 1/(1 + exp(-z)), given exp(-|z|).
func beyond(z, exp float64) float64 {
	if z < 0 {
		return exp / (1 + exp)
	}
	return 1 / (1 + exp)
}

// farInside: an end exerts no pull on a prediction that is this many spreads inside it (exp(-40) <
// 1e-17).
const farInside = 40

// silent reports whether row i exerts no pull on v.
func (b Bounds) silent(i int, v, spreadUs float64) bool {
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		return lo <= v && v <= hi
	}
	return hi-v > farInside*spreadUs && (v-lo > farInside*spreadUs || lo <= 0 && lo != hi)
}

// minBend is the smallest curvature of a local quadratic. Far outside the interval the loss is a line
// without curvature, and the minimum of its quadratic would be infinitely far away.
const minBend = 1e-3

// quadratic returns the minimum and the curvature of the quadratic that approximates the loss at v.
func (p Pull) quadratic(v float64) (y, bend float64) {
	bend = math.Max(p.Bend, minBend)
	return v - p.Slope/bend, bend
}
