package learn

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Prior is what is believed of the coefficients before any request was seen.
type Prior struct {
	Name string     // in words
	Set  *coeff.Set // its values are the mean, its covariance that of the step time
}

// Roofline is the prior of a deployment no library knows: the hardware's peak, and
// hardly any certainty.
func Roofline(d *deploy.Deployment) *Prior {
	v := features.V12
	if features.DefaultVersion(d) == features.V13 {
		v = features.V13
	}
	set := emptySet(v)
	n := len(set.Beta)
	set.Covariance = make([][]float64, n)
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		set.Covariance[j] = make([]float64, n)
		mean, sd := rooflineOf(f)
		set.Beta[j].Value, set.Covariance[j][j] = mean, sd*sd
	}
	return &Prior{Name: "roofline", Set: set}
}

// rooflineOf is the mean and standard error of one term without a library, us/s
// or us: work at the device's peak, a tenth to some times as slow; 10 us a layer;
// host work of a millisecond or some.
func rooflineOf(f features.Feature) (mean, sd float64) {
	switch {
	case f.Name == "bias":
		return 1000, 3000
	case f.Name == "batch_utilization" || !f.IsTime():
		return 0, 0
	case f.Name == "weight_load_hidden" || f.Name == "activation_traffic" || f.Name == "prefill_decode_mix":
		return 0, 5e5
	}
	return 1e6, 1.5e6
}

func emptySet(v features.Version) *coeff.Set {
	set := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: v, FeatureSet: features.SetOf(v), Recipe: "relative",
		BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma, Beta: features.NewCoefficients(features.BetaFeatures(v))}
	for _, target := range []string{coeff.Egress, coeff.Overhead} {
		set.Alpha = append(set.Alpha, coeff.AlphaModel{Target: target, Replay: true,
			Coefficients: features.NewCoefficients(features.AlphaFeatures(v))})
	}
	return set
}

// Beliefs about the delays outside the engine when the set has none: some
// milliseconds, and a microsecond or so for a token of the prompt.
const (
	overheadUs, overheadSD = 3000, 10_000
	egressUs, egressSD     = 500, 3000
	promptTokenSD          = 3 // us per prompt token before the queue
)

// delayTargets in the order of the simulator's columns.
var delayTargets = [...]string{coeff.Overhead, coeff.Egress}

// model is a prior on the columns that the data may move.
type model struct {
	name  string
	set   *coeff.Set // values as the prior has them
	names []string   // of the free columns, target/term
	free  []int      // columns of the simulator's derivatives
	beta  int        // number of free columns of the step time

	mean, sd  []float64                            // of the free columns
	precision []float64                            // len(free)^2
	columns   struct{ step, overhead, egress int } // of the simulator's derivatives
}

// newModel frees the terms of which the prior is not certain. What a set adds for
// single deployments stays as it is; a set whose factors multiply is taken as it
// holds on d.
func newModel(p *Prior, d *deploy.Deployment) (*model, error) {
	set := *p.Set
	if len(set.DeploymentFactors)+len(set.PromptFactors)+len(set.HardwareFactors) > 0 || set.Library == nil {
		set = *features.On(p.Set, d)
	}
	m := &model{name: p.Name, set: &set}
	n := len(features.AlphaFeatures(set.SpecVersion))
	m.columns.step, m.columns.overhead, m.columns.egress = len(set.Beta), n, n
	full := emptySet(set.SpecVersion)
	for i := range full.Alpha {
		if a := set.AlphaModel(full.Alpha[i].Target); a != nil {
			full.Alpha[i] = *a
		}
	}
	set.Alpha = full.Alpha
	var cov [][]float64
	for j, c := range set.Beta {
		if len(set.Covariance) == len(set.Beta) && set.Covariance[j][j] > 0 {
			row := slices.Clone(set.Covariance[j])
			if set.Library != nil {
				row[j] += float64(termSD * termSD * c.Value * c.Value)
			}
			m.add(j, "step/"+c.Name, c.Value, math.Sqrt(row[j]))
			cov = append(cov, row)
		}
	}
	m.beta = len(m.free)
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	m.delays(space)
	return m, m.invert(cov)
}

func (m *model) add(column int, name string, mean, sd float64) {
	m.free, m.names = append(m.free, column), append(m.names, name)
	m.mean, m.sd = append(m.mean, mean), append(m.sd, sd)
}

