package ridge

// This file fits a model to targets that are known only as intervals (spec#interval-fit):
// Data.FitCensored, its passes, and CensoredErrors, which compares predictions with intervals.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// CensoredFit is a fit to intervals. The certificate in Fit is that of the last refreshed target.
type CensoredFit struct {
	Fit    Fit
	Passes int // refreshes of the target
	// Y and Bend, in the order of the rows, are the quadratic the loss is at the
	// answer: Bend*(Y - x.beta)^2, Bend 0 for a row that exerts no pull.
	Y, Bend []float64
}

// FitCensored returns the fit of one lambda on interval targets (spec#interval-fit), on the given
// rows (nil: all). The weights w are constant in a cell ([CensoredWeights]) and ybar is fixed at
// 1000 us. With Options.Anchor the penalty pulls toward the anchor's best multiple.
//
// Each row gets a target, at first the lower end Lo, and the fit alternates between solving for the
// targets and refreshing them (v - Pull.Slope), until the certificate (spec#certificate) is true
// for the refreshed targets. A pass tries a Newton step first: the minimum of the local quadratic
// over the rows that exert a pull. If that does not lower the objective it uses the minimum for the
// refreshed targets, which always does.
func (d *Data) FitCensored(b Bounds, w []float64, rows []int32, lambda float64, o Options) (CensoredFit, error) {
	if rows == nil {
		rows = d.AllRows()
	}
	c := newCensored(d, b, w, rows, &o)
	passes, err := c.fit(lambda)
	if err != nil {
		return CensoredFit{Passes: passes}, err
	}
	// The certificate has to be that of the refreshed target on all rows, so the solver
	// gets its Gram matrix and the current point once more.
	c.refresh()
	c.solver.normalise(c.gram(c.rows, c.w))
	copy(c.solver.gamma, c.current)
	c.solver.gradient(lambda)
	f, err := c.solver.fit(lambda)
	f.Objective = c.value
	out := CensoredFit{Fit: f, Passes: passes, Y: make([]float64, len(rows)), Bend: make([]float64, len(rows))}
	for k, p := range c.pulls {
		if out.Y[k] = c.target[k]; p != (Pull{}) {
			out.Y[k], out.Bend[k] = p.quadratic(c.pred[k])
		}
	}
	return out, err
}

// censored is the state of one interval fit.
type censored struct {
	d       *Data
	b       Bounds
	w       []float64
	rows    []int32
	o       *Options
	solver  *solver
	all     *Gram // all rows with target Lo
	started bool
	width   []float64 // width factors, per entry of rows
	pred    []float64 // prediction at beta, per entry of rows
	target  []float64 // refreshed, per entry of rows
	pulls   []Pull    // per entry of rows
	loss    float64   // scaled loss at beta, without the penalty
	value   float64   // objective at beta
	current []float64 // gamma at beta
	beta    []float64
	out     []int     // entries of rows that exert a pull at beta
	grad    []float64 // scaled half gradient of the loss at beta
	bent    []float64 // weight times curvature, per row of d, of the entries in out
	acc     *Accumulator
	view    Data
	moved   []int     // memory for search
	by      []float64 // memory for search
}

// newCensored returns the state before the first pass, with the solver scaled by the targets Lo.
func newCensored(d *Data, b Bounds, w []float64, rows []int32, o *Options) *censored {
	o = o.withAnchor(d, b, w, rows)
	c := &censored{d: d, b: b, w: w, rows: rows, o: o, solver: newSolver(d.P, o)}
	c.view = *d
	c.view.Variants = nil
	c.view.Y = make([]float64, d.Len())
	c.acc = NewAccumulator(&c.view)
	c.width = b.widthFactors(rows, o.SpreadUs)
	c.pred = make([]float64, len(rows))
	c.target = make([]float64, len(rows))
	c.pulls = make([]Pull, len(rows))
	c.bent = make([]float64, d.Len())
	c.beta = make([]float64, d.P)
	c.current = make([]float64, d.P)
	c.grad = make([]float64, d.P)
	for _, i := range rows {
		c.view.Y[i] = b.Lo[i]
	}
	c.all = c.gram(rows, w)
	c.solver.load(c.all, censoredYBarUs)
	return c
}

// gram returns the sums over the given rows with weights w and the view's current targets.
func (c *censored) gram(rows []int32, w []float64) *Gram {
	c.acc.Reset()
	c.acc.Add(rows, w)
	g := New(c.d.P)
	c.acc.Fill(-1, g)
	return g
}

