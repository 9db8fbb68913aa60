package ridge

import (
	"math"
)

// Pull is what one interval does to a prediction v: the loss, half its slope and
// half its curvature there, all zero where the interval exerts no pull. v - Slope
// is the refreshed target (spec#interval-fit).
type Pull struct {
	Loss  float64 // us^2
	Slope float64 // us
	Bend  float64 // between 0 and 1
}

// Pull of row i on v. Without a spread it is the distance: loss d^2, nothing
// from inside, so that v - Slope is clip(v, lo, hi). With a spread s the target
// scatters about v by a logistic law of that scale, and the loss is what -log of
// the probability to fall between the ends is, up to a constant:
//
//	loss = 4 s^2 (log(1 + exp((lo-v)/s)) + log(1 + exp((v-hi)/s)))     [us^2]
//
// It is convex, equals (v - lo)^2 near an exact row (but for a constant), grows
// linearly far outside, so that a single late row pulls no harder than any other,
// and goes to the distance loss' flat floor a few s inside. A lower end at or
// below 0 exerts no pull: targets are not negative.
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

// farInside is how many spreads inside an end its pull vanishes (exp(-40) < 1e-17).
const farInside = 40

// silent reports whether row i exerts no pull on v.
func (b Bounds) silent(i int, v, spreadUs float64) bool {
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		return lo <= v && v <= hi
	}
	return hi-v > farInside*spreadUs && (v-lo > farInside*spreadUs || lo <= 0 && lo != hi)
}

// end adds the soft hinge of one end, z spreads beyond it.
func (p *Pull) end(z, sign, s float64) {
	e := math.Exp(-math.Abs(z))
	out, in := 1/(1+e), e/(1+e) // probabilities of a target beyond the end, and inside
	if z < 0 {
		out, in = in, out
	}
	p.Loss += 4 * s * s * (math.Max(z, 0) + math.Log1p(e))
	p.Slope += sign * 2 * s * out
	p.Bend += 2 * out * in
}

// minBend keeps the quadratic of a row on the linear part of its loss finite.
const minBend = 1e-3

// quadratic is the target and curvature of the row's local quadratic at v.
func (p Pull) quadratic(v float64) (y, bend float64) {
	bend = math.Max(p.Bend, minBend)
	return v - p.Slope/bend, bend
}
