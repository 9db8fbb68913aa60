package cluster

// This file runs the isolation experiment: published claims about admission by predicted TTFT are
// tested by running a fixed set of cells on the same requests with several seeds.
//
// Words of the experiment: the plant is the simulated engines (deployment and step-time
// coefficients); the gate is the gateway's admission policy with the coefficients that it predicts
// with; a cell is one configuration (admission policy, routing, scheduler) of the experiment; a
// rival is another gate or plant with which the main comparison is repeated; a matched cell rejects
// at random, at the rates of the main cell's run with the same seed; a shadow (gate.go) shows which
// TTFT a rejected request would have had.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	gonum "gonum.org/v1/gonum/stat"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
)

// rival is a gate other than that of the main comparison, with the plant (simulated engines) behind
// it. The main comparison is repeated with each rival.
type rival struct {
	Plant plant
	Gate  gate
	Label string
}

// quietRho is an offered load, as a share of capacity, at which no request needs to be rejected:
// there the cells may not differ.
const quietRho = 0.6

// seedsOf returns n seeds: 42, 123 and 7777, which the publication used, then 1, 2, 3 and so on.
func seedsOf(n int) []int64 {
	return append([]int64{42, 123, 7777}, seedsFrom(1, n)...)[:n]
}

// seedsFrom returns n consecutive seeds, starting at first.
func seedsFrom(first int64, n int) (out []int64) {
	for k := range n {
		out = append(out, first+int64(k))
	}
	return out
}

// lab is the state of one experiment: its options and inputs, the load, and the outcome of each
// cell (configuration) with each seed.
type lab struct {
	IsolationOptions
	inputs
	ctx      context.Context
	preset   preset
	load     load
	rate     float64 // of arrivals, requests per second
	capacity float64 // completions per second of engines that always have work
	window   window  // whose arrivals count
	seeds    []int64
	cells    []cell
	runs     [][]*outcome // by cell, by seed
}

// outcome is the result of one simulation: one cell (configuration) with the requests of one seed.
type outcome struct {
	*Goodput
	Digest    string               // of the arrivals, see digestOf
	Rates     map[string][]float64 // share of tries rejected, by class and second
	Worst     float64              // largest P99 of TTFT of an instance, ms
	Slope     float64              // growth of the backlog, requests per second
	Seats     float64              // largest share of max_num_seqs in use, mean over the instances
	LifetimeS float64              // mean time from arrival to end
	Newcomer  newcomer             // admission of the prefix group that appears at half-time
	Points    []pair               // for the scatter plot; of the main cell with the first seed alone
}

// runPreset runs the experiment of o.Preset and returns its document. The caller sets the
// document's header.
func runPreset(ctx context.Context, o IsolationOptions, in inputs) (*Document, error) {
	l := &lab{IsolationOptions: o, inputs: in, ctx: ctx, seeds: seedsOf(o.Seeds)}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	l.window = l.preset.window()
	l.cells = slices.Concat(presetCells(), extraCells(), frontiers())
	if err := l.runCells(); err != nil {
		return nil, err
	}
	return l.document()
}

// prepare loads the preset and its workload, measures the capacity of the engines for it, and sets
// l.rate in requests per second: the preset's rate, its share of the capacity, or the rate of the
// recording.
func (l *lab) prepare() (err error) {
	l.preset, _ = presetOf(l.Preset)
	if l.load, err = loadOf(l.preset.Load, l.recorded); err != nil {
		return err
	}
	if l.capacity, err = l.capacityOf(&l.plant, &l.gate); err != nil {
		return err
	}
	switch {
	case l.preset.Rate > 0:
		l.rate = l.preset.Rate
	case l.preset.Rho > 0:
		l.rate = math.Round(l.preset.Rho * l.capacity)
	default:
		l.rate = l.load.recording.perSecond()
	}
	return nil
}

// Recorded reports whether the preset plays recorded requests and so needs a workload file.
func (p *preset) Recorded() bool { return p.Load == mooncakePreset || p.Load == filePreset }

// window returns the part of the simulated time whose arrivals count: from the end of the warm-up
// to the end of the arrivals, us.
func (p *preset) window() window {
	return window{FromUs: sim.ToUs(p.WarmupS * 1e6), ToUs: sim.ToUs(p.Seconds * 1e6)}
}

