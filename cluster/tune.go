package cluster

// This file tunes the parameters of admission policies: maximise.go searches the parameters with
// the best goodput on the train seeds, and the result is evaluated on other seeds, loads and
// engines.

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// parameter is one tunable parameter, searched between Lo and Hi on a logarithmic scale.
type parameter struct {
	Name   string
	Lo, Hi float64
	set    func(s *Spec, v float64)
}

// value returns the parameter's value at u in [0, 1] of its logarithmic scale.
func (p *parameter) value(u float64) float64 {
	return math.Exp(math.Log(p.Lo) + u*(math.Log(p.Hi)-math.Log(p.Lo)))
}

// tunable returns the policies that can be tuned, with their parameters.
func tunable() map[string][]parameter {
	return map[string][]parameter{
		policySeed: append([]parameter{budgetParameter("critical"), budgetParameter("standard"),
			budgetParameter("sheddable"),
			{"step_ms", 1, 60, func(s *Spec, v float64) { s.Admission.StepMs = v }}}, weightParameters()...),
		policyGated: append([]parameter{threshold("standard"), threshold("sheddable")}, weightParameters()...),
		policyProbabilistic: append([]parameter{{"k", 1, 1000, func(s *Spec, v float64) { s.Admission.K = v }},
			{"power", 0.5, 10, func(s *Spec, v float64) { s.Admission.Power = v }},
			{"queue_depth_threshold", 1, 100, func(s *Spec, v float64) { s.Admission.QueueThreshold = v }}},
			weightParameters()...),
	}
}

// weightParameters returns the weights of the two scorers, prefix-affinity (pa) and
// queue-depth-effective (qd). Only their ratio can have an effect.
func weightParameters() []parameter {
	return []parameter{{"pa", 0.5, 8, reweigh(func(pa, _ *float64, v float64) { *pa = v })},
		{"qd", 0.5, 8, reweigh(func(_, qd *float64, v float64) { *qd = v })}}
}

// commonScale returns a control parameter that multiplies both weights of the scorers. Because only
// their ratio matters, the sensitivity of goodput to it must be none.
func commonScale() parameter {
	return parameter{"common scale of pa, qd", 0.1, 10,
		reweigh(func(pa, qd *float64, v float64) {
			*pa *= v
			*qd *= v
		})}
}

// reweigh returns a function that changes the weights of the two scorers in a spec by change, given
// a parameter value v.
func reweigh(change func(pa, qd *float64, v float64)) func(*Spec, float64) {
	const form = "prefix-affinity:%g,queue-depth-effective:%g"
	return func(s *Spec, v float64) {
		var pa, qd float64
		fmt.Sscanf(s.Routing.Scorers, form, &pa, &qd)
		change(&pa, &qd, v)
		s.Routing.Scorers = fmt.Sprintf(form, pa, qd)
	}
}

// budgetParameter returns the TTFT budget of a class as a parameter, ms.
func budgetParameter(class string) parameter {
	return parameter{"budget_" + class + "_ms", 20, 2000, func(s *Spec, v float64) {
		s.Admission.BudgetsMs = maps.Clone(s.Admission.BudgetsMs)
		s.Admission.BudgetsMs[class] = v
	}}
}

// threshold returns the threshold of a class, in waiting requests, as a parameter of slo-gated.
func threshold(class string) parameter {
	return parameter{"threshold_" + class, 0.5, 128, func(s *Spec, v float64) {
		s.Admission.Thresholds = maps.Clone(s.Admission.Thresholds)
		s.Admission.Thresholds[class] = v
	}}
}

// loggedCall is one line of optimise.jsonl: a simulation of a search.
type loggedCall struct {
	Policy string `json:"policy"`
	Key    string `json:"key"` // of everything that decides the answer
	Call
}

