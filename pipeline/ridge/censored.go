package ridge

// This file fits a model to targets that are known only as intervals (spec#interval-fit):
// Data.FitCensored, its passes, and CensoredErrors, which compares predictions with intervals.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// CensoredFit is a fit to intervals. The certificate in Fit is that of the last refreshed target.
type CensoredFit struct {
	Fit    Fit
	Passes int // refreshes of the target
	// Y and Bend, in the order of the rows, are the quadratic that approximates the loss at the
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
	c.polish(lambda)
	// The certificate has to be that of the refreshed target on all rows, so the solver
	// gets its Gram matrix and the current point once more.
	c.refresh()
	c.solver.normalise(c.gram(c.rows, c.w))
	copy(c.solver.gamma, c.at.gamma)
	c.solver.gradient(lambda)
	f, err := c.solver.fit(lambda)
	f.Objective = c.objective(c.at, lambda)
	out := CensoredFit{Fit: f, Passes: passes, Y: make([]float64, len(rows)), Bend: make([]float64, len(rows))}
	for k, p := range c.at.pulls {
		out.Y[k] = c.at.pred[k]
		if p != (Pull{}) {
			out.Y[k], out.Bend[k] = p.quadratic(c.at.pred[k])
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
	width   []float64 // width factors, per entry of rows
	o       *Options
	solver  *solver
	all     *Gram // all rows with target Lo
	started bool
	at      *censoredPoint // the current point
	next    *censoredPoint // the point that a pass tries
	bent    []float64      // weight times curvature, per row of d, of the entries that exert a pull
	acc     *Accumulator   // of view
	view    Data           // d with the current targets as Y
}

// censoredPoint is a point of the search with all that a pass needs of it.
type censoredPoint struct {
	beta  []float64
	gamma []float64
	pred  []float64 // prediction, per entry of rows
	pulls []Pull    // per entry of rows
	out   []int     // entries of rows that exert a pull
	grad  []float64 // scaled half gradient of the loss
	loss  float64   // scaled, without the penalty
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
	c.bent = make([]float64, d.Len())
	point := func() *censoredPoint {
		return &censoredPoint{
			beta:  make([]float64, d.P),
			gamma: make([]float64, d.P),
			pred:  make([]float64, len(rows)),
			pulls: make([]Pull, len(rows)),
			grad:  make([]float64, d.P),
		}
	}
	c.at, c.next = point(), point()
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
	if !c.started {
		c.started = true
		c.solver.cold()
		c.solver.normalise(c.all)
		c.solver.solve(lambda)
		c.take(c.at)
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

// take makes the solver's answer the point p.
func (c *censored) take(p *censoredPoint) {
	copy(p.gamma, c.solver.gamma)
	c.solver.beta(p.beta)
	clear(p.grad)
	p.out = p.out[:0]
	p.loss = 0
	for k, i := range c.rows {
		x := c.d.Row(int(i))
		v := Dot(x, p.beta)
		pull := c.b.pull(int(i), v, c.o.SpreadUs, c.width[k], true)
		p.pred[k] = v
		p.pulls[k] = pull
		if pull == (Pull{}) {
			continue
		}
		p.out = append(p.out, k)
		p.loss += c.w[i] * pull.Loss
		slope := c.w[i] * pull.Slope
		for j, xj := range x {
			p.grad[j] += slope * xj
		}
	}
	norm := c.solver.w * c.solver.ybar * c.solver.ybar
	p.loss /= norm
	for j, s := range c.solver.scale {
		if s != 0 {
			p.grad[j] *= c.solver.ybar / (s * norm)
		}
	}
}

// objective returns the objective at a point.
func (c *censored) objective(p *censoredPoint, lambda float64) float64 {
	value := p.loss
	for j, s := range c.solver.scale {
		if s != 0 {
			d := p.gamma[j] - c.solver.prior[j]
			value += lambda * c.o.Penalty[j] * d * d
		}
	}
	return value
}

// certified reports whether the current point is a minimum for the refreshed targets, within
// certTol.
func (c *censored) certified(lambda float64) bool { return c.violation(c.at, lambda) <= certTol }

// violation returns by how much a point is no minimum for the refreshed targets: the largest slope of
// the objective along a direction in which it may move.
func (c *censored) violation(p *censoredPoint, lambda float64) (largest float64) {
	for j, s := range c.solver.scale {
		if s == 0 {
			continue
		}
		gamma := p.gamma[j]
		slope := p.grad[j] + lambda*c.o.Penalty[j]*(gamma-c.solver.prior[j])
		isAtZero := gamma == 0 && !c.o.IsFree(j)
		if slope < 0 || !isAtZero {
			largest = math.Max(largest, math.Abs(slope))
		}
	}
	return largest
}

// polish makes Newton steps from a certified point while they lower its violation. Along directions
// that the rows hardly determine, the certificate leaves more digits open than the builds of this
// program may differ in.
func (c *censored) polish(lambda float64) {
	for range mostPolishing {
		c.solver.normalise(c.bentGram())
		c.solver.solve(lambda)
		if c.solver.err != nil {
			c.solver.err = nil // the certified point is an answer
			return
		}
		c.take(c.next)
		if !(c.violation(c.next, lambda) < c.violation(c.at, lambda)) {
			return
		}
		c.at, c.next = c.next, c.at
	}
}

// step makes one pass. It first searches along the line to the minimum over the rows that exert a
// pull, a Newton step, since the other rows have no curvature. Where that does not lower the
// objective, it solves for the refreshed targets. Both ends of the line satisfy the sign
// constraints, so every point between them does.
func (c *censored) step(lambda float64) {
	c.solver.normalise(c.bentGram())
	c.solver.solve(lambda)
	c.take(c.next)
	if t := c.search(lambda); t > 0 {
		if t < 1 {
			for j, from := range c.at.gamma {
				c.solver.gamma[j] = from + t*(c.next.gamma[j]-from)
			}
			c.take(c.next)
		}
		if c.objective(c.next, lambda) < c.objective(c.at, lambda) {
			c.at, c.next = c.next, c.at
			return
		}
	}
	c.refresh()
	c.solver.normalise(c.gram(c.rows, c.w))
	c.solver.solve(lambda)
	c.take(c.at)
}

// bentGram returns the Gram matrix of the local quadratics of all rows that exert a pull.
func (c *censored) bentGram() *Gram {
	rows := make([]int32, len(c.at.out))
	for n, k := range c.at.out {
		i := c.rows[k]
		rows[n] = i
		y, bend := c.at.pulls[k].quadratic(c.at.pred[k])
		c.view.Y[i], c.bent[i] = y, c.w[i]*bend
	}
	return c.gram(rows, c.bent)
}

// search returns the t in [0, 1] at which the objective is smallest on the line from the current
// point to the next one. The objective is convex along the line, so its slope never falls, and Newton
// steps inside a shrinking bracket find the slope's root.
func (c *censored) search(lambda float64) float64 {
	from, to := c.at, c.next
	norm := c.solver.w * c.solver.ybar * c.solver.ybar
	// slope returns the derivatives at t, given the pulls there.
	slope := func(t float64, pull func(k int) Pull) (first, second float64) {
		for k, i := range c.rows {
			// Rows that are silent at both ends are silent in between, too.
			if from.pulls[k] == (Pull{}) && to.pulls[k] == (Pull{}) {
				continue
			}
			p := pull(k)
			by := to.pred[k] - from.pred[k]
			first += c.w[i] * by * p.Slope
			second += c.w[i] * by * by * p.Bend
		}
		first, second = first/norm, second/norm
		for j, s := range c.solver.scale {
			if s != 0 {
				by := to.gamma[j] - from.gamma[j]
				d := lambda * c.o.Penalty[j] * by
				first += d * (from.gamma[j] + t*by - c.solver.prior[j])
				second += d * by
			}
		}
		return first, second
	}
	between := func(t float64) (first, second float64) {
		return slope(t, func(k int) Pull {
			v := from.pred[k] + t*(to.pred[k]-from.pred[k])
			return c.b.pull(int(c.rows[k]), v, c.o.SpreadUs, c.width[k], false)
		})
	}
	t := 1.0
	lo := 0.0
	hi := 1.0
	first, second := slope(1, func(k int) Pull { return to.pulls[k] })
	for range searchSteps {
		if first <= 0 {
			lo = t
		} else {
			hi = t
		}
		if lo == 1 || first == 0 { // still falling at the next point, or at the minimum
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
		first, second = between(t)
	}
	return lo
}

// refresh makes the refreshed targets the targets of the view, which gram sums.
func (c *censored) refresh() {
	for k, i := range c.rows {
		c.view.Y[i] = c.at.pred[k] - c.at.pulls[k].Slope
	}
}

// Limits of the line search: a step of it below searchTol of the way ends it.
const (
	searchSteps = 60
	searchTol   = 1e-12
)

// Constants of the interval-censored fit (spec#interval-fit).
const (
	censoredYBarUs    = 1000  // typical size of a target: an interval has no value that ybar could be computed from
	maxCensoredPasses = 10000 // of fit
	mostPolishing     = 4     // steps of polish
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
			diff += math.Abs(pred[i] - lo)
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
	e.Inside = float64(inside) / float64(len(widths)) // NaN without an interval
	if sum > 0 {
		e.ExactWAPE = diff / sum
	}
	return e
}
