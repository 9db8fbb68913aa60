package sim

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// This file computes the derivatives of latencies with respect to the coefficients of linear latency models. For
// a fixed schedule every simulated time is a linear function of the coefficients: the engine's
// clock is the start of a busy period plus the step times since, and a step time is the dot product
// of coefficients and features. So the derivative of the clock is a running sum of features, and
// the derivative of a request's latency is the difference of two such sums. If a change of
// coefficients changes the schedule itself (which requests share a batch, where prompts are cut,
// preemptions), times jump, which these derivatives do not show.

// Columns are the numbers of coefficients by which derivatives are taken. Their order in a
// Derivative is: the step time, the overhead and the egress as their models list them, then
// Config.TokenUs.
type Columns struct{ Step, Overhead, Egress int }

// N returns the number of columns.
func (c Columns) N() int { return c.Step + c.Overhead + c.Egress + 1 }

// Derivative is a time in us, as the models return it before rounding, with its derivative by each
// coefficient.
type Derivative struct {
	Us float64
	By []float64
}

// set copies the derivative `to` into d.
func (d *Derivative) set(to *Derivative) {
	d.Us = to.Us
	copy(d.By, to.By)
}

// add adds a time of us microseconds to d. Its derivatives are factor times the features, in the
// columns from number `at` on.
func (d *Derivative) add(us float64, at int, features []float64, factor float64) {
	d.Us += us
	by := d.By[at : at+len(features)]
	for j, x := range features {
		by[j] += factor * x
	}
}

// minus sets d to the time between the stamps from and to, plus tokens times Config.TokenUs.
func (d *Derivative) minus(to, from *Derivative, tokens, tokenUs float64) {
	d.Us = to.Us - from.Us + tokens*tokenUs
	for j := range d.By {
		d.By[j] = to.By[j] - from.By[j]
	}
	d.By[len(d.By)-1] += tokens
}

// gradient is the derivatives of the latencies of one finished request. It is reused after the
// request was reported.
type gradient struct {
	TTFT, Span, E2E Derivative // Span: first to last token

	// The times of its events: at the API, in the engine's input queue, first and last token, answer.
	arrive, enqueue, first, last, left Derivative

	origin Derivative // what the last restart before the request added to the engine's clock
}

// clocks are the clocks of an engine as derivatives; nil without Config.Gradient.
type clocks struct {
	Columns
	step     linear       // the model of step times
	overhead linearDelay  // nil: none
	egress   linearDelay  // nil: none
	now      Derivative   // the engine's clock
	gpu      Derivative   // the time at which the GPU is free
	end      Derivative   // the end of the step just scheduled
	stepUs   float64      // the predicted time of that step
	factor   float64      // factor of its features, from noise and drift; 0 if the time was clipped
	restarts bool         // Config.Restarts
	ended    Derivative   // the duration of the last step (with restarts)
	origin   Derivative   // what the last restart added to the clock (with restarts)
	freeEnds []Derivative // memory that endOfStep reuses
	free     []*gradient  // memory that newGradient reuses
}

// newClocks returns the clocks of an engine with configuration cfg, at time 0. Latency models that
// are not linear are an error.
func newClocks(cfg *Config) (*clocks, error) {
	c := &clocks{}
	var ok bool
	if c.step, ok = cfg.Latency.(linear); !ok {
		return nil, trace.Errorf(CodeBadConfig, "gradient: got a step time that is not linear, want one with features")
	}
	c.Columns.Step = len(c.step.Features())
	delays := []struct {
		given   Delay
		to      *linearDelay
		columns *int
	}{
		{given: cfg.Overhead, to: &c.overhead, columns: &c.Columns.Overhead},
		{given: cfg.Egress, to: &c.egress, columns: &c.Columns.Egress},
	}
	for _, delay := range delays {
		if delay.given == nil {
			continue
		}
		l, ok := delay.given.(linearDelay)
		if !ok {
			return nil, trace.Errorf(CodeBadConfig, "gradient: got a delay that is not linear, want one with features")
		}
		*delay.to = l
		*delay.columns = len(l.Features())
	}
	for _, d := range []*Derivative{&c.now, &c.gpu, &c.end, &c.ended, &c.origin} {
		*d = c.derivative()
	}
	c.restarts = cfg.Restarts
	return c, nil
}

// gradientColumns returns the columns that derivatives of an engine with this configuration have.
func gradientColumns(cfg *Config) (Columns, error) {
	c, err := newClocks(cfg)
	if err != nil {
		return Columns{}, err
	}
	return c.Columns, nil
}

// derivative returns a zero derivative.
func (c *clocks) derivative() Derivative { return Derivative{By: make([]float64, c.N())} }

// newGradient returns memory for a request's derivatives.
func (c *clocks) newGradient() *gradient {
	if n := len(c.free); n > 0 {
		g := c.free[n-1]
		c.free = c.free[:n-1]
		return g
	}
	g := &gradient{}
	for _, d := range []*Derivative{&g.TTFT, &g.Span, &g.E2E, &g.arrive, &g.enqueue, &g.first, &g.last, &g.left,
		&g.origin} {
		*d = c.derivative()
	}
	return g
}

