package library

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// The correction is what kernel tables cannot know, in few numbers, each with a
// prior; never one per model, which would not transfer. In all of them a
// coefficient set is linear.
const (
	hostStep     = iota // us per step
	hostRank            // us per step and further tensor-parallel rank
	hostSequence        // us per running sequence
	syncStep            // us per step of an engine that schedules synchronously, on top
	syncSequence        // us per sequence of such an engine, on top
	entry               // us before a request reaches the engine
	numCommon
)

// parameter is one number of the correction.
type parameter struct {
	name     string
	mean, sd float64 // prior
	atLeast  float64
}

// common are the parameters that all GPUs share; one scale per GPU follows them.
// A synchronous engine pays its host's 1.1 ms in every step; an asynchronous one prepares a
// step while the GPU runs the one before and pays what cannot overlap: launching the graph and
// waiting for its ranks.
var common = [numCommon]parameter{
	hostStep:     {"host_step_us", 200, 300, 0},
	hostRank:     {"host_rank_us", 150, 150, 0},
	hostSequence: {"host_sequence_us", 0, 5, 0},
	syncStep:     {"sync_step_us", 900, 400, 0},
	syncSequence: {"sync_sequence_us", 10, 10, 0},
	entry:        {"overhead_us", 5000, 5000, 0},
}

// commonUnder are the common parameters under an engine's rules: in composed runs an
// asynchronous engine pays its host like a synchronous one.
func commonUnder(rules Rules) [numCommon]parameter {
	p := common
	if rules == Composed {
		p[hostStep].mean, p[syncStep].mean = p[hostStep].mean+p[syncStep].mean, 0
	}
	return p
}

// correction are the parameters' values: the common ones, then one scale of all
// kernels per GPU.
type correction struct {
	common     [numCommon]parameter
	GPUs       []string // datasheet names, sorted
	Theta      []float64
	Covariance []float64 // len(Theta)^2, row-major; nil: the prior's
}

const (
	scaleSD    = 0.06 // of a GPU's factor on kernel times
	tpotSD     = 0.05 // of a measured point beyond what its group shares, log
	ttftSD     = 0.30
	ttftCount  = 4     // what the TTFT of a group counts as, in points: all share a harness that is not stated
	huberSD    = 2.0   // deviations from which a residual counts linearly
	cycleSD    = 0.025 // of a step cycle beyond what its run shares, log: there is no harness in it
	cycleCount = 15    // what a run of step cycles counts as, in points
	passes     = 4
)

// newCorrection is the prior.
func newCorrection(gpus []string, rules Rules) *correction {
	c := &correction{common: commonUnder(rules), GPUs: slices.Clone(gpus)}
	slices.Sort(c.GPUs)
	c.GPUs = slices.Compact(c.GPUs)
	for _, p := range c.common {
		c.Theta = append(c.Theta, p.mean)
	}
	for range c.GPUs {
		c.Theta = append(c.Theta, 1)
	}
	return c
}

func (c *correction) prior(k int) parameter {
	if k < numCommon {
		return c.common[k]
	}
	return parameter{"scale " + c.GPUs[k-numCommon], 1, scaleSD, 0.5}
}

// columns of the simulator's derivatives.
var (
	alphaSlots = len(features.AlphaFeatures(features.V12))
	numColumns = betaSlots + alphaSlots
)

// effects are, per parameter, what one unit of it adds to the coefficients of
// step time and overhead on a deployment.
func (c *correction) effects(f *fitted, d *deploy.Deployment) [][]float64 {
	out := make([][]float64, len(c.Theta))
	for k := range out {
		out[k] = make([]float64, numColumns)
	}
	out[hostStep][slotBias-1] = 1
	out[hostRank][slotBias-1] = float64(d.TP - 1)
	out[hostSequence][slotSequences-1] = seqsUnit
	if !d.Engine.IsAsync() {
		out[syncStep][slotBias-1] = 1
		out[syncSequence][slotSequences-1] = seqsUnit
	}
	out[entry][betaSlots+slotBase-1] = 1
	if i := slices.Index(c.GPUs, d.Hardware.Name); i >= 0 {
		copy(out[numCommon+i], f.beta)
	}
	return out
}

// coefficients are those of step time and overhead on a deployment.
func (c *correction) coefficients(f *fitted, d *deploy.Deployment) []float64 {
	out := make([]float64, numColumns)
	if !slices.Contains(c.GPUs, d.Hardware.Name) {
		copy(out, f.beta)
	}
	for k, e := range c.effects(f, d) {
		for j, v := range e {
			out[j] += float64(c.Theta[k] * v)
		}
	}
	return out
}

// evidence is one measured number: what it should be and how the prediction
// changes with each parameter.
type evidence struct {
	log           float64   // log predicted - log measured
	by            []float64 // its derivatives
	sd            float64
	weight        float64
	modelVariance float64 // of log by what a new model differs from its family
}

