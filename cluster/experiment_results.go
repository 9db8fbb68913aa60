package cluster

// This file turns the outcomes of an experiment into its document: figures of cells
// (configurations), paired contrasts between them, and further runs at other loads, durations and
// with rivals (other gates or engines).

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// figures are the figures of a cell, in the order of experiment.json. Each is computed from one
// outcome (a cell with one seed); the document has the mean over the seeds.
var figures = []cellFigure{
	{"goodput", func(o *outcome) float64 { return o.All.Goodput() }},
	{"goodput_critical", func(o *outcome) float64 { return o.class("critical").Goodput() }},
	{"goodput_standard", func(o *outcome) float64 { return o.class("standard").Goodput() }},
	{"goodput_sheddable", func(o *outcome) float64 { return o.class("sheddable").Goodput() }},
	{"admitted_share", func(o *outcome) float64 { return o.All.AdmittedShare() }},
	{"miss_share", func(o *outcome) float64 { return o.All.MissShare() }},
	{"miss_share_critical", func(o *outcome) float64 { return o.class("critical").MissShare() }},
	{"miss_share_standard", func(o *outcome) float64 { return o.class("standard").MissShare() }},
	{"miss_share_sheddable", func(o *outcome) float64 { return o.class("sheddable").MissShare() }},
	{"miss_share_by_rule", func(o *outcome) float64 { return o.All.RuleMissShare() }},
	{"miss_share_by_rule_standard", func(o *outcome) float64 { return o.class("standard").RuleMissShare() }},
	{"miss_share_by_rule_sheddable", func(o *outcome) float64 { return o.class("sheddable").RuleMissShare() }},
	{"ttft_p99_critical_ms", func(o *outcome) float64 { return o.Critical }},
	{"ttft_p99_admitted_ms", func(o *outcome) float64 { return o.Admitted }},
	{"ttft_p99_everybody_ms", func(o *outcome) float64 { return o.Everybody }},
	{"ttft_p99_worst_instance_ms", func(o *outcome) float64 { return o.Worst }},
	{"cached_share", func(o *outcome) float64 { return o.CachedShare }},
	{"potential_share", func(o *outcome) float64 { return o.PotentialShare }},
	{"potential_share_admitted", func(o *outcome) float64 { return o.PotentialAdmitted }},
	{"phantom_share", func(o *outcome) float64 { return o.PhantomShare }},
	{"jain", func(o *outcome) float64 { return o.Jain }},
	{"output_tokens_per_s", func(o *outcome) float64 { return o.OutputPerS }},
	{"prediction_median_ape", func(o *outcome) float64 { return o.Live.MedianAPE }},
	{"prediction_bias", func(o *outcome) float64 { return o.Live.Bias }},
	{"prediction_coverage_p90", func(o *outcome) float64 { return o.Live.Coverage90 }},
	{"shadow_median_ape", func(o *outcome) float64 { return o.Shadow.MedianAPE }},
	{"shadow_coverage_p90", func(o *outcome) float64 { return o.Shadow.Coverage90 }},
	{"false_reject_share", func(o *outcome) float64 { return o.Shadow.FalseShare }},
}

// cellFigure is one figure: its key in experiment.json, and the function that computes it from one
// run.
type cellFigure struct {
	key     string
	valueOf func(*outcome) float64
}

// class returns the counts of the named class, all zero if the run had no request of it.
func (o *outcome) class(name string) *Class {
	if i := slices.IndexFunc(o.Classes, func(c Class) bool { return c.Name == name }); i >= 0 {
		return &o.Classes[i]
	}
	return &Class{}
}

// figureBy returns the function that computes the figure with the key, which must be one of
// figures.
func figureBy(key string) func(*outcome) float64 {
	return figures[slices.IndexFunc(figures, func(f cellFigure) bool { return f.key == key })].valueOf
}

// valuesOf returns the value of one figure in each run, in the order of the runs.
func valuesOf(runs []*outcome, of func(*outcome) float64) []float64 {
	var out []float64
	for _, r := range runs {
		out = append(out, of(r))
	}
	return out
}

// figureOf returns the mean of the finite values of v with its 95 % t interval, and how many values
// were not finite.
func figureOf(v []float64) figureDoc {
	var finite []float64
	for _, x := range v {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			finite = append(finite, x)
		}
	}
	f := figureDoc{N: len(v), Infinite: len(v) - len(finite)}
	if len(finite) == 0 {
		return f
	}
	mean, lo, hi := stat.MeanInterval(finite)
	f.Mean = result.OrNull(mean)
	f.Lo = result.OrNull(lo)
	f.Hi = result.OrNull(hi)
	return f
}