// fit runs passes until the certificate is true and returns their number. The first call starts from
// the targets Lo, later calls from the answer for the previous lambda, which is nearer to the
// minimum.
func (c *censored) fit(lambda float64) (passes int, err error) {
	if c.started {
		c.value = c.objective(lambda) // only the penalty differs from that of the last lambda
	} else {
		c.started = true
		c.solver.cold()
		c.solver.normalise(c.all)
		c.solver.solve(lambda)
		c.accept(lambda)
	}
	for passes = 1; passes <= maxCensoredPasses; passes++ {
		if c.certified(lambda) {
			return passes, nil
		}
		c.step(lambda)
		if c.solver.err != nil {
			return passes, &Error{IntervalNotConverged, c.solver.err.Error()}
		}
	}
	return passes, &Error{IntervalNotConverged, fmt.Sprintf("no certificate after %d passes at lambda %g", maxCensoredPasses, lambda)}
}

// accept makes the solver's answer the current point and refreshes the target.
func (c *censored) accept(lambda float64) {
	copy(c.current, c.solver.gamma)
	c.solver.beta(c.beta)
	c.evaluate(lambda)
}

// evaluate sets the predictions, refreshed targets, pulls, gradient and objective at the current point.
func (c *censored) evaluate(lambda float64) {
	clear(c.grad)
	c.out = c.out[:0]
	c.loss = 0
	for k, i := range c.rows {
		x := c.d.Row(int(i))
		v := Dot(x, c.beta)
		p := c.b.pull(int(i), v, c.o.SpreadUs, c.width[k], true)
		c.pred[k] = v
		c.target[k] = v - p.Slope
		c.pulls[k] = p
		if p == (Pull{}) {
			continue
		}
		c.out = append(c.out, k)
		c.loss += c.w[i] * p.Loss
		slope := c.w[i] * p.Slope
		for j, xj := range x {
			c.grad[j] += slope * xj
		}
	}
	norm := c.solver.w * c.solver.ybar * c.solver.ybar
	c.loss /= norm
	for j, s := range c.solver.scale {
		if s != 0 {
			c.grad[j] *= c.solver.ybar / (s * norm)
		}
	}
	c.value = c.objective(lambda)
}

// objective returns the objective at the current point, whose loss is known.
func (c *censored) objective(lambda float64) float64 {
	value := c.loss
	for j, s := range c.solver.scale {
		if s != 0 {
			d := c.current[j] - c.solver.prior[j]
			value += lambda * c.o.Penalty[j] * d * d
		}
	}
	return value
}

// certified reports whether the current point is a minimum for the refreshed targets, within
// certTol.
func (c *censored) certified(lambda float64) bool {
	for j, s := range c.solver.scale {
		if s == 0 {
			continue
		}
		slope := c.grad[j] + lambda*c.o.Penalty[j]*(c.current[j]-c.solver.prior[j])
		isAtZero := c.current[j] == 0 && !c.o.IsFree(j)
		if slope < -certTol || !isAtZero && slope > certTol {
			return false
		}
	}
	return true
}

// step makes one pass. It first searches along the line to the minimum over the rows that exert a
// pull, a Newton step, since the other rows have no curvature. Where that does not lower the
// objective, it solves for the refreshed targets. Both ends of the line satisfy the sign
// constraints, so every point between them does.
func (c *censored) step(lambda float64) {
	// A Newton step, shortened by the line search.
	before := c.value
	from := slices.Clone(c.beta)
	fromGamma := slices.Clone(c.current)
	c.solver.normalise(c.bentGram())
	c.solver.solve(lambda)
	toGamma := slices.Clone(c.solver.gamma)
	to := make([]float64, len(from))
	c.solver.beta(to)
	if t := c.search(to, fromGamma, toGamma, lambda); t > 0 {
		for j, g := range toGamma {
			c.solver.gamma[j] = fromGamma[j] + t*(g-fromGamma[j])
			if t == 1 {
				c.solver.gamma[j] = g
			}
		}
		c.accept(lambda)
		if c.value < before {
			return
		}
	}
	copy(c.beta, from) // back to the earlier point with its refreshed target
	copy(c.current, fromGamma)
	c.evaluate(lambda)
	c.refresh()
	c.solver.normalise(c.gram(c.rows, c.w))
	c.solver.solve(lambda)
	c.accept(lambda)
}

