package cluster

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Value is one answer of the function: value and slack, which must not be negative,
// with their variances.
type Value struct {
	Value, Variance, Slack, SlackVariance float64
}

// Call is one call; calls that were made before may be handed in again.
type Call struct {
	N      int       `json:"call"`
	Method string    `json:"method"`
	X      []float64 `json:"x"`
	Value
}

// search looks for the largest value of a function on the unit cube.
type search struct {
	Dims        int
	Method      string // gp, random or grid
	Start       int    // calls before the process is asked
	Calls       int    // calls after them
	Seed        int64
	Constrained bool
	Made        []Call           // at first those of an interrupted search
	Told        func(Call) error // called after every new call; may be nil
}

// Methods of searching.
const (
	methodGP     = "gp"
	methodRandom = "random"
	methodGrid   = "grid"
)

// found is what a search recommends.
type found struct {
	X    []float64
	Mean float64 // posterior, at X
}

// maximise calls f and recommends a point.
func (s *search) maximise(f func(x []float64) (Value, error)) (*found, error) {
	for n := len(s.Made); n < s.Start+s.Calls; n++ {
		x := s.next(n)
		v, err := f(x)
		if err != nil {
			return nil, err
		}
		c := Call{N: n, Method: s.Method, X: x, Value: v}
		if s.Made = append(s.Made, c); s.Told != nil {
			if err := s.Told(c); err != nil {
				return nil, err
			}
		}
	}
	best, mean := s.among(s.processes())
	return &found{X: s.Made[best].X, Mean: mean}, nil
}

// next is the point of call n.
func (s *search) next(n int) []float64 {
	switch {
	case s.Method == methodGrid:
		return s.gridPoint(n)
	case s.Method == methodRandom:
		x := make([]float64, s.Dims)
		for k := range x {
			x[k] = stat.Draw(uint64(s.Seed), uint64(n), uint64(k))
		}
		return x
	case n < s.Start:
		return halton(n, s.Dims, s.Seed)
	}
	return s.propose(n)
}

// gridPoint walks the finest full grid that the calls allow, in a seeded order.
func (s *search) gridPoint(n int) []float64 {
	side := max(2, int(math.Floor(math.Pow(float64(s.Start+s.Calls), 1/float64(s.Dims))+1e-9)))
	x := make([]float64, s.Dims)
	for k := range x {
		x[k] = float64(n%side) / float64(side-1)
		n /= side
	}
	return x
}

// halton is point n of the Halton sequence, shifted by the seed.
func halton(n, dims int, seed int64) []float64 {
	primes := []int{2, 3, 5, 7, 11, 13, 17, 19, 23, 29}
	x := make([]float64, dims)
	for k := range x {
		base := primes[k%len(primes)]
		f := 1.0
		v := stat.Draw(uint64(seed), 77, uint64(k))
		for i := n + 1; i > 0; i /= base {
			f /= float64(base)
			v += f * float64(i%base)
		}
		x[k] = v - math.Floor(v)
	}
	return x
}

// processes are those of value and slack; the second is nil without a constraint.
func (s *search) processes() (value, slack *process) {
	var x [][]float64
	var y, vy, c, vc []float64
	for _, call := range s.Made {
		x = append(x, call.X)
		y = append(y, call.Value.Value)
		vy = append(vy, call.Variance)
		c = append(c, call.Slack)
		vc = append(vc, call.SlackVariance)
	}
	if value = regress(x, y, vy); s.Constrained {
		slack = regress(x, c, vc)
	}
	return value, slack
}

// candidates of a proposal, and how many of them are refined.
const (
	candidates = 300
	refined    = 3
)

// propose maximises log expected improvement times the chance that the slack holds.
func (s *search) propose(n int) []float64 {
	value, slack := s.processes()
	_, best := s.among(value, slack)
	gain := func(x []float64) float64 {
		for _, v := range x {
			if v < 0 || v > 1 {
				return math.Inf(-1)
			}
		}
		m, sd := value.at(x)
		g := logImprovement(m, sd, best)
		if slack != nil {
			cm, csd := slack.at(x)
			g += math.Log(math.Max(1e-12, normalBelow(cm/csd)))
		}
		return g
	}
	type scored struct {
		x []float64
		g float64
	}
	all := make([]scored, candidates)
	for k := range all {
		x := halton(1000+n*candidates+k, s.Dims, s.Seed+1)
		all[k] = scored{x, gain(x)}
	}
	stat.SortStable(all, func(a, b scored) int { return cmp.Compare(b.g, a.g) })
	top := all[:refined]
	for i := range top {
		res, err := optimize.Minimize(optimize.Problem{Func: func(x []float64) float64 { return -gain(x) }}, top[i].x,
			&optimize.Settings{FuncEvaluations: 40 * s.Dims}, &optimize.NelderMead{})
		if err == nil && -res.F > top[i].g {
			top[i] = scored{append([]float64(nil), res.X...), -res.F}
		}
		if top[i].g > top[0].g {
			top[0] = top[i]
		}
	}
	return top[0].x
}