// cellContrast returns the contrast a - b of a figure from the runs ra and rb of two cells. Runs at
// the same place have the same seed.
func cellContrast(a, b string, ra, rb []*outcome, key string) contrastDoc {
	return pairedContrast(a, b, key, valuesOf(ra, figureBy(key)), valuesOf(rb, figureBy(key)))
}

// pairedContrast returns the mean paired difference va - vb with its 95 % interval and p value. va
// and vb are by seed; seeds without a finite difference are not used. Same is the result of an
// equivalence test with a margin of 5 % of vb's mean.
func pairedContrast(a, b, key string, va, vb []float64) contrastDoc {
	var x, y []float64
	for i := range va {
		if d := va[i] - vb[i]; !math.IsNaN(d) && !math.IsInf(d, 0) {
			x = append(x, va[i])
			y = append(y, vb[i])
		}
	}
	out := contrastDoc{A: a, B: b, Figure: key, N: len(x)}
	if len(x) == 0 {
		return out
	}
	d := stat.Paired(x, y)
	out.Effect = result.OrNull(d.Mean)
	out.Lo = result.OrNull(d.Lo)
	out.Hi = result.OrNull(d.Hi)
	out.P = result.OrNull(d.P)
	if d.N > 1 { // two one-sided tests at 5 %: the 90 % interval has to lie inside the margin
		half := (d.Hi - d.Mean) * stat.StudentT(0.95, float64(d.N-1)) / stat.StudentT(0.975, float64(d.N-1))
		limit := 0.05 * math.Abs(stat.Mean(y))
		out.Same = new(d.Mean-half > -limit && d.Mean+half < limit)
	}
	return out
}

// document makes experiment.json from the runs of the cells, and does the further runs that it
// reports: other loads, other durations and rivals.
func (l *lab) document() (*Document, error) {
	d := l.documentOfRuns()
	if err := l.loads(d); err != nil {
		return nil, err
	}
	if err := l.transient(d); err != nil {
		return nil, err
	}
	l.addVerdicts(d)
	return d, l.rivals(d)
}

// documentOfRuns returns the part of experiment.json that follows from the runs already made, those of the
// cells; document adds what needs further runs.
func (l *lab) documentOfRuns() *Document {
	old := l.runsOf(oldCell) // published configuration 1
	d := &Document{
		Preset:      l.preset.Name,
		Label:       "transient", // changed below if the backlog does not grow
		Controller:  l.gate.Kind,
		Plant:       l.plant.Name,
		Workload:    l.load.Words(),
		Instances:   l.Instances,
		RateRPS:     l.rate,
		CapacityRPS: l.capacity,
		Rho:         l.rate / l.capacity,
		HorizonS:    l.preset.Seconds,
		WindowS:     [2]float64{l.preset.WarmupS, l.preset.Seconds},
		LifetimeS:   stat.Mean(valuesOf(l.runsOf(mainCell), func(o *outcome) float64 { return o.LifetimeS })),
		Seeds:       l.seeds,
		MatchedCV:   result.OrNull(stat.Mean(valuesOf(old, func(o *outcome) float64 { return o.PotentialCV }))),
		Published:   []publishedDoc{},
		Newcomer:    []curveDoc{},
		Scatter:     []pointDoc{},
		Transient:   []transientDoc{},
		Controllers: []controllerDoc{},
		Warnings:    append([]trace.Finding{}, l.warnings...),
	}
	for s := range l.seeds { // four of a seed's 16 digits; of the first cell, as all have the same arrivals
		d.ArrivalDigest += l.runs[0][s].Digest[:4]
	}
	for i := range l.cells {
		d.Cells = append(d.Cells, l.cellDoc(i))
	}
	if l.isStationary(l.runsOf(mainCell)) && !l.preset.Transient {
		d.Label = "stationary"
	}
	if l.preset.Name == publishedPreset {
		d.Published = l.compareWithPublished()
	}
	for _, p := range l.runsOf(mainCell)[0].Points {
		d.Scatter = append(d.Scatter, pointDoc(p))
	}
	if l.load.Newcomer {
		for _, name := range []string{mainCell, noFloorCell, alwaysCell} {
			d.Newcomer = append(d.Newcomer, curveOf(name, l.runsOf(name)))
		}
	}
	l.reliability(d)
	l.contrasts(d)
	return d
}