// delays frees the constants outside the engine and the work per prompt token
// before it.
func (m *model) delays(space *features.Space) {
	prompt := make([]float64, m.columns.overhead)
	in := features.QueueInput{PromptTokens: 1000, KVFreeBlocks: 1}
	_, _ = space.Alpha(&in, prompt)
	for t, target := range delayTargets {
		a := m.set.AlphaModel(target)
		at := m.columns.step + t*m.columns.overhead
		for j, f := range features.AlphaFeatures(m.set.SpecVersion) {
			mean := a.Coefficients[j].Value
			switch {
			case f.Name == "base_bias" && t == 0 && mean == 0:
				m.add(at+j, target+"/"+f.Name, overheadUs, overheadSD)
			case f.Name == "base_bias" && t == 0:
				m.add(at+j, target+"/"+f.Name, mean, mean)
			case f.Name == "base_bias":
				m.add(at+j, target+"/"+f.Name, max(mean, egressUs), egressSD)
			case f.Name == "admission_compute" && t == 0 && prompt[j] > 0:
				m.add(at+j, target+"/"+f.Name, mean, promptTokenSD*1000/prompt[j])
			}
		}
	}
}

// invert makes the precision of the free columns: correlated among step terms,
// which span fewer directions than there are, independent elsewhere.
func (m *model) invert(cov [][]float64) error {
	n := len(m.free)
	scaled := make([]float64, n*n)
	for k := range n {
		scaled[k*n+k] = 1
	}
	for k := range m.beta {
		for l := range m.beta {
			scaled[k*n+l] = cov[k][m.free[l]] / (m.sd[k] * m.sd[l])
		}
		scaled[k*n+k] += ridgeShare
	}
	inverse := stat.Inverse(scaled, n)
	if inverse == nil {
		return trace.Errorf(coeff.ImpossibleCoefficient, "prior %s: got a covariance that is not positive definite", m.name)
	}
	for k := range n {
		for l := range n {
			inverse[k*n+l] /= m.sd[k] * m.sd[l]
		}
	}
	m.precision = inverse
	return nil
}

// termSD is a standard error of every term of the library on top of what the sums of kernels are off together: a server's regimes err
// apart, and requests show few of them.
const termSD = 0.2

// ridgeShare is the variance that models leave to directions the library's
// deployments do not span, relative to a term's own.
const ridgeShare = 1e-4

// setOf is the prior's set with other values of the free columns.
func (m *model) setOf(values []float64) *coeff.Set {
	set := *m.set
	set.Beta = append([]coeff.Coefficient(nil), m.set.Beta...)
	set.Alpha = append([]coeff.AlphaModel(nil), m.set.Alpha...)
	for t := range set.Alpha {
		set.Alpha[t].Coefficients = append([]coeff.Coefficient(nil), m.set.Alpha[t].Coefficients...)
	}
	for k, v := range values {
		m.at(&set, k).Value = v
	}
	return &set
}

// at is where a free column stands.
func (m *model) at(set *coeff.Set, k int) *coeff.Coefficient {
	j := m.free[k]
	if j < m.columns.step {
		return &set.Beta[j]
	}
	target := coeff.Overhead
	if j -= m.columns.step; j >= m.columns.overhead {
		j, target = j-m.columns.overhead, coeff.Egress
	}
	return &set.AlphaModel(target).Coefficients[j]
}

// parts are the latency models of a candidate.
func (m *model) parts(d *deploy.Deployment, values []float64) (sim.Parts, error) {
	set := m.setOf(values)
	step, err := sim.NewPhysics(set, d)
	if err != nil {
		return sim.Parts{}, err
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, d)
	if err != nil {
		return sim.Parts{}, err
	}
	egress, err := sim.NewAlphaDelay(set, coeff.Egress, d)
	return sim.Parts{Step: step, Overhead: overhead, Egress: egress}, err
}

// Kinds of rows, each with an error of its own: spans are sums of steps that are
// known, a TTFT holds a wait that is known on average.
const (
	rowSpan = iota
	rowTTFT
	rowEgress
	numRowKinds
)

// leastError of a kind: no stamp is better. Relative, relative, us.
var leastError = [numRowKinds]float64{0.002, 0.005, 20}