// tuner is the state of `experiment optimise`: the lab with its load and engines, the seeds, and
// what earlier simulations found.
type tuner struct {
	lab
	ask         optimiseOptions
	before      []loggedCall           // of an interrupted search
	made        func(loggedCall) error // writes a simulation to optimise.jsonl
	train, test []int64                // seeds
	critical    float64                // smallest allowed goodput of class critical
	key         string                 // identifies the search in the log, see keyOf
	always      map[string]elsewhere   // always-admit where policies are tried, by optimiseTransfer.To
	other       *lab                   // the engines of another form at the same share of their capacity
}

// elsewhere is what always-admit does at another load or on other engines.
type elsewhere struct{ goodput, seats *float64 }

// nobodyMisses is a goodput of always-admit, as a share of arrivals, from which on a load needs no
// rejections.
const nobodyMisses = 0.99

// tunePolicies tunes the policy asked for, slo-gated and probabilistic with the same number of
// simulations each, and evaluates them and untuned predictive with other seeds, loads and engines.
func tunePolicies(t *tuner) (*OptimiseDoc, error) {
	s := &t.ask
	if err := t.prepare(); err != nil {
		return nil, err
	}
	t.train = seedsFrom(1, s.TrainSeeds)
	t.test = seedsFrom(101, s.TestSeeds)
	t.seeds = t.train
	base, critical, err := t.goodput(new(specOf(policyAlways, scorersNew, priorityFCFS)), &t.plant, t.train,
		t.drawRequests)
	if err != nil {
		return nil, err
	}
	t.critical = stat.Mean(critical) - 0.01
	t.key = t.keyOf(base, critical)
	doc := &OptimiseDoc{
		Policy:   s.Policy,
		Method:   s.Method,
		Calls:    s.Start + s.Calls,
		Train:    t.train,
		Test:     t.test,
		Baseline: result.OrNull(stat.Mean(base)),
		Critical: result.OrNull(stat.Mean(critical)),
		Warnings: []trace.Finding{},
	}
	policies := []string{s.Policy}
	for _, policy := range []string{policyGated, policyProbabilistic} {
		if policy != s.Policy {
			policies = append(policies, policy)
		}
	}
	for _, policy := range policies {
		one, err := t.tunePolicy(policy)
		if err != nil {
			return nil, err
		}
		doc.Tuned = append(doc.Tuned, *one)
	}
	one, err := t.validated(policyPredictive, new(specOf(policyPredictive, scorersNew, priorityFCFS)))
	if err != nil {
		return nil, err
	}
	doc.Tuned = append(doc.Tuned, *one)
	return doc, nil
}

// keyOf returns a text that identifies everything on which the result of a simulation depends. The
// goodput of always-admit, base and critical by seed, represents the engines and the requests.
func (t *tuner) keyOf(base, critical []float64) string {
	s, points := &t.ask, ""
	if s.Method == methodGrid { // the finest that the calls allow
		points = fmt.Sprintf(" of %d", s.Start+s.Calls)
	}
	h := fnv.New64a()
	fmt.Fprintln(h, base, critical)
	return fmt.Sprintf("%s %s%s from %d, %d engines, %g/s, seeds %d, %016x", s.Preset, s.Method, points, s.Start,
		s.Instances, t.rate,
		s.TrainSeeds, h.Sum64())
}

// drawRequests returns the requests of a seed with the preset's load and rate.
func (t *tuner) drawRequests(seed int64) []sim.Request {
	return t.load.Draw(seed, t.rate, t.preset.Seconds)
}

// goodput simulates a spec on a plant (simulated engines) with the requests that draw makes for
// each seed, and returns the goodput by seed of all requests and of class critical.
func (t *tuner) goodput(spec *Spec, plant *plant, seeds []int64, draw func(int64) []sim.Request) (all,
	critical []float64, err error) {
	runs, err := t.outcomes(spec, plant, seeds, draw)
	if err != nil {
		return nil, nil, err
	}
	return valuesOf(runs, func(o *outcome) float64 { return o.All.Goodput() }),
		valuesOf(runs, func(o *outcome) float64 { return o.class("critical").Goodput() }), nil
}

