package ridge

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// Pull is what one interval does to a prediction v: the loss, half its slope and
// half its curvature there, all zero where the interval says nothing. v - Slope
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
// below 0 says nothing: targets are not negative.
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

// farInside is how many spreads inside an end says nothing (exp(-40) < 1e-17).
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
	e := stat.Exp(-math.Abs(z))
	out, in := 1/(1+e), e/(1+e) // probabilities of a target beyond the end, and inside
	if z < 0 {
		out, in = in, out
	}
	p.Loss += float64(4 * s * s * (math.Max(z, 0) + stat.Log1p(e)))
	p.Slope += float64(sign * 2 * s * out)
	p.Bend += float64(2 * out * in)
}

// minBend keeps the quadratic of a row on the linear part of its loss finite.
const minBend = 1e-3

// quadratic is the target and curvature of the row's local quadratic at v.
func (p Pull) quadratic(v float64) (y, bend float64) {
	bend = math.Max(p.Bend, minBend)
	return v - p.Slope/bend, bend
}

// Multiple is the smallest m >= 0 for which m*pred meets the intervals of the
// rows best: the minimum of sum w loss + tight*(m - 1)^2, tight in us^2, which is
// convex in m. With tight 0 the rows alone decide; rows that say nothing give 0.
func (b Bounds) Multiple(w, pred []float64, rows []int32, spreadUs, tight float64) float64 {
	slope := func(m float64) (first, second float64) {
		first, second = tight*(m-1), tight
		for _, i := range rows {
			if p := b.Pull(int(i), m*pred[i], spreadUs); p != (Pull{}) {
				first, second = first+float64(w[i]*pred[i]*p.Slope), second+float64(w[i]*pred[i]*pred[i]*p.Bend)
			}
		}
		return first, second
	}
	lo, hi := 0.0, 1.0
	if first, _ := slope(lo); !(first < 0) {
		return 0
	}
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

// Spread is the scale of the grid (ascending, us) at which the intervals are
// likeliest when every target scatters by a logistic law about the multiple of
// pred that meets them best; the largest of equals. It is 0 when one multiple
// meets every interval and exact rows tell which.
func (b Bounds) Spread(w, pred []float64, rows []int32, grid []float64) float64 {
	if b.agree(pred, rows, b.Multiple(w, pred, rows, 0, 0)) {
		return 0
	}
	best, bestLoss := grid[0], math.Inf(1)
	for _, s := range grid {
		m := b.Multiple(w, pred, rows, s, 0)
		var loss float64
		for _, i := range rows {
			loss += float64(w[i] * b.surprise(int(i), m*pred[i], s))
		}
		if loss <= bestLoss {
			best, bestLoss = s, loss
		}
	}
	return best
}

// agree reports whether every interval holds m*pred, one of them an exact row.
func (b Bounds) agree(pred []float64, rows []int32, m float64) bool {
	told := false
	for _, i := range rows {
		if b.Distance(int(i), m*pred[i]) > resolutionUs {
			return false
		}
		told = told || b.Lo[i] == b.Hi[i]
	}
	return told
}

// surprise is -log of the probability that a target about v falls between the
// ends of row i: what Pull leaves out is the same for every v, not for every s.
func (b Bounds) surprise(i int, v, spreadUs float64) float64 {
	out := b.Pull(i, v, spreadUs).Loss / (4 * spreadUs * spreadUs)
	if lo, hi := b.Lo[i], b.Hi[i]; lo > 0 || lo == hi {
		out -= stat.Log(-stat.Expm1(-math.Max(hi-lo, resolutionUs) / spreadUs))
	}
	return out
}

// resolutionUs is the width of an exact row.
const resolutionUs = 1

// Limits of Multiple: the largest, its steps, and the relative step that ends them.
const (
	maxMultiple   = 1 << 40
	multipleSteps = 100
	multipleTol   = 1e-12
)

// withAnchor are the options with the prior of an interval fit: the multiple of
// the anchor that meets the intervals of the rows best.
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

// Bounds say that the target of row i lies in [Lo[i], Hi[i]] us; equal ends are
// an exact row. Rows with Hi < 0 must be dropped before.
type Bounds struct{ Lo, Hi []float64 }

// Subset are the bounds of the given rows.
func (b Bounds) Subset(rows []int32) Bounds {
	var out Bounds
	for _, i := range rows {
		out.Lo, out.Hi = append(out.Lo, b.Lo[i]), append(out.Hi, b.Hi[i])
	}
	return out
}

// clip is the value of the interval of row i nearest to v.
func (b Bounds) clip(i int, v float64) float64 {
	return math.Min(math.Max(v, b.Lo[i]), b.Hi[i])
}

// Distance is max(0, lo - v, v - hi).
func (b Bounds) Distance(i int, v float64) float64 { return math.Abs(float64(v) - b.clip(i, v)) }

// Score is the mean over configurations of sum w loss/(1000 us)^2 on the rows.
func (b Bounds) Score(d *Data, w []float64, rows []int32, spreadUs float64, pred func(i int32) float64) float64 {
	sums := map[int32]*[1]float64{}
	var order []int32
	for _, i := range rows {
		c := d.Config[i]
		if sums[c] == nil {
			sums[c] = new([1]float64)
			order = append(order, c)
		}
		sums[c][0] += w[i] * b.Pull(int(i), pred(i), spreadUs).Loss / (censoredYBarUs * censoredYBarUs)
	}
	if len(order) == 0 {
		return math.NaN()
	}
	var total float64
	for _, c := range order {
		total += sums[c][0]
	}
	return total / float64(len(order))
}

// Constants of the interval-censored fit (spec#interval-fit).
const (
	censoredYBarUs    = 1000
	maxCensoredPasses = 10000
)