// learn fits the correction to loads and cycles by Gauss-Newton on the logs.
func (b *builder) learn(ctx context.Context, ls []*load, ys []*cycles) (*correction, error) {
	var gpus []string
	for _, l := range ls {
		gpus = append(gpus, l.dep.Hardware.Name)
	}
	for _, y := range ys {
		gpus = append(gpus, y.dep.Hardware.Name)
	}
	c := newCorrection(gpus, b.Rules)
	for range passes {
		es, err := b.evidence(ctx, c, ls, ys)
		if err != nil {
			return nil, err
		}
		c.step(es)
	}
	return c, nil
}

// evidence simulates every load and predicts every cycle: of each load TPOT and
// TTFT, then the cycles.
func (b *builder) evidence(ctx context.Context, c *correction, ls []*load, ys []*cycles) ([]evidence, error) {
	out := make([]evidence, 2*len(ls))
	err := par.Try(ctx, b.Workers, len(ls), func(i int) error {
		l := ls[i]
		f, err := b.familyOf(l.dep)
		if err != nil {
			return err
		}
		o, err := l.simulate(setOf(c.coefficients(f, l.dep)), true)
		if err != nil {
			return err
		}
		es := c.effects(f, l.dep)
		scale := c.scaleOf(l.dep.Hardware.Name)
		out[2*i] = c.relative(o.TPOTMs, l.tpotMs, o.TPOTBy, es, tpotSD, l.tpotWeight)
		out[2*i+1] = c.relative(o.TTFTMs, l.ttftMs, o.TTFTBy, es, ttftSD, l.ttftWeight)
		out[2*i].modelVariance = f.modelVariance(o.TPOTBy, scale/o.TPOTMs)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	for _, y := range ys {
		f, err := b.familyOf(y.dep)
		if err != nil {
			return nil, err
		}
		es, beta := c.effects(f, y.dep), c.coefficients(f, y.dep)[:betaSlots]
		for i, us := range y.Y {
			out = append(out, c.relative(ridge.Dot(y.Row(i), beta), us, y.Row(i), es, cycleSD, cycleCount/float64(len(y.Y))))
		}
	}
	return out, nil
}

// scaleOf is the factor on a GPU's kernels.
func (c *correction) scaleOf(gpu string) float64 {
	if i := slices.Index(c.GPUs, gpu); i >= 0 {
		return c.Theta[numCommon+i]
	}
	return 1
}

// modelVariance is that of a number which changes so with the coefficients, times
// factor squared, over models.
func (f *fitted) modelVariance(by []float64, factor float64) float64 {
	sum := 0.0
	for j, u := range by[:betaSlots] {
		sum += float64(u * ridge.Dot(by[:betaSlots], f.covariance[j]))
	}
	return sum * square(factor)
}

// relative is the evidence of one prediction with its derivatives by columns.
func (c *correction) relative(predicted, measured float64, by []float64, effects [][]float64, sd, weight float64) evidence {
	e := evidence{log: stat.Log(predicted / measured), by: make([]float64, len(c.Theta)), sd: sd, weight: weight}
	for k, effect := range effects {
		e.by[k] = ridge.Dot(by[:min(len(by), len(effect))], effect) / predicted
	}
	return e
}

// step is one Gauss-Newton step from the current values, Huber's weights, with
// the prior; parameters stay at or above their least value.
func (c *correction) step(es []evidence) {
	n := len(c.Theta)
	a, rhs := make([]float64, n*n), make([]float64, n)
	for k := range n {
		p := c.prior(k)
		a[k*n+k] += 1 / (p.sd * p.sd)
		rhs[k] += (p.mean - c.Theta[k]) / (p.sd * p.sd)
	}
	for _, e := range es {
		w := e.weight / (e.sd * e.sd)
		if z := math.Abs(e.log) / e.sd; z > huberSD {
			w *= huberSD / z
		}
		for k, u := range e.by {
			rhs[k] -= float64(w * u * e.log)
			for l, v := range e.by {
				a[k*n+l] += float64(w * u * v)
			}
		}
	}
	c.solve(a, rhs)
}

// solve moves the parameters by the step of the normal equations; one that
// would fall below its least value is held there and the others solved again.
func (c *correction) solve(a, rhs []float64) {
	n := len(rhs)
	held := make([]bool, n)
	for {
		m, b := slices.Clone(a), slices.Clone(rhs)
		for k := range n {
			if !held[k] {
				continue
			}
			move := c.prior(k).atLeast - c.Theta[k]
			for l := range n {
				if l != k {
					b[l] -= float64(m[l*n+k] * move)
					m[l*n+k], m[k*n+l] = 0, 0
				}
			}
			b[k] = m[k*n+k] * move
		}
		stat.Cholesky(m, n)
		stat.CholeskySolve(m, n, b)
		again := false
		for k := range n {
			if !held[k] && c.Theta[k]+b[k] < c.prior(k).atLeast {
				held[k], again = true, true
			}
		}
		if again {
			continue
		}
		for k := range n {
			c.Theta[k] = math.Max(c.prior(k).atLeast, c.Theta[k]+b[k])
		}
		c.Covariance = stat.CholeskyInverse(m, n)
		return
	}
}

// cycles are the measured step cycles of one real run as rows of 1.2's terms.
type cycles struct {
	ridge.Data
	name string
	dep  *deploy.Deployment
}