// runCells fills l.runs by running every cell with every seed. Matched cells run in a second pass
// because they copy the reject rates of the main cell's runs. It returns an error if two cells saw
// different arrivals, because contrasts pair runs of equal arrivals.
func (l *lab) runCells() error {
	l.runs = make([][]*outcome, len(l.cells))
	done := 0
	progress := func(n int) { l.Progress.Report("runs", int64(done+n), int64(len(l.cells)*len(l.seeds)), "runs") }
	var rates []map[string][]float64
	for _, matched := range []bool{false, true} {
		var names []string
		var at []int
		for i := range l.cells {
			if l.cells[i].Matched == matched {
				names = append(names, l.cells[i].Name)
				at = append(at, i)
			}
		}
		runs, err := l.rerunCells(names, &rival{Plant: l.plant, Gate: l.gate}, l.rate, l.window, rates, progress)
		if err != nil {
			return err
		}
		for k, i := range at {
			l.runs[i] = runs[k]
		}
		done += len(names) * len(l.seeds)
		rates = ratesOf(l.runsOf(mainCell))
	}
	for s := range l.seeds {
		for c := range l.cells {
			if l.runs[c][s].Digest != l.runs[0][s].Digest {
				return errors.New("experiment: cells saw different arrivals")
			}
		}
	}
	return nil
}

// runsOf returns the outcomes of the named cell, one for each seed.
func (l *lab) runsOf(name string) []*outcome {
	return l.runs[slices.IndexFunc(l.cells, func(c cell) bool { return c.Name == name })]
}

// ratesOf returns the reject rates of each run: for each class, the share of tries rejected in each
// second.
func ratesOf(runs []*outcome) []map[string][]float64 {
	var out []map[string][]float64
	for _, o := range runs {
		out = append(out, o.Rates)
	}
	return out
}

// runCell simulates one cell with given requests and returns its outcome. If rates is not nil, the
// cell is a matched one: it rejects at random, at these rates by class and second.
func (l *lab) runCell(c *cell, r *rival, seed int64, reqs []sim.Request, w window,
	rates map[string][]float64) (*outcome, error) {
	p, err := r.Gate.Parts(&r.Plant, l.Instances, seed)
	if err != nil {
		return nil, err
	}
	spec := c.Spec
	promised := promisedTargets(reqs)
	spec.Targets = targetsOf(promised)
	cfg := spec.Build(p)
	cfg.ShadowShare = math.Min(cfg.ShadowShare, shadowsOf/float64(len(reqs)))
	if rates != nil {
		cfg.Policy = &randomMatched{Rates: rates, Seed: seed}
	}
	res, err := Run(cfg, reqs)
	if err != nil {
		return nil, err
	}
	o := &outcome{
		Goodput:  goodputOf(res.Records, promised, w),
		Digest:   digestOf(reqs),
		Rates:    rejectRates(res.Records),
		Worst:    worstInstance(res.Records, w),
		Slope:    backlogSlope(res.Records, w),
		Seats:    seatsInUse(res.Records, l.Instances, r.Plant.Deployment.Engine.MaxNumSeqs),
		Newcomer: newcomerOf(res.Records, newcomerGroup, w),
	}
	sumS := 0.0
	n := 0
	for i := range res.Records {
		if e2e, ok := res.Records[i].E2EUs(); ok {
			sumS += e2e / 1e6
			n++
		}
	}
	o.LifetimeS = sumS / float64(max(1, n))
	if c.Name == mainCell && seed == l.seeds[0] {
		o.Points = stat.Thin(pairsOf(inWindow(res.Records, w)), 1500)
	}
	return o, nil
}

// rejectRates returns, for each class and each second of the decision, the share of tries
// (arrivals, repeated ones included) that were rejected, in [0, 1].
func rejectRates(recs []record) map[string][]float64 {
	type count struct{ all, out float64 }
	counts := map[string][]count{}
	for i := range recs {
		r := &recs[i]
		list := counts[r.Class]
		second := int(r.DecidedUs / 1e6)
		for len(list) <= second {
			list = append(list, count{})
		}
		list[second].all++
		if !r.Admitted() {
			list[second].out++
		}
		counts[r.Class] = list
	}
	out := map[string][]float64{}
	for class, list := range counts {
		for _, c := range list {
			out[class] = append(out[class], c.out/math.Max(1, c.all))
		}
	}
	return out
}

