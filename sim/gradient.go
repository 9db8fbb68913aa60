package sim

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// For a fixed schedule every stamp is a linear function of the coefficients: the
// engine's clock is the moment a busy period began plus the steps since, and a
// step is the dot product of its features. So the derivative of the clock is a
// running sum of features, and what one request experienced changes by the
// difference of two of them. Where a coefficient moves the schedule itself (who
// shares a batch, chunk borders, preemption) times jump; the derivative does not
// see that.

// Columns are the coefficients that derivatives are taken by, one after the
// other: those of the step time, the overhead and the egress as their models
// list them, and Config.TokenUs.
type Columns struct{ Step, Overhead, Egress int }

// N is the number of columns.
func (c Columns) N() int { return c.Step + c.Overhead + c.Egress + 1 }

// Derivative is a time in us as the models give it, before any rounding, and its
// derivative by each coefficient.
type Derivative struct {
	Us float64
	By []float64
}

func (d *Derivative) set(to *Derivative) {
	d.Us = to.Us
	copy(d.By, to.By)
}

// add puts us and factor times the features from column at on into d.
func (d *Derivative) add(us float64, at int, features []float64, factor float64) {
	d.Us += us
	by := d.By[at : at+len(features)]
	for j, x := range features {
		by[j] += factor * x
	}
}

// minus makes d the time from one stamp to another, shown with tokens times
// Config.TokenUs.
func (d *Derivative) minus(to, from *Derivative, tokens, tokenUs float64) {
	d.Us = to.Us - from.Us + tokens*tokenUs
	for j := range d.By {
		d.By[j] = to.By[j] - from.By[j]
	}
	d.By[len(d.By)-1] += tokens
}

// gradient is how the times of one finished request change with the
// coefficients. It is reused when the request has been reported.
type gradient struct {
	TTFT, Span, E2E Derivative // Span: first to last token

	arrive, enqueue, first, last, left Derivative

	origin Derivative // what its beginning adds to the engine's clock
}

// clocks are the derivatives that an engine carries along.
type clocks struct {
	Columns
	step             linear
	overhead, egress linearDelay // nil: none
	now, gpu, end    Derivative  // of the engine, of the GPU's queue, of the step just scheduled
	stepUs, factor   float64     // its execution, and what multiplied its features (0: clipped)
	restarts         bool
	ended, origin    Derivative   // with restarts: the last step, and what the beginning in force adds to the clock
	flights          []Derivative // memory for steps in flight
	free             []*gradient
}

func newClocks(cfg *Config) (*clocks, error) {
	c := &clocks{}
	ok := true
	if c.step, ok = cfg.Latency.(linear); !ok {
		return nil, trace.Errorf(CodeBadConfig, "gradient: got a step time that is not linear, want one with features")
	}
	linear := func(d Delay, to *linearDelay) int {
		if d == nil {
			return 0
		}
		l, isLinear := d.(linearDelay)
		if ok = ok && isLinear; !ok {
			return 0
		}
		*to = l
		return len(l.Features())
	}
	c.Columns = Columns{Step: len(c.step.Features()), Overhead: linear(cfg.Overhead, &c.overhead), Egress: linear(cfg.Egress, &c.egress)}
	if !ok {
		return nil, trace.Errorf(CodeBadConfig, "gradient: got a delay that is not linear, want one with features")
	}
	c.now, c.gpu, c.end = c.derivative(), c.derivative(), c.derivative()
	c.restarts, c.ended, c.origin = cfg.Restarts, c.derivative(), c.derivative()
	return c, nil
}

// gradientColumns are the columns of the derivatives that cfg gives.
func gradientColumns(cfg *Config) (Columns, error) {
	c, err := newClocks(cfg)
	if err != nil {
		return Columns{}, err
	}
	return c.Columns, nil
}

func (c *clocks) derivative() Derivative { return Derivative{By: make([]float64, c.N())} }

// gradient is memory for a request's derivatives.
func (c *clocks) gradient() *gradient {
	if n := len(c.free); n > 0 {
		g := c.free[n-1]
		c.free = c.free[:n-1]
		return g
	}
	g := &gradient{}
	for _, d := range []*Derivative{&g.TTFT, &g.Span, &g.E2E, &g.arrive, &g.enqueue, &g.first, &g.last, &g.left, &g.origin} {
		*d = c.derivative()
	}
	return g
}

// arrived starts a request's derivatives: at a moment nobody can move, or at from.
func (c *clocks) arrived(g *gradient, atUs int64, from *Derivative) {
	if from != nil {
		g.arrive.set(from)
		return
	}
	g.arrive.Us = float64(atUs)
	clear(g.arrive.By)
}

// delayed is the request on its way to the engine: us after its arrival, or at
// a moment nobody can move.
func (c *clocks) delayed(g *gradient, us float64) {
	g.enqueue.set(&g.arrive)
	if c.overhead != nil {
		g.enqueue.add(us, c.Step, c.overhead.Features(), 1)
	}
}

func (c *clocks) enqueued(g *gradient, atUs int64) {
	g.enqueue.Us = float64(atUs)
	clear(g.enqueue.By)
}

// executes ends the step that was just predicted: it starts now, or when the GPU is free.
func (c *clocks) executes(fromGPU bool, waitUs int64) {
	if c.end.set(&c.now); fromGPU {
		c.end.set(&c.gpu)
	}
	c.end.Us += float64(waitUs)
	c.end.add(c.stepUs, 0, c.step.Features(), c.factor)
	c.gpu.set(&c.end)
}

// idles ends a step that executes nothing.
func (c *clocks) idles(us int64) {
	c.end.set(&c.now)
	c.end.Us += float64(us)
}

// fly is a copy of the end of the step just scheduled.
func (c *clocks) fly() Derivative {
	if n := len(c.flights); n > 0 {
		d := c.flights[n-1]
		c.flights = c.flights[:n-1]
		d.set(&c.end)
		return d
	}
	return Derivative{Us: c.end.Us, By: slices.Clone(c.end.By)}
}

// picksUp begins a request that is picked up; nobody: nobody waits before it. It
// has waited for a part of the step that just ended, and will for the same part
// when steps get longer.
func (c *clocks) picksUp(g *gradient, nobody bool) {
	if c.restarts && nobody {
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

// begins an idle engine: its clock is the request's.
func (c *clocks) begins(g *gradient) {
	c.now.set(&g.enqueue)
	clear(c.origin.By)
	c.ended.Us = 0
}

// ends processes a step: the clock is its end, unless it was late.
func (c *clocks) ends(f *flight, late bool) {
	if !late {
		if c.restarts {
			c.ended.set(&f.grad)
			c.ended.Us -= c.now.Us
			for j := range c.ended.By {
				c.ended.By[j] -= c.now.By[j]
			}
		}
		c.now.set(&f.grad)
	}
	c.flights = append(c.flights, f.grad)
}

// departs gives a finished request its derivatives.
func (c *clocks) departs(g *gradient, delayUs float64, outputs int64, tokenUs float64) {
	if g.left.set(&g.last); c.egress != nil {
		g.left.add(delayUs, c.Step+c.Overhead, c.egress.Features(), 1)
	}
	g.TTFT.minus(&g.first, &g.arrive, 1, tokenUs)
	g.Span.minus(&g.last, &g.first, float64(outputs-1), tokenUs)
	g.E2E.minus(&g.left, &g.arrive, float64(outputs), tokenUs)
	for j, v := range g.origin.By {
		g.TTFT.By[j] += v
		g.E2E.By[j] += v
	}
}