// among is the call with the best posterior mean of those that probably keep the
// constraint; of all, by their slack, where none does.
func (s *search) among(value, slack *process) (best int, mean float64) {
	best, mean = -1, math.Inf(-1)
	safest, chance := 0, math.Inf(-1)
	for i, c := range s.Made {
		m, _ := value.at(c.X)
		p := 1.0
		if slack != nil {
			cm, csd := slack.at(c.X)
			p = normalBelow(cm / csd)
			if cm > chance {
				safest, chance = i, cm
			}
		}
		if p >= 0.5 && m > mean {
			best, mean = i, m
		}
	}
	if best < 0 {
		best = safest
		mean, _ = value.at(s.Made[best].X)
	}
	return best, mean
}

// process is a Gaussian process on the unit cube: Matern 5/2 with one length per
// dimension, the noise of each observation known, values standardised.
//
// Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006),
// algorithm 2.1 and equation 4.17.
type process struct {
	x           [][]float64
	mean, scale float64
	alpha       []float64 // K^-1 y
	chol        []float64
	noise       []float64 // variances of standardised values
	lengths     []float64
	amp         float64
}

// jitter keeps the matrix positive definite.
const jitter = 1e-6

func (p *process) kernel(a, b []float64) float64 {
	r2 := 0.0
	for k := range a {
		d := (a[k] - b[k]) / p.lengths[k]
		r2 += d * d
	}
	r := math.Sqrt(5 * r2)
	return p.amp * (1 + r + r*r/3) * math.Exp(-r)
}

// regress fits lengths and amplitude to values y at x by the largest marginal
// likelihood, with weak priors that keep lengths between a tenth and a few cubes.
func regress(x [][]float64, y, variance []float64) *process {
	p := &process{x: x, mean: stat.Mean(y), noise: make([]float64, len(y)), lengths: make([]float64, len(x[0]))}
	for _, v := range y {
		p.scale += (v - p.mean) * (v - p.mean)
	}
	if p.scale = math.Sqrt(p.scale / float64(len(y))); !(p.scale > 0) {
		p.scale = 1
	}
	z := make([]float64, len(y))
	for i, v := range y {
		z[i], p.noise[i] = (v-p.mean)/p.scale, variance[i]/p.scale/p.scale
	}
	cost := func(theta []float64) float64 {
		sum := 0.0
		for k := range p.lengths {
			p.lengths[k] = math.Exp(theta[k])
			d := (theta[k] - math.Log(0.5)) / 1.2
			sum += d * d / 2
		}
		p.amp = math.Exp(theta[len(theta)-1])
		sum += theta[len(theta)-1] * theta[len(theta)-1] / 8
		return sum - p.solve(z)
	}
	start := make([]float64, len(p.lengths)+1)
	for k := range p.lengths {
		start[k] = math.Log(0.5)
	}
	best := append([]float64(nil), start...)
	value := math.Inf(1)
	for _, shift := range []float64{0, -0.9, 0.7} {
		from := append([]float64(nil), start...)
		for k := range p.lengths {
			from[k] += shift
		}
		res, err := optimize.Minimize(optimize.Problem{Func: cost}, from, &optimize.Settings{FuncEvaluations: 40 * len(start)},
			&optimize.NelderMead{})
		if res != nil && (err == nil || res.F < value) && res.F < value {
			value, best = res.F, append(best[:0], res.X...)
		}
	}
	cost(best)
	return p
}

// solve factors the matrix for standardised values and is their log likelihood.
func (p *process) solve(z []float64) float64 {
	n := len(z)
	a := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			a[i*n+j] = p.kernel(p.x[i], p.x[j])
			a[j*n+i] = a[i*n+j]
		}
		a[i*n+i] += p.noise[i] + jitter
	}
	if stat.Cholesky(a, n) < n {
		return math.Inf(-1)
	}
	p.chol = a
	p.alpha = append([]float64(nil), z...)
	stat.CholeskySolve(a, n, p.alpha)
	like := -float64(n) / 2 * math.Log(2*math.Pi)
	for i := range n {
		like -= math.Log(a[i*n+i]) + z[i]*p.alpha[i]/2
	}
	return like
}