// worstInstance returns the largest P99 of TTFT over the instances, ms; NaN if no instance served a
// request in the window. The publication called this figure the P99 of the cluster. It is interpolated between two
// requests, unlike the other percentiles of the document, which are by nearest rank (p99).
func worstInstance(recs []record, w window) float64 {
	by := map[int][]float64{}
	for i := range recs {
		r := &recs[i]
		if us, ok := r.TTFTUs(); ok && r.Admitted() && r.ArrivalUs >= w.FromUs && r.ArrivalUs < w.ToUs {
			by[r.Instance] = append(by[r.Instance], us/1e3)
		}
	}
	worst := math.NaN()
	for _, v := range by {
		if p99 := stat.Quantile(stat.Sorted(v), 0.99); !(p99 <= worst) {
			worst = p99
		}
	}
	return worst
}

// seatsInUse returns the largest number of requests that an instance served at a time, as a share of
// its max_num_seqs and as a mean over the instances. Below 1 the load has not filled the engines, and
// no gate had to choose who gets a place in the batch.
func seatsInUse(recs []record, instances int, seats int64) float64 {
	type change struct{ us, by int64 }
	changes := make([][]change, instances)
	for i := range recs {
		r := &recs[i]
		if !r.Admitted() || !r.ScheduledUs.OK {
			continue
		}
		changes[r.Instance] = append(changes[r.Instance], change{us: r.ScheduledUs.V, by: 1})
		if r.FinishedUs.OK {
			changes[r.Instance] = append(changes[r.Instance], change{us: r.FinishedUs.V, by: -1})
		}
	}
	sum := 0.0
	for _, list := range changes {
		// A place that one request leaves as another takes it is in use once.
		stat.SortStable(list, func(a, b change) int { return cmp.Or(cmp.Compare(a.us, b.us), cmp.Compare(a.by, b.by)) })
		var running, most int64
		for _, c := range list {
			running += c.by
			most = max(most, running)
		}
		sum += float64(most) / float64(seats)
	}
	return sum / float64(instances)
}

// backlogSlope returns how fast the backlog grows inside the window, in requests per second: the
// slope of a least-squares line through the number of admitted requests without a first token at a
// hundred moments.
func backlogSlope(recs []record, w window) float64 {
	const moments = 100
	span := float64(w.ToUs - w.FromUs)
	diff := make([]float64, moments+1) // change of the backlog between moments
	// place returns the first moment that is not before us; 0 for times before the window.
	place := func(us int64) int {
		return int(math.Ceil(math.Max(0, math.Min(moments, float64(us-w.FromUs)/span*moments))))
	}
	for i := range recs {
		if r := &recs[i]; r.Admitted() && r.ArrivalUs < w.ToUs {
			diff[place(r.ArrivalUs)]++
			if r.FirstTokenUs.OK {
				diff[place(r.FirstTokenUs.V)]--
			}
		}
	}
	seconds := make([]float64, moments)
	backlogs := make([]float64, moments)
	backlog := 0.0
	for k := range moments {
		backlog += diff[k]
		seconds[k] = float64(k) / moments * span / 1e6
		backlogs[k] = backlog
	}
	_, perSecond := gonum.LinearRegression(seconds, backlogs, nil, false)
	return perSecond
}

// capacityOf returns the capacity of the engines for the lab's load: requests completed per second
// with round-robin routing and no rejections, while far more requests wait than the engines can
// serve.
func (l *lab) capacityOf(p *plant, g *gate) (float64, error) {
	const probe = 6000    // requests
	const rate = 20_000.0 // per second, far above any capacity
	// Draw wants a duration and not a number: twice the expected one, of which the first are taken.
	reqs := l.load.Draw(1, rate, 2*probe/rate)
	return l.measureCapacity(p, g, reqs[:min(probe, len(reqs))])
}

// measureCapacity does what capacityOf describes with given requests. It counts completions between
// the 30th and the 70th percentile of their times, which excludes the filling and the draining of
// the engines.
func (l *lab) measureCapacity(plant *plant, gate *gate, reqs []sim.Request) (float64, error) {
	p, err := gate.Parts(plant, l.Instances, 1)
	if err != nil {
		return 0, err
	}
	res, err := Run(new(specOf(policyAlways, "", "fcfs")).Build(p), reqs)
	if err != nil {
		return 0, err
	}
	var done []float64
	for i := range res.Records {
		if at := res.Records[i].FinishedUs; at.OK {
			done = append(done, float64(at.V)/1e6)
		}
	}
	done = stat.Sorted(done)
	lo, hi := len(done)*3/10, len(done)*7/10
	return float64(hi-lo) / (done[hi] - done[lo]), nil
}