// arrived begins the derivatives g of a request at its arrival. from has the derivatives of the
// arrival time, for a request that waits for another one's answer; it is nil if the time does not
// depend on coefficients.
func (c *clocks) arrived(g *gradient, atUs int64, from *Derivative) {
	if from != nil {
		g.arrive.set(from)
		return
	}
	g.arrive.Us = float64(atUs)
	clear(g.arrive.By)
}

// delayed sets the time at which the request reaches the engine to us after its arrival.
func (c *clocks) delayed(g *gradient, us float64) {
	g.enqueue.set(&g.arrive)
	if c.overhead != nil {
		g.enqueue.add(us, c.Step, c.overhead.Features(), 1)
	}
}

// enqueued sets the time at which the request reaches the engine to a time that does not depend on
// coefficients.
func (c *clocks) enqueued(g *gradient, atUs int64) {
	g.enqueue.Us = float64(atUs)
	clear(g.enqueue.By)
}

// predicted records the time of the step just predicted, us; plain is its time without noise and
// drift. A time that was clipped to 1 us has no derivative.
func (c *clocks) predicted(us, plain float64) {
	c.stepUs = us
	c.factor = us / plain
	if plain <= 1 {
		c.factor = 0
	}
}

// executed sets the end of the step that was just predicted. The step began waitUs after the
// engine's clock or, with fromGPU, when the GPU was free.
func (c *clocks) executed(fromGPU bool, waitUs int64) {
	if fromGPU {
		c.end.set(&c.gpu)
	} else {
		c.end.set(&c.now)
		c.end.Us += float64(waitUs)
	}
	c.end.add(c.stepUs, 0, c.step.Features(), c.factor)
	c.gpu.set(&c.end)
}

// idled sets the end of a step that executed nothing.
func (c *clocks) idled(us int64) {
	c.end.set(&c.now)
	c.end.Us += float64(us)
}

// endOfStep returns a copy of the end of the step just scheduled, to be kept while the step is in
// flight.
func (c *clocks) endOfStep() Derivative {
	if n := len(c.freeEnds); n > 0 {
		d := c.freeEnds[n-1]
		c.freeEnds = c.freeEnds[:n-1]
		d.set(&c.end)
		return d
	}
	return Derivative{Us: c.end.Us, By: slices.Clone(c.end.By)}
}

// pickedUp records that the engine picks up the request with derivatives g. With Config.Restarts a
// request that finds the queue empty restarts the clock: from then on a derivative of the clock counts
// from the request's arrival in the engine, not from the start of the busy period. The request has
// waited for a part of the step that just ended, and is assumed to wait for the same part of a longer
// step. The clock itself goes on; c.origin is the difference, which finish adds.
func (c *clocks) pickedUp(g *gradient, queueIsEmpty bool) {
	if c.restarts && queueIsEmpty {
		share := 0.0
		if c.ended.Us > 0 {
			share = math.Min(1, math.Max(0, c.now.Us-g.enqueue.Us)/c.ended.Us)
		}
		for j := range c.origin.By {
			c.origin.By[j] = g.enqueue.By[j] + share*c.ended.By[j] - c.now.By[j]
		}
	}
	g.origin.set(&c.origin)
}

// woken sets the clock of an idle engine to the arrival of the request that wakes it.
func (c *clocks) woken(g *gradient) {
	c.now.set(&g.enqueue)
	clear(c.origin.By)
	c.ended.Us = 0
}

// updated sets the clock to the end of step f, whose result is processed, unless the clock is past
// it (isPast).
func (c *clocks) updated(f *flight, isPast bool) {
	if !isPast {
		if c.restarts {
			c.ended.set(&f.grad)
			c.ended.Us -= c.now.Us
			for j := range c.ended.By {
				c.ended.By[j] -= c.now.By[j]
			}
		}
		c.now.set(&f.grad)
	}
	c.freeEnds = append(c.freeEnds, f.grad)
}

// finish computes the derivatives of the latencies of a finished request. delayUs is its egress,
// outputs its number of output tokens.
func (c *clocks) finish(g *gradient, delayUs float64, outputs int64, tokenUs float64) {
	g.last.set(&c.now)
	g.left.set(&g.last)
	if c.egress != nil {
		g.left.add(delayUs, c.Step+c.Overhead, c.egress.Features(), 1)
	}
	g.TTFT.minus(&g.first, &g.arrive, 1, tokenUs)
	g.Span.minus(&g.last, &g.first, float64(outputs-1), tokenUs)
	g.E2E.minus(&g.left, &g.arrive, float64(outputs), tokenUs)
	for j, v := range g.origin.By { // in a span it would be added to both ends
		g.TTFT.By[j] += v
		g.E2E.By[j] += v
	}
}