// row is one equation in the free columns.
type row struct {
	kind, block int
	x           []float64
	y, scale    float64 // the error is measured in scale
}

// regression is the equations of all loads.
type regression struct {
	m       *model
	blockUs int64
	rows    []row
	offset  int // blocks of the loads before
}

func (r *regression) add(kind, block int, x []float64, y, scale float64) {
	r.rows = append(r.rows, row{kind, r.offset + block, x, y, scale})
}

// residual is a row's error at a candidate, in its scale.
func (w *row) residual(values []float64) float64 { return (w.y - ridge.Dot(w.x, values)) / w.scale }

// weight of a row at a candidate: by its kind's error and by Huber's loss.
func (w *row) weight(values []float64, scale [numRowKinds]float64) float64 {
	weight := 1 / (w.scale * w.scale * scale[w.kind] * scale[w.kind])
	if z := math.Abs(w.residual(values)) / scale[w.kind]; z > robustAt {
		weight *= robustAt / z
	}
	return weight
}

// robustAt is where a residual counts linearly, in errors of its kind.
const robustAt = 2

// scales are the typical errors by kind at a candidate.
func (r *regression) scales(values []float64) [numRowKinds]float64 {
	var off [numRowKinds][]float64
	for i := range r.rows {
		w := &r.rows[i]
		off[w.kind] = append(off[w.kind], math.Abs(w.residual(values)))
	}
	var out [numRowKinds]float64
	for k := range out {
		if out[k] = leastError[k]; len(off[k]) > 0 {
			out[k] = math.Max(out[k], madToSD*stat.Median(off[k]))
		}
	}
	return out
}

// madToSD is the standard deviation of a normal law over its median deviation.
const madToSD = 1.4826

// evidence is what the rows say at a candidate, each weighted by its kind's error
// and by Huber's loss; variance 1, so that the sum is the information itself. The
// errors of a stretch of time go together: one machine ran all of it.
func (r *regression) evidence(values []float64) evidence {
	n := len(r.m.free)
	scale := r.scales(values)
	e := evidence{sum: ridge.New(n), variance: 1, design: 1, errors: scale}
	blocks := []*ridge.Gram{}
	for i := range r.rows {
		w := &r.rows[i]
		for len(blocks) <= w.block {
			blocks = append(blocks, ridge.New(n))
		}
		blocks[w.block].AddRow(w.weight(values, scale), w.x, w.y)
	}
	for _, b := range blocks {
		e.sum.Add(b)
	}
	e.design = r.m.design(blocks, values, 1)
	return e
}

// design is how many rows count as one: the variance of the blocks' scores over
// what independent rows would have, in units of the prior.
func (m *model) design(blocks []*ridge.Gram, values []float64, variance float64) float64 {
	n := len(m.free)
	meat, bread := 0.0, 0.0
	for _, b := range blocks {
		for k := range n {
			score := b.B[k] - ridge.Dot(b.G[k*n:(k+1)*n], values)
			meat += float64(score * score * m.sd[k] * m.sd[k])
			bread += float64(variance * b.G[k*n+k] * m.sd[k] * m.sd[k])
		}
	}
	if !(bread > 0) {
		return leastDesign
	}
	return math.Max(leastDesign, meat/bread)
}

// regressionPasses: step times say how many steps a stretch held, and errors how
// rows weigh.
const regressionPasses = 8

// anchored is the first estimate of all loads and its evidence; the prior's mean and
// no evidence where they tell nothing.
func (l *learner) anchored() ([]float64, *evidence, error) {
	var all []*occupancy
	for _, load := range l.loads {
		o, err := newOccupancy(load, l.m)
		if err != nil {
			return nil, nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
	values := l.m.mean
	for pass := 0; ; pass++ {
		r := &regression{m: l.m, blockUs: l.BlockUs}
		for _, o := range all {
			o.rows(values, r)
			for i := range r.rows {
				r.offset = max(r.offset, r.rows[i].block+1)
			}
		}
		if len(r.rows) == 0 {
			return slices.Clone(values), nil, nil
		}
		e := r.evidence(values)
		if pass == regressionPasses {
			return values, &e, nil
		}
		next, err := l.step(&state{values: values}, e, 0)
		if err != nil {
			return nil, nil, err
		}
		values = next
	}
}