// outcomes does the simulations of goodput and returns what they gave, by seed.
func (t *tuner) outcomes(spec *Spec, plant *plant, seeds []int64, draw func(int64) []sim.Request) ([]*outcome, error) {
	out := make([]*outcome, len(seeds))
	c := cell{Spec: *spec}
	// The window has no end: at other loads draw makes longer runs than the preset's.
	w := window{FromUs: int64(t.preset.WarmupS * 1e6), ToUs: math.MaxInt64}
	err := par.Try(t.ctx, t.Workers, len(seeds), func(i int) (err error) {
		out[i], err = t.runCell(&c, &rival{Plant: *plant, Gate: t.gate}, seeds[i], draw(seeds[i]), w, nil)
		return err
	}, nil)
	return out, err
}

// apply returns the spec of a policy whose parameters are at point x of the unit cube.
func (t *tuner) apply(policy string, x []float64) Spec {
	s := specOf(policy, scorersNew, priorityFCFS)
	for k, p := range tunable()[policy] {
		p.set(&s, p.value(x[k]))
	}
	return s
}

// tunePolicy searches the parameters of one policy with the train seeds and returns the best with
// its evaluation.
func (t *tuner) tunePolicy(policy string) (*optimisePolicy, error) {
	knobs := tunable()[policy]
	o := search{
		Dims:        len(knobs),
		Method:      t.ask.Method,
		Start:       t.ask.Start,
		Calls:       t.ask.Calls,
		Seed:        1,
		Constrained: true,
	}
	for _, c := range t.before {
		if c.Policy == policy && c.Key == t.key && c.N == len(o.Made) && len(c.X) == len(knobs) {
			o.Made = append(o.Made, c.Call)
		}
	}
	o.Told = func(c Call) error {
		t.Progress.Report("optimise "+policy, int64(c.N+1), int64(o.Start+o.Calls), "calls")
		return t.made(loggedCall{Policy: policy, Key: t.key, Call: c})
	}
	found, err := o.maximise(func(x []float64) (Value, error) {
		all, critical, err := t.goodput(new(t.apply(policy, x)), &t.plant, t.train, t.drawRequests)
		if err != nil {
			return Value{}, err
		}
		deviation := stat.StdErr(all)
		criticalDeviation := stat.StdErr(critical)
		return Value{
			Value:         stat.Mean(all),
			Variance:      deviation * deviation,
			Slack:         stat.Mean(critical) - t.critical,
			SlackVariance: criticalDeviation * criticalDeviation,
		}, nil
	})
	if err != nil {
		return nil, err
	}
	spec := t.apply(policy, found.X)
	out, err := t.validated(policy, &spec)
	if err != nil {
		return nil, err
	}
	out.Method = t.ask.Method
	out.Posterior = result.OrNull(found.Mean)
	for k, p := range knobs {
		out.Parameters[p.Name] = stat.Round(p.value(found.X[k]), 4)
	}
	out.Sensitivity, err = t.sensitivity(spec, append(slices.Clone(knobs), commonScale()))
	return out, err
}