// compareWithPublished returns each published P99 with the same statistic of the runs of its cell.
func (l *lab) compareWithPublished() []publishedDoc {
	var out []publishedDoc
	for _, p := range publishedP99 {
		mean := func(key string) *float64 { return figureOf(valuesOf(l.runsOf(p.cell), figureBy(key))).Mean }
		one := publishedDoc{
			Cell:            p.cell,
			PublishedNumber: numbers[p.cell],
			PublishedMs:     p.ms,
			Statistic:       p.statistic,
			CriticalMs:      mean("ttft_p99_critical_ms"),
			PooledMs:        mean("ttft_p99_admitted_ms"),
			WorstMs:         mean("ttft_p99_worst_instance_ms"),
		}
		if p.rejected >= 0 {
			one.Rejected = new(p.rejected)
		}
		if admitted := mean("admitted_share"); admitted != nil {
			one.OurRejected = new(1 - *admitted)
		}
		out = append(out, one)
	}
	return out
}

// reliability fills d.Reliability, by tenths of the estimated probability, from the main cell's
// runs with all seeds, and d.Hindsight with the frontier setting of predictive that had the best
// mean goodput.
func (l *lab) reliability(d *Document) {
	d.Reliability = []reliabilityDoc{}
	for b := range 10 {
		var sum reliability
		for _, r := range l.runsOf(mainCell) {
			x := r.Reliability[b]
			sum.N += x.N
			sum.Expected += x.Expected
			sum.Met += x.Met
		}
		if sum.N > 0 {
			d.Reliability = append(d.Reliability, reliabilityDoc{
				From:     float64(b) / 10,
				To:       float64(b+1) / 10,
				Requests: sum.N,
				Expected: sum.Expected / sum.N,
				Met:      sum.Met / sum.N,
			})
		}
	}
	for i := range l.cells {
		c := &l.cells[i]
		if c.Role != roleFrontier || c.Spec.Admission.Policy != policyPredictive {
			continue
		}
		goodput := stat.Mean(valuesOf(l.runs[i], figureBy("goodput")))
		if d.Hindsight == nil || goodput > d.Hindsight.Goodput {
			d.Hindsight = &hindsightDoc{c.Name, goodput}
		}
	}
}

// cellDoc returns the entry of cell i: its configuration and its figures over the seeds.
func (l *lab) cellDoc(i int) cellDoc {
	c := &l.cells[i]
	out := cellDoc{
		Name:            c.Name,
		PublishedNumber: c.Number,
		Role:            c.Role,
		Admission:       c.Spec.Admission.Policy,
		Routing:         c.Spec.Routing.Scorers,
		Scheduler:       c.Spec.Scheduler,
		Stationary:      l.isStationary(l.runs[i]),
	}
	if c.Role == roleFrontier {
		out.Parameter = &c.Parameter
	}
	if c.Matched {
		out.Admission = "random-matched"
	}
	if out.Routing == "" {
		out.Routing = c.Spec.Routing.Policy
	}
	out.Figures = cellFigures(l.runs[i])
	return out
}

// cellFigures returns every figure of a cell by its key, with mean and interval over the runs.
func cellFigures(runs []*outcome) map[string]figureDoc {
	out := make(map[string]figureDoc, len(figures))
	for _, f := range figures {
		out[f.key] = figureOf(valuesOf(runs, f.valueOf))
	}
	return out
}

// isStationary reports whether the backlog of the runs grows by less than 1 % of the arrival rate,
// on average over seeds.
func (l *lab) isStationary(runs []*outcome) bool {
	return stat.Mean(valuesOf(runs, func(o *outcome) float64 { return o.Slope })) < 0.01*l.rate
}

// curveOf returns the newcomer's admission ratio by second, averaged over the seeds. ReachedS is
// known only if the ratio reached 0.8 with every seed.
func curveOf(name string, runs []*outcome) curveDoc {
	out := curveDoc{Cell: name}
	reached := make([]float64, 0, len(runs))
	for _, r := range runs {
		if s := r.Newcomer.SecondS; s.OK {
			reached = append(reached, s.V)
		}
		for len(out.Ratio) < len(r.Newcomer.Ratio) {
			out.Ratio = append(out.Ratio, nil)
		}
	}
	for k := range out.Ratio {
		var v []float64
		for _, r := range runs {
			if k < len(r.Newcomer.Ratio) {
				v = append(v, r.Newcomer.Ratio[k])
			}
		}
		out.Ratio[k] = figureOf(v).Mean
	}
	if len(reached) == len(runs) {
		out.ReachedS = result.OrNull(stat.Mean(reached))
	}
	return out
}