// cell is one configuration of the experiment.
type cell struct {
	Name      string
	Number    int     // number in the publication; 0 if it is not one of its five configurations
	Role      string  // one of the roles below
	Parameter float64 // the varied parameter of a frontier cell
	Spec      Spec
	// Matched copies the reject rates of the main cell's run of the same seed.
	Matched bool
}

// Roles of cells.
const (
	roleCell     = "cell"     // one of the thirteen of presetCells
	roleExtra    = "extra"    // a control, extraCells
	roleFrontier = "frontier" // a setting of a gate's main parameter, frontiers
)

// Scorers of the two published routings. When they were published, queue-depth (qd) meant waiting +
// running + in flight; in BLIS today it means the waiting queue alone.
const (
	scorersOld   = "prefix-affinity:3,queue-depth-effective:2,kv-utilization:2"
	scorersNew   = "prefix-affinity:4,queue-depth-effective:3"
	scorersToday = "prefix-affinity:4,queue-depth:3"
)

// Parts of the names of cells.
const (
	shortAlways  = "always" // policyAlways
	routingOld   = "pa3qd2kv2"
	routingNew   = "pa4qd3"
	routingRobin = "round-robin"
	schedFCFS    = "fcfs"
	schedClasses = "priority" // priorityFCFS
)

// cellName returns the name of a cell. gate is the policy of admission, with what else a control changes.
func cellName(gate, routing, sched string) string { return gate + " " + routing + " " + sched }

// extraName returns the name of a control, which has the new routing and priority.
func extraName(gate string) string { return cellName(gate, routingNew, schedClasses) }

// Names of the cells that verdicts compare.
var (
	mainCell    = cellName(policyPredictive, routingNew, schedClasses)
	oldCell     = cellName(shortAlways, routingOld, schedFCFS)
	matchedCell = extraName("random-matched")
	robinCell   = cellName(shortAlways, routingRobin, schedFCFS)
	noFloorCell = extraName("predictive without floor")
	gatedCell   = cellName(policyGated, routingNew, schedClasses)
	alwaysCell  = cellName(shortAlways, routingNew, schedClasses)
	sizeCell    = extraName(policySizeOnly)
	seedCell    = extraName("predictive-seed b")
)

// numbers are the numbers of the five published configurations.
var numbers = map[string]int{
	oldCell:   1,
	gatedCell: 2,
	mainCell:  3,
	cellName(policyPredictive, routingOld, schedFCFS): 4,
	robinCell: 5,
}

// publishedP99 are the published values of the P99 of TTFT on the workload seed, ms, with the cell that
// each belongs to. Two belong to one gate: 141 ms from runs of 1 s, 120 ms from runs of 0.25 s. 627 ms was measured with the
// predictive gate of that time, which admitted all requests. The published P99 is the largest of the
// instances' P99s, but for 120 ms, which is of class critical alone. rejected is the published share of
// rejected requests; -1 where none was published.
var publishedP99 = []struct {
	cell      string
	ms        float64
	statistic string
	rejected  float64
}{
	{cell: robinCell, ms: 266, statistic: worstStatistic, rejected: 0},
	{cell: oldCell, ms: 280, statistic: worstStatistic, rejected: 0},
	{cell: gatedCell, ms: 141, statistic: worstStatistic, rejected: -1},
	{cell: gatedCell, ms: 120, statistic: criticalStatistic, rejected: 0.5},
	{cell: seedCell, ms: 627, statistic: worstStatistic, rejected: 0},
}

// What published P99s are of, in experiment.json.
const (
	worstStatistic    = "worst_instance"
	criticalStatistic = "critical"
)

// gateDefault are the thresholds of slo-gated: the number of waiting requests on the fullest instance,
// computed as the class's target divided by the published estimate of 7 ms for each queued request. The
// thresholds themselves were not published. 16 and 8, which have been used elsewhere, reject bursts that
// would meet their targets at 0.6 of capacity (spec#experiment).
var gateDefault = map[string]float64{"standard": 71, "sheddable": 42}

// shadowShare is the share of rejected requests that get a shadow (gate.go), in cells whose predictions
// are reported. It is smaller in runs with more than shadowsOf such requests.
const (
	shadowShare = 0.02
	shadowsOf   = 400 // of a run's arrivals
)