// bentGram returns the Gram matrix of the local quadratics of all rows that exert a pull.
func (c *censored) bentGram() *Gram {
	rows := make([]int32, len(c.out))
	for n, k := range c.out {
		i := c.rows[k]
		rows[n] = i
		y, bend := c.pulls[k].quadratic(c.pred[k])
		c.view.Y[i], c.bent[i] = y, c.w[i]*bend
	}
	return c.gram(rows, c.bent)
}

// search returns the t in [0, 1] at which the objective is smallest between the current point and the
// one with coefficients to. The objective is convex along the line, so its slope never falls, and
// Newton steps inside a shrinking bracket find the slope's root.
func (c *censored) search(to, fromGamma, toGamma []float64, lambda float64) float64 {
	entries := c.moved[:0] // without those that are silent at both ends: they are silent in between, too
	by := c.by[:0]
	for k, i := range c.rows {
		w := Dot(c.d.Row(int(i)), to)
		if c.pulls[k] != (Pull{}) || !c.b.silent(int(i), w, c.o.SpreadUs) {
			entries = append(entries, k)
			by = append(by, w-c.pred[k])
		}
	}
	c.moved, c.by = entries, by
	norm := c.solver.w * c.solver.ybar * c.solver.ybar
	slope := func(t float64) (first, second float64) {
		for n, k := range entries {
			i := c.rows[k]
			p := c.b.pull(int(i), c.pred[k]+t*by[n], c.o.SpreadUs, c.width[k], false)
			w := c.w[i] * by[n]
			first += w * p.Slope
			second += w * by[n] * p.Bend
		}
		first, second = first/norm, second/norm
		for j, s := range c.solver.scale {
			if s != 0 {
				by := toGamma[j] - fromGamma[j]
				d := lambda * c.o.Penalty[j] * by
				first = first + d*(fromGamma[j]+t*by-c.solver.prior[j])
				second += d * by
			}
		}
		return first, second
	}
	t := 1.0
	lo := 0.0
	hi := 1.0
	for range searchSteps {
		first, second := slope(t)
		if first <= 0 {
			lo = t
		} else {
			hi = t
		}
		if lo == 1 || first == 0 {
			return t
		}
		next := t - first/second
		if !(next > lo && next < hi) {
			next = (lo + hi) / 2
		}
		if math.Abs(next-t) <= searchTol || hi-lo <= searchTol {
			return next
		}
		t = next
	}
	return lo
}

// refresh makes the refreshed targets the targets of the view, which gram sums.
func (c *censored) refresh() {
	for k, i := range c.rows {
		c.view.Y[i] = c.target[k]
	}
}

// Limits of the line search: a step of it below searchTol of the way ends it.
const (
	searchSteps = 60
	searchTol   = 1e-12
)

// Constants of the interval-censored fit (spec#interval-fit).
const (
	censoredYBarUs    = 1000
	maxCensoredPasses = 10000
)

// CensoredErrors describes how well predictions agree with interval targets.
type CensoredErrors struct {
	Rows        int
	Exact       int
	Informative int     // lo > 0 or hi < 3 ms
	Inside      float64 // share of non-exact intervals that hold the prediction; NaN without one
	MedianWidth float64 // us, of non-exact intervals; NaN without one
	Distance    float64 // mean over configurations of sum w d^2/(1000 us)^2
	ExactWAPE   float64 // sum |y - pred|/sum |y| over exact rows; NaN without one
}

// informativeUs: an interval is informative when its upper end is below this, or its lower end
// above 0 (spec#interval-fit).
const informativeUs = 3000

// Evaluate returns the errors of the predictions of all rows, in us, against their intervals.
func (b Bounds) Evaluate(d *Data, w, pred []float64) CensoredErrors {
	e := CensoredErrors{Rows: len(b.Lo), Inside: math.NaN(), ExactWAPE: math.NaN()}
	var widths []float64
	var inside int
	var diff, sum float64
	for i, lo := range b.Lo {
		hi := b.Hi[i]
		if lo > 0 || hi < informativeUs {
			e.Informative++
		}
		if lo == hi {
			e.Exact++
			diff = diff + math.Abs(pred[i]-lo)
			sum += math.Abs(lo)
			continue
		}
		widths = append(widths, hi-lo)
		if b.Distance(i, pred[i]) == 0 {
			inside++
		}
	}
	e.Distance = b.Score(d, w, upTo(e.Rows), 0, func(i int32) float64 { return pred[i] })
	e.MedianWidth = stat.Median(widths)
	if len(widths) > 0 {
		e.Inside = float64(inside) / float64(len(widths))
	}
	if sum > 0 {
		e.ExactWAPE = diff / sum
	}
	return e
}