// validated returns the goodput of a spec with the train and test seeds, and how it transfers to
// loads and engines for which it was not tuned.
func (t *tuner) validated(policy string, spec *Spec) (*optimisePolicy, error) {
	out := &optimisePolicy{
		Policy:      policy,
		Parameters:  map[string]float64{},
		Transfer:    []optimiseTransfer{},
		Sensitivity: []optimiseParameter{},
	}
	train, _, err := t.goodput(spec, &t.plant, t.train, t.drawRequests)
	if err != nil {
		return nil, err
	}
	test, critical, err := t.goodput(spec, &t.plant, t.test, t.drawRequests)
	if err != nil {
		return nil, err
	}
	out.Train = result.OrNull(stat.Mean(train))
	out.Test = result.OrNull(stat.Mean(test))
	out.Critical = result.OrNull(stat.Mean(critical))
	out.Gap = result.OrNull(stat.Mean(train) - stat.Mean(test))
	// t.capacity and t.rate are of the plant the policy was tuned on. The other engines get the same
	// share of their own capacity, for long enough to reach max_num_seqs.
	other := plant{Name: "trained-physics", Deployment: t.plant.Deployment, Other: true}
	bursty := loads["bursty"]
	newGroup := loads["newcomer"]
	if t.other == nil { // the same for every policy
		there := t.lab
		if err := there.toPlant(&rival{Plant: other, Gate: t.gate}); err != nil {
			return nil, err
		}
		t.other = &there
	}
	for _, to := range []struct {
		name  string
		plant *plant
		draw  func(int64) []sim.Request
	}{
		{"rate x0.8", &t.plant, func(s int64) []sim.Request { return t.load.Draw(s, 0.8*t.rate, t.preset.Seconds) }},
		{"rate x1.2", &t.plant, func(s int64) []sim.Request { return t.load.Draw(s, 1.2*t.rate, t.preset.Seconds) }},
		{"bursty, 0.3 x rate", &t.plant,
			func(s int64) []sim.Request { return bursty.Draw(s, 0.3*t.rate, 2*t.preset.Seconds) }},
		{"newcomer, 0.3 x rate", &t.plant,
			func(s int64) []sim.Request { return newGroup.Draw(s, 0.3*t.rate, 2*t.preset.Seconds) }},
		{"other coefficients, same rho", &other,
			func(s int64) []sim.Request { return t.load.Draw(s, t.other.rate, t.other.preset.Seconds) }},
	} {
		got, _, err := t.goodput(spec, to.plant, t.test, to.draw)
		if err != nil {
			return nil, err
		}
		always, known := t.always[to.name]
		if !known { // the same for every policy
			runs, err := t.outcomes(new(specOf(policyAlways, scorersNew, priorityFCFS)), to.plant, t.test, to.draw)
			if err != nil {
				return nil, err
			}
			always.goodput = result.OrNull(stat.Mean(valuesOf(runs, func(o *outcome) float64 { return o.All.Goodput() })))
			always.seats = result.OrNull(stat.Mean(valuesOf(runs, func(o *outcome) float64 { return o.Seats })))
			t.always[to.name] = always
		}
		one := optimiseTransfer{
			To:      to.name,
			Goodput: result.OrNull(stat.Mean(got)),
			Always:  always.goodput,
			Seats:   always.seats,
		}
		one.Tested = one.Always == nil || *one.Always < nobodyMisses
		out.Transfer = append(out.Transfer, one)
	}
	return out, nil
}

// sensitivity varies one parameter at a time over its range, with the others as tuned, and returns
// by how much goodput changes for each: the paired difference between its best and its worst value.
func (t *tuner) sensitivity(spec Spec, knobs []parameter) ([]optimiseParameter, error) {
	var out []optimiseParameter
	for _, p := range knobs {
		row := optimiseParameter{Name: p.Name, Lo: p.Lo, Hi: p.Hi, Effect: "no effect"}
		var points [][]float64 // goodput by seed, at each value of the parameter
		for u := 0.0; u <= 1; u += 0.25 {
			s := spec
			p.set(&s, p.value(u))
			v, _, err := t.goodput(&s, &t.plant, t.train, t.drawRequests)
			if err != nil {
				return nil, err
			}
			points = append(points, v)
		}
		stat.SortStable(points, func(a, b []float64) int { return cmp.Compare(stat.Mean(a), stat.Mean(b)) })
		d := stat.Paired(points[len(points)-1], points[0])
		row.Moves = result.OrNull(d.Mean)
		row.Band = result.OrNull(d.Hi - d.Mean)
		if d.Lo > 0 {
			row.Effect = "yes"
		}
		out = append(out, row)
	}
	return out, nil
}