// contrasts fills d.Contrasts: pairs of cells that differ in one component, and the main cell
// against the oldest configuration, which differs in all, and against each control cell.
func (l *lab) contrasts(d *Document) {
	pairs := [][2]string{
		{mainCell, alwaysCell},
		{mainCell, gatedCell},
		{gatedCell, alwaysCell},
		{mainCell, cellName(policyPredictive, routingOld, schedClasses)},
		{mainCell, cellName(policyPredictive, routingNew, schedFCFS)},
		{alwaysCell, cellName(shortAlways, routingOld, schedClasses)},
		{alwaysCell, cellName(shortAlways, routingNew, schedFCFS)},
		{cellName(shortAlways, routingNew, schedFCFS), oldCell},
		{oldCell, robinCell},
		{mainCell, oldCell},
	}
	for i := range l.cells {
		if c := &l.cells[i]; c.Role == roleExtra {
			pairs = append(pairs, [2]string{mainCell, c.Name})
		}
	}
	for _, p := range pairs {
		for _, key := range []string{"goodput", "goodput_critical", "admitted_share", "ttft_p99_critical_ms",
			"output_tokens_per_s"} {
			d.Contrasts = append(d.Contrasts, cellContrast(p[0], p[1], l.runsOf(p[0]), l.runsOf(p[1]), key))
		}
	}
}

// rerunCells simulates the named cells with rival r (gate and engines) at a rate and in a window,
// with the lab's seeds. The result is indexed by place in names, then by seed. rates are the reject
// rates that random-matched cells copy, by seed.
func (l *lab) rerunCells(
	names []string,
	r *rival,
	rate float64,
	w window,
	rates []map[string][]float64,
	progress func(done int),
) ([][]*outcome, error) {
	out := make([][]*outcome, len(names))
	for i := range out {
		out[i] = make([]*outcome, len(l.seeds))
	}
	err := par.Try(l.ctx, l.Workers, len(names)*len(l.seeds), func(k int) (err error) {
		i, s := k/len(l.seeds), k%len(l.seeds)
		c := slices.IndexFunc(l.cells, func(c cell) bool { return c.Name == names[i] })
		reqs := l.load.Draw(l.seeds[s], rate, float64(w.ToUs)/1e6)
		var own map[string][]float64
		if l.cells[c].Matched {
			own = rates[s]
		}
		out[i][s], err = l.runOnce(&l.cells[c], r, l.seeds[s], reqs, w, own)
		return err
	}, progress)
	return out, err
}

// loads fills d.Loads: the gates at quietRho, where no request needs to be rejected, and at the
// preset's further loads, with shortened runs.
func (l *lab) loads(d *Document) error {
	names := []string{alwaysCell, gatedCell, mainCell, noFloorCell, sizeCell}
	for i := range l.cells {
		c := &l.cells[i]
		if c.Role != roleExtra {
			continue
		}
		switch c.Spec.Admission.Policy {
		case policySeed, policyProbabilistic:
			names = append(names, c.Name)
		}
	}
	p := l.preset
	p.Seconds = math.Min(p.Seconds, 10)
	p.WarmupS = math.Min(p.WarmupS, 2)
	for _, rho := range append([]float64{quietRho}, p.Loads...) {
		at := loadDoc{
			Rho:     rho,
			RateRPS: math.Round(rho * l.capacity),
			WindowS: [2]float64{p.WarmupS, p.Seconds},
		}
		runs, err := l.rerunCells(names, &rival{Plant: l.plant, Gate: l.gate}, at.RateRPS, p.window(), nil, nil)
		if err != nil {
			return err
		}
		for i, name := range names {
			at.Cells = append(at.Cells, loadCellDoc{Name: name, Figures: cellFigures(runs[i])})
			for _, key := range []string{"goodput", "admitted_share", "output_tokens_per_s"} {
				if i > 0 {
					at.Contrasts = append(at.Contrasts, cellContrast(name, names[0], runs[i], runs[0], key))
				}
			}
		}
		d.Loads = append(d.Loads, at)
	}
	return nil
}