// at is the posterior mean and standard deviation of the function itself.
func (p *process) at(x []float64) (mean, sd float64) {
	n := len(p.x)
	k := make([]float64, n)
	for i := range n {
		k[i] = p.kernel(x, p.x[i])
		mean += k[i] * p.alpha[i]
	}
	v := append([]float64(nil), k...)
	stat.CholeskySolve(p.chol, n, v)
	rest := p.amp
	for i := range n {
		rest -= k[i] * v[i]
	}
	return p.mean + p.scale*mean, p.scale * math.Sqrt(math.Max(1e-12, rest))
}

// normalBelow is the standard normal distribution function.
func normalBelow(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// logImprovement is the logarithm of the expected improvement over best, by its
// asymptote where it underflows (Ament et al., NeurIPS 2023).
func logImprovement(mean, sd, best float64) float64 {
	u := (mean - best) / sd
	if u < -6 {
		return math.Log(sd) - u*u/2 - math.Log(2*math.Pi)/2 - 2*math.Log(-u)
	}
	return math.Log(sd) + math.Log(math.Exp(-u*u/2)/math.Sqrt(2*math.Pi)+u*normalBelow(u))
}

// parameter is one knob, searched in logarithms.
type parameter struct {
	Name   string
	Lo, Hi float64
	set    func(s *Spec, v float64)
}

func (p *parameter) value(u float64) float64 {
	return math.Exp(math.Log(p.Lo) + u*(math.Log(p.Hi)-math.Log(p.Lo)))
}

// tunable are the policies that can be tuned, with their knobs.
func tunable() map[string][]parameter {
	return map[string][]parameter{
		"predictive-seed": append([]parameter{budget("critical"), budget("standard"), budget("sheddable"),
			{"step_ms", 1, 60, func(s *Spec, v float64) { s.Admission.StepMs = v }}}, weights()...),
		"slo-gated": append([]parameter{threshold("standard"), threshold("sheddable")}, weights()...),
		"probabilistic": append([]parameter{{"k", 1, 1000, func(s *Spec, v float64) { s.Admission.K = v }},
			{"power", 0.5, 10, func(s *Spec, v float64) { s.Admission.Power = v }},
			{"queue_depth_threshold", 1, 100, func(s *Spec, v float64) { s.Admission.QueueThreshold = v }}}, weights()...),
	}
}

// weights are those of the two scorers. Only their ratio can matter.
func weights() []parameter {
	return []parameter{{"pa", 0.5, 8, reweigh(func(pa, _ *float64, v float64) { *pa = v })},
		{"qd", 0.5, 8, reweigh(func(_, qd *float64, v float64) { *qd = v })}}
}

// commonScale multiplies both weights: it cannot matter, and the table must say so.
func commonScale() parameter {
	return parameter{"common scale of pa, qd", 0.1, 10, reweigh(func(pa, qd *float64, v float64) { *pa, *qd = v**pa, v**qd })}
}

func reweigh(change func(pa, qd *float64, v float64)) func(*Spec, float64) {
	const form = "prefix-affinity:%g,queue-depth-effective:%g"
	return func(s *Spec, v float64) {
		var pa, qd float64
		fmt.Sscanf(s.Routing.Scorers, form, &pa, &qd)
		change(&pa, &qd, v)
		s.Routing.Scorers = fmt.Sprintf(form, pa, qd)
	}
}

func budget(class string) parameter {
	return parameter{"budget_" + class + "_ms", 20, 2000, func(s *Spec, v float64) {
		s.Admission.BudgetsMs = maps.Clone(s.Admission.BudgetsMs)
		s.Admission.BudgetsMs[class] = v
	}}
}

func threshold(class string) parameter {
	return parameter{"threshold_" + class, 0.5, 128, func(s *Spec, v float64) {
		s.Admission.Thresholds = maps.Clone(s.Admission.Thresholds)
		s.Admission.Thresholds[class] = v
	}}
}

// loggedCall is a line of the log that a search can go on from.
type loggedCall struct {
	Policy string `json:"policy"`
	Key    string `json:"key"` // of everything that decides the answer
	Call
}

// tuner evaluates specs on seeds.
type tuner struct {
	lab
	ask         optimiseOptions
	before      []loggedCall // of an interrupted search
	made        func(loggedCall) error
	train, test []int64
	critical    float64 // least goodput of class critical
	key         string
	always      map[string]*float64 // goodput of always-admit where policies are tried
	otherRate   float64             // of the engines of another form, requests per second
}

// nobodyMisses is a goodput of always-admit at which there is nothing to reject for.
const nobodyMisses = 0.99

// tune tunes the policy and its rivals with the same budget, and tries what they
// recommend on seeds and loads they have not seen.
func tune(t *tuner) (*OptimiseDoc, error) {
	s := &t.ask
	if err := t.prepare(); err != nil {
		return nil, err
	}
	t.train, t.test = seedsFrom(1, s.TrainSeeds), seedsFrom(101, s.TestSeeds)
	t.seeds = t.train
	base, critical, err := t.goodput(new(specOf("always-admit", scorersNew, "priority-fcfs")), &t.plant, t.train, t.draw)
	if err != nil {
		return nil, err
	}
	t.critical = stat.Mean(critical) - 0.01
	t.key = t.keyOf(base, critical)
	doc := &OptimiseDoc{Policy: s.Policy, Method: s.Method, Calls: s.Start + s.Calls, Train: t.train, Test: t.test,
		Baseline: result.OrNull(stat.Mean(base)), Critical: result.OrNull(stat.Mean(critical)), Warnings: []trace.Finding{}}
	policies := slices.Compact([]string{s.Policy, "slo-gated", "probabilistic"})
	if s.Policy == "probabilistic" {
		policies = policies[:2]
	}
	for _, policy := range policies {
		one, err := t.tune(policy)
		if err != nil {
			return nil, err
		}
		doc.Tuned = append(doc.Tuned, *one)
	}
	one, err := t.judged("predictive", new(specOf("predictive", scorersNew, "priority-fcfs")))
	if err != nil {
		return nil, err
	}
	doc.Tuned = append(doc.Tuned, *one)
	return doc, nil
}

// keyOf names everything that decides what a call answers; engines and requests by
// what always-admit makes of them.
func (t *tuner) keyOf(base, critical []float64) string {
	s, points := &t.ask, ""
	if s.Method == methodGrid { // the finest that the calls allow
		points = fmt.Sprintf(" of %d", s.Start+s.Calls)
	}
	h := fnv.New64a()
	fmt.Fprintln(h, base, critical)
	return fmt.Sprintf("%s %s%s from %d, %d engines, %g/s, seeds %d, %016x", s.Preset, s.Method, points, s.Start, s.Instances, t.rate,
		s.TrainSeeds, h.Sum64())
}

// draw makes the requests of a seed on the preset's load.
func (t *tuner) draw(seed int64) []sim.Request { return t.load.Draw(seed, t.rate, t.preset.Seconds) }

// goodput of a spec by seed, of all and of class critical.
func (t *tuner) goodput(spec *Spec, plant *plant, seeds []int64, draw func(int64) []sim.Request) (all, critical []float64, err error) {
	all = make([]float64, len(seeds))
	critical = make([]float64, len(seeds))
	c := cell{Spec: *spec}
	w := window{FromUs: int64(t.preset.WarmupS * 1e6), ToUs: math.MaxInt64}
	err = par.Try(t.ctx, t.Workers, len(seeds), func(i int) error {
		o, err := t.one(&c, &rival{Plant: *plant, Gate: t.gate}, seeds[i], draw(seeds[i]), w, nil)
		if err == nil {
			all[i], critical[i] = o.All.Goodput(), o.class("critical").Goodput()
		}
		return err
	}, nil)
	return all, critical, err
}

func (t *tuner) apply(policy string, x []float64) Spec {
	s := specOf(policy, scorersNew, "priority-fcfs")
	for k, p := range tunable()[policy] {
		p.set(&s, p.value(x[k]))
	}
	return s
}

// tune searches one policy's knobs on the train seeds.
func (t *tuner) tune(policy string) (*optimisePolicy, error) {
	knobs := tunable()[policy]
	o := search{Dims: len(knobs), Method: t.ask.Method, Start: t.ask.Start, Calls: t.ask.Calls, Seed: 1, Constrained: true}
	for _, c := range t.before {
		if c.Policy == policy && c.Key == t.key && c.N == len(o.Made) && len(c.X) == len(knobs) {
			o.Made = append(o.Made, c.Call)
		}
	}
	o.Told = func(c Call) error {
		t.Progress.Report("optimise "+policy, int64(c.N+1), int64(o.Start+o.Calls), "calls")
		return t.made(loggedCall{policy, t.key, c})
	}
	found, err := o.maximise(func(x []float64) (Value, error) {
		all, critical, err := t.goodput(new(t.apply(policy, x)), &t.plant, t.train, t.draw)
		if err != nil {
			return Value{}, err
		}
		a, c := stat.StdErr(all), stat.StdErr(critical)
		return Value{Value: stat.Mean(all), Variance: a * a, Slack: stat.Mean(critical) - t.critical, SlackVariance: c * c}, nil
	})
	if err != nil {
		return nil, err
	}
	spec := t.apply(policy, found.X)
	out, err := t.judged(policy, &spec)
	if err != nil {
		return nil, err
	}
	out.Method, out.Posterior = t.ask.Method, result.OrNull(found.Mean)
	for k, p := range knobs {
		out.Parameters[p.Name] = stat.Round(p.value(found.X[k]), 4)
	}
	out.Sensitivity, err = t.sensitivity(spec, append(slices.Clone(knobs), commonScale()))
	return out, err
}

// judged is a spec on train and test seeds, and where it was not tuned.
func (t *tuner) judged(policy string, spec *Spec) (*optimisePolicy, error) {
	out := &optimisePolicy{Policy: policy, Parameters: map[string]float64{}, Transfer: []optimiseTransfer{},
		Sensitivity: []optimiseParameter{}}
	train, _, err := t.goodput(spec, &t.plant, t.train, t.draw)
	if err != nil {
		return nil, err
	}
	test, critical, err := t.goodput(spec, &t.plant, t.test, t.draw)
	if err != nil {
		return nil, err
	}
	out.Train, out.Test, out.Critical = result.OrNull(stat.Mean(train)), result.OrNull(stat.Mean(test)), result.OrNull(stat.Mean(critical))
	out.Gap = result.OrNull(stat.Mean(train) - stat.Mean(test))
	other := plant{Name: "trained-physics", Deployment: t.plant.Deployment, Other: true}
	bursty := tables().Loads["bursty"]
	fresh := tables().Loads["newcomer"]
	if t.otherRate == 0 { // the same share of the other engines' own capacity
		capacity, err := t.capacityOf(&other, &t.gate)
		if err != nil {
			return nil, err
		}
		t.otherRate = math.Round(t.rate / t.capacity * capacity)
	}
	for _, to := range []struct {
		name  string
		plant *plant
		draw  func(int64) []sim.Request
	}{
		{"rate x0.8", &t.plant, func(s int64) []sim.Request { return t.load.Draw(s, 0.8*t.rate, t.preset.Seconds) }},
		{"rate x1.2", &t.plant, func(s int64) []sim.Request { return t.load.Draw(s, 1.2*t.rate, t.preset.Seconds) }},
		{"bursty, 0.3 x rate", &t.plant, func(s int64) []sim.Request { return bursty.Draw(s, 0.3*t.rate, 2*t.preset.Seconds) }},
		{"newcomer, 0.3 x rate", &t.plant, func(s int64) []sim.Request { return fresh.Draw(s, 0.3*t.rate, 2*t.preset.Seconds) }},
		{"other coefficients, same rho", &other, func(s int64) []sim.Request { return t.load.Draw(s, t.otherRate, t.preset.Seconds) }},
	} {
		got, _, err := t.goodput(spec, to.plant, t.test, to.draw)
		if err != nil {
			return nil, err
		}
		if t.always[to.name] == nil { // the same for every policy
			base, _, err := t.goodput(new(specOf("always-admit", scorersNew, "priority-fcfs")), to.plant, t.test, to.draw)
			if err != nil {
				return nil, err
			}
			t.always[to.name] = result.OrNull(stat.Mean(base))
		}
		one := optimiseTransfer{To: to.name, Goodput: result.OrNull(stat.Mean(got)), Always: t.always[to.name]}
		one.Tested = one.Always == nil || *one.Always < nobodyMisses
		out.Transfer = append(out.Transfer, one)
	}
	return out, nil
}

// sensitivity moves one knob at a time over its range, the others as recommended.
func (t *tuner) sensitivity(spec Spec, knobs []parameter) ([]optimiseParameter, error) {
	var out []optimiseParameter
	for _, p := range knobs {
		row := optimiseParameter{Name: p.Name, Lo: p.Lo, Hi: p.Hi, Effect: "no effect"}
		var points [][]float64
		for u := 0.0; u <= 1; u += 0.25 {
			s := spec
			p.set(&s, p.value(u))
			v, _, err := t.goodput(&s, &t.plant, t.train, t.draw)
			if err != nil {
				return nil, err
			}
			points = append(points, v)
		}
		stat.SortStable(points, func(a, b []float64) int { return cmp.Compare(stat.Mean(a), stat.Mean(b)) })
		d := stat.Paired(points[len(points)-1], points[0])
		row.Moves, row.Band = result.OrNull(d.Mean), result.OrNull(d.Hi-d.Mean)
		if d.Lo > 0 {
			row.Effect = "yes"
		}
		out = append(out, row)
	}
	return out, nil
}