// specOf returns the cluster specification of a cell with an admission policy, scorers (empty:
// round-robin routing) and a scheduler. Cells whose policy predicts TTFT get shadows, so that
// predictions for rejected requests can be compared with what would have happened.
func specOf(policy, scorers, scheduler string) Spec {
	s := defaultSpec()
	s.Admission = defaultAdmission(policy)
	s.Admission.Beta0 = plantBeta[0] // predictive-seed knows the published engines
	s.Admission.Beta1 = plantBeta[1]
	if policy == policyGated {
		s.Admission.Signal = maxQueueDepth
		s.Admission.Thresholds = gateDefault
	}
	s.Routing.Policy = Weighted
	s.Routing.Scorers = scorers
	if scorers == "" {
		s.Routing.Policy = RoundRobin
	}
	s.Scheduler = scheduler
	predicts := policy == policyClairvoyant || policy == policySeed || s.NeedsController()
	if predicts {
		s.ShadowShare = shadowShare
	}
	return s
}

// targetsOf converts latency targets from us, as goodput uses them, to ms, as cluster.yaml has
// them.
func targetsOf(classes map[string]target) map[string]targetSpec {
	out := map[string]targetSpec{}
	for name, t := range classes {
		out[name] = targetSpec{TTFTMs: t.TTFTUs / 1e3, ITLMs: t.ITLUs / 1e3, E2EMs: t.E2EUs / 1e3}
	}
	return out
}

// presetCells returns the thirteen cells of a preset: {always, slo-gated, predictive} x two routings x
// two schedulers, and round-robin.
func presetCells() []cell {
	out := []cell{{Name: robinCell, Number: numbers[robinCell], Role: roleCell,
		Spec: specOf(policyAlways, "", "fcfs")}}
	short := map[string]string{policyAlways: shortAlways, policyGated: policyGated, policyPredictive: policyPredictive}
	for _, policy := range []string{policyAlways, policyGated, policyPredictive} {
		for _, routing := range []struct{ name, scorers string }{
			{routingOld, scorersOld},
			{routingNew, scorersNew},
		} {
			for _, sched := range []struct{ name, scheduler string }{
				{schedFCFS, "fcfs"},
				{schedClasses, priorityFCFS},
			} {
				name := cellName(short[policy], routing.name, sched.name)
				out = append(out, cell{
					Name:   name,
					Number: numbers[name],
					Role:   roleCell,
					Spec:   specOf(policy, routing.scorers, sched.scheduler),
				})
			}
		}
	}
	return out
}

// extraCells are control configurations in addition to the thirteen of the preset, all with the new routing
// and priority.
func extraCells() []cell {
	one := func(name, policy string, change func(*Spec)) cell {
		s := specOf(policy, scorersNew, priorityFCFS)
		if change != nil {
			change(&s)
		}
		return cell{Name: extraName(name), Role: roleExtra, Spec: s}
	}
	matched := one("random-matched", policyAlways, nil)
	matched.Matched = true
	return []cell{
		one("predictive-seed a", policySeed, func(s *Spec) { s.Admission.Variant = "a" }),
		one("predictive-seed b", policySeed, nil),
		one(policyProbabilistic, policyProbabilistic, nil),
		matched,
		one(policySizeOnly, policySizeOnly, nil),
		one(policyClairvoyant, policyClairvoyant, nil),
		one("predictive without floor", policyPredictive, func(s *Spec) { s.Admission.Floor = new(0.0) }),
		one("today's qd, always", policyAlways, func(s *Spec) { s.Routing.Scorers = scorersToday }),
		one("today's qd, predictive", policyPredictive, func(s *Spec) { s.Routing.Scorers = scorersToday }),
	}
}

// frontiers returns the cells for the two frontiers, the curves of what slo-gated and predictive
// can reach: each cell sets the policy's main parameter (threshold, tolerated share of misses) to
// another value.
func frontiers() []cell {
	var out []cell
	for _, n := range []float64{1, 2, 4, 8, 16, 32, 64} {
		s := specOf(policyGated, scorersNew, priorityFCFS)
		s.Admission.Thresholds = map[string]float64{"standard": 2 * n, "sheddable": n}
		out = append(out, cell{
			Name:      fmt.Sprintf("slo-gated threshold %g", n),
			Role:      roleFrontier,
			Parameter: n,
			Spec:      s,
		})
	}
	for _, e := range []float64{0.01, 0.03, 0.1, 0.2, 0.35, 0.5} {
		s := specOf(policyPredictive, scorersNew, priorityFCFS)
		s.Admission.Eps = map[string]float64{"standard": e, "sheddable": e}
		s.ShadowShare = 0
		out = append(out, cell{
			Name:      fmt.Sprintf("predictive eps %g", e),
			Role:      roleFrontier,
			Parameter: e,
			Spec:      s,
		})
	}
	return out
}