// transient fills d.Transient with the P99 of TTFT of configuration 1 as published (oldCell) after
// 0.25, 1 and 4 seconds of arrivals. Only presets with a fixed rate have it.
func (l *lab) transient(d *Document) error {
	if l.preset.Rate == 0 {
		return nil
	}
	for _, seconds := range []float64{0.25, 1, 4} {
		w := window{ToUs: sim.ToUs(seconds * 1e6)}
		runs, err := l.rerunCells([]string{oldCell}, &rival{Plant: l.plant, Gate: l.gate}, l.rate, w, nil, nil)
		if err != nil {
			return err
		}
		f := figureOf(valuesOf(runs[0], figureBy("ttft_p99_everybody_ms")))
		d.Transient = append(d.Transient, transientDoc{
			ArrivalsS: seconds,
			P99Ms:     f.Mean,
			Lo:        f.Lo,
			Hi:        f.Hi,
		})
	}
	return nil
}

// sides are the runs, by seed, that the statements H14-2 to H14-4 compare, all with one gate and on
// one plant: those of mainCell, alwaysCell, gatedCell and matchedCell.
type sides struct{ main, always, gated, matched []*outcome }

// sides returns the runs of the main comparison, as the cells were run first.
func (l *lab) sides() sides {
	return sides{
		main:    l.runsOf(mainCell),
		always:  l.runsOf(alwaysCell),
		gated:   l.runsOf(gatedCell),
		matched: l.runsOf(matchedCell),
	}
}

// rivals fills d.Controllers: the main comparison and the verdicts on its statements with the lab's
// own gate, and again with each rival. A rival with other engines is run at the same share of its
// own capacity.
func (l *lab) rivals(d *Document) error {
	own := l.sides()
	d.Controllers = append(d.Controllers, l.controllerDoc(&rival{Gate: l.gate, Label: "headline"}, own, d))
	for i := range l.others {
		r := &l.others[i]
		s := own // always-admit and slo-gated predict nothing: on the same engines their runs stay
		at := *l // the lab with the rival's load
		if r.Plant.Other != l.plant.Other {
			if err := at.toPlant(r); err != nil {
				return err
			}
			runs, err := at.rerunCells([]string{alwaysCell, gatedCell}, r, at.rate, at.window, nil, nil)
			if err != nil {
				return err
			}
			s.always, s.gated = runs[0], runs[1]
		}
		runs, err := at.rerunCells([]string{mainCell}, r, at.rate, at.window, nil, nil)
		if err != nil {
			return err
		}
		s.main = runs[0]
		runs, err = at.rerunCells([]string{matchedCell}, r, at.rate, at.window, ratesOf(s.main), nil)
		if err != nil {
			return err
		}
		s.matched = runs[0]
		d.Controllers = append(d.Controllers, at.controllerDoc(r, s, d))
	}
	carryVerdicts(d)
	return nil
}

// toPlant changes the lab's rate, capacity and window to those for the rival's engines, at the same
// share of capacity. The window is at least twice the time a request stays in a full cluster,
// because an overload shows only after the engines have reached max_num_seqs.
func (l *lab) toPlant(r *rival) error {
	capacity, err := l.capacityOf(&r.Plant, &r.Gate)
	if err != nil {
		return err
	}
	l.rate = math.Round(l.rate / l.capacity * capacity)
	l.capacity = capacity
	seats := float64(l.Instances) * float64(r.Plant.Deployment.Engine.MaxNumSeqs)
	l.preset.Seconds = math.Max(l.preset.Seconds, math.Round(2*seats/capacity))
	l.window = l.preset.window()
	return nil
}

// controllerDoc returns the entry of one rival: figures and verdicts of the main comparison with
// its gate. s are its runs.
func (l *lab) controllerDoc(r *rival, s sides, d *Document) controllerDoc {
	mean := func(key string) *float64 { return figureOf(valuesOf(s.main, figureBy(key))).Mean }
	out := controllerDoc{
		Kind:      r.Gate.Kind,
		Label:     r.Label,
		RateRPS:   l.rate,
		Rho:       l.rate / l.capacity,
		HorizonS:  l.preset.Seconds,
		Seats:     figureOf(valuesOf(s.always, func(o *outcome) float64 { return o.Seats })).Mean,
		Goodput:   cellContrast(mainCell, alwaysCell, s.main, s.always, "goodput"),
		Admitted:  mean("admitted_share"),
		MedianAPE: mean("prediction_median_ape"),
		Bias:      mean("prediction_bias"),
		Coverage:  mean("prediction_coverage_p90"),
		ShadowAPE: mean("shadow_median_ape"),
		ShadowCov: mean("shadow_coverage_p90"),
		Verdicts:  map[string]string{},
	}
	for _, v := range l.verdicts(d, l.beyondFirst(d, s)) {
		out.Verdicts[v.ID] = v.Verdict
	}
	return out
}
