package learn

import (
	"cmp"
	"math"
	"slices"
	"sort"

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
		set.Beta[j].Value = mean
		set.Covariance[j][j] = sd * sd
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
	m.columns.step = len(set.Beta)
	m.columns.overhead = n
	m.columns.egress = n
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
				row[j] += termSD * termSD * c.Value * c.Value
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
	m.free = append(m.free, column)
	m.names = append(m.names, name)
	m.mean = append(m.mean, mean)
	m.sd = append(m.sd, sd)
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
			meat += score * score * m.sd[k] * m.sd[k]
			bread += variance * b.G[k*n+k] * m.sd[k] * m.sd[k]
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

// occupancy is who decoded when, by the clients' stamps: a regression on it needs
// no simulator, and no wrong step time can send it astray.
type occupancy struct {
	load  *Load
	m     *model
	space *features.Space
	in    features.StepInput
	steps []prefill // steps that ran prompts, in order of time
	spans []stretch // of constant decodes between two stamps, in order of time
	ends  []float64 // of steps, us
	alive []int     // requests with both stamps, in order of their first token

	groups map[uint64]bool // contents that some prompt has computed before
}

// prefill is one step with prompts in it, as far as clients can tell.
type prefill struct {
	endUs float64
	x     []float64
	tasks int // requests whose first token it made
}

// stretch is a time in which the same requests decode.
type stretch struct {
	fromUs, toUs float64
	decodes      int64
	context      float64 // tokens of all of them, at its middle
	x            []float64
}

// sameStep is how near two first tokens are that one step made, in typical gaps.
const sameStep = 0.4

// newOccupancy reads the stamps of a load; nil when there are none to read.
func newOccupancy(load *Load, m *model) (*occupancy, error) {
	space, err := features.New(m.set.SpecVersion, load.Deployment)
	if err != nil {
		return nil, err
	}
	o := &occupancy{load: load, m: m, space: space, groups: map[uint64]bool{}}
	var gaps []float64
	for i := range load.Seen {
		if !isNumber(load.first(i)) || !isNumber(load.last(i)) {
			continue
		}
		o.alive = append(o.alive, i)
		if n := load.Requests[i].OutputTokens - 1; n > 0 {
			gaps = append(gaps, load.stamps(i).SpanUs/float64(n))
		}
	}
	if len(gaps) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(o.alive, func(a, b int) int { return cmp.Compare(load.first(a), load.first(b)) })
	o.stretches()
	o.prefills(sameStep * stat.Median(gaps))
	return o, nil
}

// features of one step: chunks of prompts beside decodes.
func (o *occupancy) features(b *sim.Batch) []float64 {
	x := make([]float64, o.m.columns.step)
	b.Running = b.PrefillReqs + b.DecodeReqs
	sim.FillStepInput(o.space.Version(), b, &o.in)
	_, _ = o.space.Beta(&o.in, x)
	return x
}

// stretches cuts the time at every first and last token.
func (o *occupancy) stretches() {
	type edge struct {
		at            float64
		n             int64
		base, perSlow float64 // context of those who decode: base + perSlow*t
	}
	var edges []edge
	for _, i := range o.alive {
		first := o.load.first(i)
		last := o.load.last(i)
		r := &o.load.Requests[i]
		if last <= first {
			continue
		}
		slope := float64(r.OutputTokens-1) / (last - first)
		base := float64(r.PromptTokens+1) - slope*first
		edges = append(edges, edge{first, 1, base, slope}, edge{last, -1, -base, -slope})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var now edge
	for k, e := range edges {
		if k > 0 && now.n > 0 && e.at > now.at {
			mid := (now.at + e.at) / 2
			s := stretch{fromUs: now.at, toUs: e.at, decodes: now.n, context: now.base + now.perSlow*mid}
			b := &sim.Batch{}
			b.AddDecodes(s.decodes, int64(s.context), wholeBlocks(s.context, o.load.Deployment.Engine.BlockSize))
			s.x = o.features(b)
			o.spans = append(o.spans, s)
		}
		now.at = e.at
		now.n += e.n
		now.base += e.base
		now.perSlow += e.perSlow
	}
}

func wholeBlocks(context float64, size int64) int64 { return int64(context) / max(1, size) }

// prefills puts prompts into steps: first tokens that come together were one
// step's work, a prompt beyond the budget takes several.
func (o *occupancy) prefills(togetherUs float64) {
	for k := 0; k < len(o.alive); {
		end := k + 1
		for end < len(o.alive) && o.load.first(o.alive[end])-o.load.first(o.alive[k]) <= togetherUs {
			end++
		}
		o.prompts(o.alive[k:end])
		k = end
	}
}

// prompts are the steps that compute the prompts of requests with one first token.
func (o *occupancy) prompts(requests []int) {
	at := o.load.first(requests[0])
	decodes, context := o.decoding(at)
	budget := o.load.Deployment.Engine.MaxNumBatchedTokens - decodes
	if !o.load.Deployment.Engine.ChunkedPrefill || budget < 1 {
		budget = math.MaxInt64
	}
	b, used := &sim.Batch{}, int64(0)
	step := func(tasks int) {
		b.AddDecodes(decodes, int64(context), wholeBlocks(context, o.load.Deployment.Engine.BlockSize))
		o.steps = append(o.steps, prefill{endUs: at, x: o.features(b), tasks: tasks})
		o.ends = append(o.ends, at)
		b, used = &sim.Batch{}, 0
	}
	for _, i := range requests {
		r := &o.load.Requests[i]
		cached := o.cached(r)
		for c := cached; c < r.PromptTokens; {
			if used == budget {
				step(0)
			}
			n := min(r.PromptTokens-c, budget-used)
			b.AddPrefill(c, r.PromptTokens, n)
			c, used = c+n, used+n
		}
	}
	step(len(requests))
}

// cached are the leading tokens of a prompt that the prefix cache has: those that a
// recording says, or that an earlier prompt has computed, in whole blocks and never
// all of them. Nothing is taken to be evicted.
func (o *occupancy) cached(r *sim.Request) int64 {
	e := &o.load.Deployment.Engine
	shared := r.CachedTokens.Or(0)
	if e.PrefixCaching && !r.CachedTokens.OK {
		if r.Group != 0 && o.groups[r.Group] {
			shared = r.GroupTokens
		}
		for n, h := range r.Hashes {
			if !o.groups[h] {
				break
			}
			shared = max(shared, int64(n+1)*r.HashTokens)
		}
		for _, h := range append(r.Hashes[:len(r.Hashes):len(r.Hashes)], r.Group) {
			o.groups[h] = true
		}
	}
	size := max(1, e.BlockSize)
	return max(0, min(shared, r.PromptTokens-1)/size*size)
}

// decoding is who decodes just before a moment.
func (o *occupancy) decoding(at float64) (n int64, context float64) {
	k, _ := slices.BinarySearchFunc(o.spans, at, func(s stretch, t float64) int { return cmp.Compare(s.toUs, t) })
	if k < len(o.spans) && o.spans[k].fromUs < at {
		return o.spans[k].decodes, o.spans[k].context
	}
	return 0, 0
}

// leastPart of what was measured is the least that a candidate's time weighs as.
const leastPart = 10

// rows are those of the regression with step times of the candidate: one for the
// span of every request, one for the TTFT of those that waited for no other prompt,
// one for what is left of E2E.
func (o *occupancy) rows(values []float64, r *regression) {
	c := o.cumulate(o.step(values))
	fixed := o.step(make([]float64, len(o.m.free)))
	x := make([]float64, o.m.columns.step)
	block := func(i int) int { return int(float64(o.load.sent(i)) / float64(r.blockUs)) }
	relative := func(kind, i int, row []float64, us float64) {
		known := ridge.Dot(x, fixed)
		r.add(kind, block(i), row, us-known, math.Max(us/leastPart, known+ridge.Dot(row, values)))
	}
	for _, i := range o.alive {
		seen := &o.load.Seen[i]
		if q := &o.load.Requests[i]; q.OutputTokens > 1 && seen.SpanUs > 0 {
			c.span(o, i, x)
			relative(rowSpan, i, o.freeOf(x), seen.SpanUs)
		}
		if seen.TTFTUs > 0 && o.quiet(i, o.enters(i, values), x) {
			row := o.freeOf(x)
			o.entry(i, row)
			relative(rowTTFT, i, row, seen.TTFTUs)
		}
		if rest := seen.E2EUs - seen.TTFTUs - seen.SpanUs; isNumber(rest) {
			row := make([]float64, len(o.m.free))
			o.m.setNamed(row, "egress/base_bias", 1)
			r.add(rowEgress, block(i), row, rest, 1)
		}
	}
}

// step are the step's coefficients of a candidate.
func (o *occupancy) step(values []float64) []float64 {
	return o.m.theta(o.load, values)[:o.m.columns.step]
}

// freeOf are the free columns of step features.
func (o *occupancy) freeOf(x []float64) []float64 {
	free := make([]float64, len(o.m.free))
	for k, j := range o.m.free[:o.m.beta] {
		free[k] = x[j]
	}
	return free
}

// setNamed sets a free column by its name, if it is free.
func (m *model) setNamed(row []float64, name string, v float64) {
	if k := slices.Index(m.names, name); k >= 0 {
		row[k] = v
	}
}

// entry is what the overhead's terms make of a request.
func (o *occupancy) entry(i int, free []float64) {
	o.m.setNamed(free, "overhead/base_bias", 1)
	alpha := make([]float64, o.m.columns.overhead)
	in := features.QueueInput{PromptTokens: float64(o.load.Requests[i].PromptTokens), KVFreeBlocks: 1}
	if _, err := o.space.Alpha(&in, alpha); err != nil {
		return
	}
	if k := slices.Index(o.m.names, "overhead/admission_compute"); k >= 0 {
		free[k] = alpha[o.m.free[k]-o.m.columns.step]
	}
}

// sums are features of steps by time: of those that ran prompts, and of decodes
// with the number of steps they must have been.
type sums struct {
	prefillX [][]float64
	stretchN []float64 // steps of the stretches so far
	stretchX [][]float64
}

func (o *occupancy) cumulate(beta []float64) *sums {
	s := &sums{prefillX: [][]float64{make([]float64, len(beta))},
		stretchN: []float64{0}, stretchX: [][]float64{make([]float64, len(beta))}}
	busy := make([]float64, len(o.spans)) // time of each stretch that prompts took
	for k := range o.steps {
		p := &o.steps[k]
		s.prefillX = append(s.prefillX, scaledSum(s.prefillX[k], p.x, 1))
		took := math.Max(0, ridge.Dot(p.x, beta))
		at, _ := slices.BinarySearchFunc(o.spans, p.endUs, func(t stretch, us float64) int { return cmp.Compare(t.toUs, us) })
		for ; at >= 0 && took > 0; at-- {
			if at < len(o.spans) && o.spans[at].fromUs < p.endUs {
				part := math.Min(took, math.Min(o.spans[at].toUs, p.endUs)-o.spans[at].fromUs)
				busy[at] += part
				took -= part
			}
			if at == 0 {
				break
			}
		}
	}
	for k := range o.spans {
		t := &o.spans[k]
		length := t.toUs - t.fromUs
		n := math.Max(0.02*length, length-busy[k]) / math.Max(1, ridge.Dot(t.x, beta))
		s.stretchN = append(s.stretchN, s.stretchN[k]+n)
		s.stretchX = append(s.stretchX, scaledSum(s.stretchX[k], t.x, n))
	}
	return s
}

func scaledSum(a, x []float64, c float64) []float64 {
	out := make([]float64, len(a))
	for j := range a {
		out[j] = a[j] + c*x[j]
	}
	return out
}

// span sums the features of the steps between a request's first and last token.
func (s *sums) span(o *occupancy, i int, x []float64) {
	first, last := o.load.first(i), o.load.last(i)
	tokens := float64(o.load.Requests[i].OutputTokens - 1)
	from := stampsUntil(o.ends, first)
	to := stampsUntil(o.ends, last)
	all := float64(to - from)
	n := math.Min(tokens, all)
	for j := range x {
		x[j] = s.prefillX[to][j] - s.prefillX[from][j]
	}
	if all > n {
		for j := range x {
			x[j] *= n / all
		}
	}
	a := firstFrom(o.spans, first)
	b := firstFrom(o.spans, last)
	if weight := s.stretchN[b] - s.stretchN[a]; weight > 0 {
		for j := range x {
			x[j] += (tokens - n) * (s.stretchX[b][j] - s.stretchX[a][j]) / weight
		}
	}
}

// stampsUntil is the number of stamps at or before t.
func stampsUntil(ends []float64, t float64) int {
	return sort.Search(len(ends), func(k int) bool { return ends[k] > t })
}

// firstFrom is the first stretch that begins at t or later.
func firstFrom(spans []stretch, t float64) int {
	k, _ := slices.BinarySearchFunc(spans, t, func(s stretch, t float64) int { return cmp.Compare(s.fromUs, t) })
	return k
}

// enters is when a request reaches the engine by the overhead of the candidate, at the
// latest just before its first token.
func (o *occupancy) enters(i int, values []float64) float64 {
	row := make([]float64, len(values))
	o.entry(i, row)
	return math.Min(float64(o.load.sent(i))+ridge.Dot(row, values), o.load.first(i)-1)
}

// quiet says whether a request met no other prompt, and puts the features of the
// steps until its first token into x. It waits for half the step that runs when it
// arrives; one that a closed loop sends upon an answer does not arrive at any odd
// moment, and counts where nobody decodes.
func (o *occupancy) quiet(i int, entersUs float64, x []float64) bool {
	sent := float64(o.load.sent(i))
	first := o.load.first(i)
	if !isNumber(first) || first <= sent {
		return false
	}
	from := stampsUntil(o.ends, sent)
	clear(x)
	tasks := 0
	for k := from; k < len(o.steps) && o.steps[k].endUs <= first+1; k++ {
		tasks += o.steps[k].tasks
		for j := range x {
			x[j] += o.steps[k].x[j]
		}
	}
	n, _ := o.decoding(entersUs)
	if tasks != 1 || n > 0 && o.load.Requests[i].After > 0 || n >= o.load.Deployment.Engine.MaxNumSeqs {
		return false
	}
	if n > 0 {
		k, _ := slices.BinarySearchFunc(o.spans, entersUs, func(s stretch, t float64) int { return cmp.Compare(s.toUs, t) })
		wait := 0.5 // of the running step; an asynchronous engine has the next one scheduled already
		if o.load.Deployment.Engine.IsAsync() {
			wait++
		}
		for j := range x {
			x[j] += wait * o.spans[k].x[j]
		}
	}
	return true
}
