package ridge

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
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		if r := v - b.clip(i, v); r != 0 {
			return Pull{r * r, r, 1}
		}
		return Pull{}
	}
	var p Pull
	if b.silent(i, v, spreadUs) {
		return p
	}
	p.end((v-hi)/spreadUs, 1, spreadUs)
	if lo > 0 || lo == hi {
		p.end((lo-v)/spreadUs, -1, spreadUs)
	}
	return p
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

// end adds the loss of one end of the interval, 4 s^2 log(1 + exp(z)), with its half slope and half
// curvature. z is how many spreads s the prediction lies beyond this end; sign is 1 for the upper end
// and -1 for the lower.
func (p *Pull) end(z, sign, spreadUs float64) {
	e := math.Exp(-math.Abs(z))
	out, in := 1/(1+e), e/(1+e) // probabilities of a target beyond the end, and inside
	if z < 0 {
		out, in = in, out
	}
	p.Loss += 4 * spreadUs * spreadUs * (math.Max(z, 0) + math.Log1p(e))
	p.Slope += sign * 2 * spreadUs * out
	p.Bend += 2 * out * in
}

// minBend is the smallest curvature of a local quadratic. Far outside the interval the loss is a line
// without curvature, and the minimum of its quadratic would be infinitely far away.
const minBend = 1e-3

// quadratic returns the minimum and the curvature of the quadratic that approximates the loss at v.
func (p Pull) quadratic(v float64) (y, bend float64) {
	bend = math.Max(p.Bend, minBend)
	return v - p.Slope/bend, bend
}
