package experiment

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/admission"
	"github.com/blis-train/blis-train/sim/goodput"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

func matchedTo(rates map[string][]float64, seed int64) admission.Policy {
	return &admission.RandomMatched{Rates: rates, Seed: seed}
}

// figures of a cell, by key.
var figures = []struct {
	key string
	of  func(*outcome) float64
}{
	{"goodput", func(o *outcome) float64 { return o.All.Goodput() }},
	{"goodput_critical", func(o *outcome) float64 { return o.class("critical").Goodput() }},
	{"goodput_standard", func(o *outcome) float64 { return o.class("standard").Goodput() }},
	{"goodput_sheddable", func(o *outcome) float64 { return o.class("sheddable").Goodput() }},
	{"admitted_share", func(o *outcome) float64 { return o.All.AdmittedShare() }},
	{"miss_share", func(o *outcome) float64 { return o.All.MissShare() }},
	{"miss_share_critical", func(o *outcome) float64 { return o.class("critical").MissShare() }},
	{"miss_share_standard", func(o *outcome) float64 { return o.class("standard").MissShare() }},
	{"miss_share_sheddable", func(o *outcome) float64 { return o.class("sheddable").MissShare() }},
	{"ttft_p99_critical_ms", func(o *outcome) float64 { return o.Critical.P99 }},
	{"ttft_p99_admitted_ms", func(o *outcome) float64 { return o.Admitted.P99 }},
	{"ttft_p99_everybody_ms", func(o *outcome) float64 { return o.Everybody.P99 }},
	{"ttft_p99_worst_instance_ms", func(o *outcome) float64 { return o.worst }},
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

func (o *outcome) class(name string) *goodput.Class {
	if i := slices.IndexFunc(o.Classes, func(c goodput.Class) bool { return c.Name == name }); i >= 0 {
		return &o.Classes[i]
	}
	return &goodput.Class{}
}

func figureBy(key string) func(*outcome) float64 {
	return figures[slices.IndexFunc(figures, func(f struct {
		key string
		of  func(*outcome) float64
	}) bool {
		return f.key == key
	})].of
}

func values(runs []*outcome, of func(*outcome) float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = of(r)
	}
	return out
}

func figure(v []float64) result.ExperimentFigure {
	var finite []float64
	for _, x := range v {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			finite = append(finite, x)
		}
	}
	f := result.ExperimentFigure{N: len(v), Infinite: len(v) - len(finite)}
	if len(finite) == 0 {
		return f
	}
	d := stat.Paired(finite, make([]float64, len(finite)))
	if f.Mean = result.OrNull(d.Mean); len(finite) == 1 {
		return f
	}
	f.Lo, f.Hi = result.OrNull(d.Lo), result.OrNull(d.Hi)
	return f
}

// contrast is the paired difference of two cells, over seeds where both are finite.
func contrast(a, b string, ra, rb []*outcome, key string) result.ExperimentContrast {
	return pairedContrast(a, b, key, values(ra, figureBy(key)), values(rb, figureBy(key)))
}

func pairedContrast(a, b, key string, va, vb []float64) result.ExperimentContrast {
	var x, y []float64
	for i := range va {
		if d := va[i] - vb[i]; !math.IsNaN(d) && !math.IsInf(d, 0) {
			x, y = append(x, va[i]), append(y, vb[i])
		}
	}
	out := result.ExperimentContrast{A: a, B: b, Figure: key, N: len(x)}
	if len(x) == 0 {
		return out
	}
	d := stat.Paired(x, y)
	out.Effect, out.Lo, out.Hi, out.P = result.OrNull(d.Mean), result.OrNull(d.Lo), result.OrNull(d.Hi), result.OrNull(d.P)
	if d.N > 1 { // two one-sided tests at 5 %
		half := (d.Hi - d.Mean) * stat.StudentT(0.95, d.N-1) / stat.StudentT(0.975, d.N-1)
		limit := 0.05 * math.Abs(stat.Mean(y))
		same := d.Mean-half > -limit && d.Mean+half < limit
		out.Same = &same
	}
	return out
}

func (l *lab) document(capacity float64) (*result.ExperimentDoc, error) {
	second := l.of(secondCell)
	d := &result.ExperimentDoc{Preset: l.preset.Name, Label: "transient", Controller: l.Gate.Kind, Plant: l.Plant.Name,
		Workload:  l.load.Words(),
		Instances: l.Instances, RateRPS: l.rate, CapacityRPS: capacity, Rho: l.rate / capacity, HorizonS: l.preset.Seconds,
		WindowS:   [2]float64{l.preset.WarmupS, l.preset.Seconds},
		LifetimeS: stat.Mean(values(l.of(mainCell), func(o *outcome) float64 { return o.lifetimeS })),
		Seeds:     l.seeds, MatchedCV: result.OrNull(stat.Mean(values(second, func(o *outcome) float64 { return o.PotentialCV }))),
		Newcomer: []result.ExperimentCurve{}, Scatter: []result.ExperimentPoint{}, Transient: []result.ExperimentTransient{},
		Controllers: []result.ExperimentController{}, Warnings: []trace.Finding{}}
	for s := range l.seeds {
		d.ArrivalDigest += l.runs[0][s].digest[:4]
	}
	for i := range l.cells {
		d.Cells = append(d.Cells, l.cellDoc(i))
	}
	if l.isStationary(l.of(mainCell)) && !l.preset.Transient {
		d.Label = "stationary"
	}
	for i, ms := range published {
		k := slices.IndexFunc(l.cells, func(c Cell) bool { return c.Number == i+1 })
		d.Published = append(d.Published, result.ExperimentPublished{Configuration: i + 1, PublishedMs: ms,
			PooledMs: figure(values(l.runs[k], figureBy("ttft_p99_admitted_ms"))).Mean, WorstMs: figure(values(l.runs[k],
				figureBy("ttft_p99_worst_instance_ms"))).Mean})
	}
	for _, p := range l.of(mainCell)[0].points {
		d.Scatter = append(d.Scatter, result.ExperimentPoint{PredictedMs: p.PredictedMs, TookMs: p.TookMs, Shadow: p.Shadow})
	}
	if l.load.Newcomer {
		for _, name := range []string{mainCell, noFloorCell, alwaysCell} {
			d.Newcomer = append(d.Newcomer, curveOf(name, l.of(name)))
		}
	}
	l.contrasts(d)
	if err := l.quiet(d, capacity); err != nil {
		return nil, err
	}
	if err := l.transient(d); err != nil {
		return nil, err
	}
	if err := l.rivals(d); err != nil {
		return nil, err
	}
	l.judge(d)
	return d, nil
}

func (l *lab) cellDoc(i int) result.ExperimentCell {
	c := &l.cells[i]
	out := result.ExperimentCell{Name: c.Name, Number: c.Number, Role: c.Role, Admission: c.Spec.Admission.Policy,
		Routing:   c.Spec.Routing.Scorers,
		Scheduler: c.Spec.Scheduler, Stationary: l.isStationary(l.runs[i]), Figures: map[string]result.ExperimentFigure{}}
	if c.Role == roleFrontier {
		out.Parameter = &c.Parameter
	}
	if c.Matched {
		out.Admission = "random-matched"
	}
	if out.Routing == "" {
		out.Routing = c.Spec.Routing.Policy
	}
	for _, f := range figures {
		out.Figures[f.key] = figure(values(l.runs[i], f.of))
	}
	return out
}

// isStationary: the line grows by less than 1 % of the arrivals.
func (l *lab) isStationary(runs []*outcome) bool {
	return stat.Mean(values(runs, func(o *outcome) float64 { return o.slope })) < 0.01*l.rate
}

func curveOf(name string, runs []*outcome) result.ExperimentCurve {
	out := result.ExperimentCurve{Cell: name}
	reached := make([]float64, 0, len(runs))
	for _, r := range runs {
		if s := r.newcomer.SecondS; s.OK {
			reached = append(reached, s.V)
		}
		for len(out.Ratio) < len(r.newcomer.Ratio) {
			out.Ratio = append(out.Ratio, nil)
		}
	}
	for k := range out.Ratio {
		var v []float64
		for _, r := range runs {
			if k < len(r.newcomer.Ratio) {
				v = append(v, r.newcomer.Ratio[k])
			}
		}
		out.Ratio[k] = figure(v).Mean
	}
	if len(reached) == len(runs) {
		out.ReachedS = result.OrNull(stat.Mean(reached))
	}
	return out
}

// contrasts of components, one at a time, and of the controls.
func (l *lab) contrasts(d *result.ExperimentDoc) {
	pairs := [][2]string{{mainCell, alwaysCell}, {mainCell, gatedCell}, {gatedCell, alwaysCell}, {mainCell, "predictive pa3qd2kv2 priority"},
		{mainCell, "predictive pa4qd3 fcfs"}, {alwaysCell, "always pa3qd2kv2 priority"}, {alwaysCell, "always pa4qd3 fcfs"},
		{"always pa4qd3 fcfs", secondCell}, {secondCell, robinCell}, {mainCell, secondCell}}
	for i := range l.cells {
		if c := &l.cells[i]; c.Role == roleExtra {
			pairs = append(pairs, [2]string{mainCell, c.Name})
		}
	}
	for _, p := range pairs {
		for _, key := range []string{"goodput", "goodput_critical", "admitted_share", "ttft_p99_critical_ms", "output_tokens_per_s"} {
			d.Contrasts = append(d.Contrasts, contrast(p[0], p[1], l.of(p[0]), l.of(p[1]), key))
		}
	}
}

// extra runs cells once more on other requests, by seed.
func (l *lab) extra(names []string, rate, seconds float64) ([][]*outcome, error) {
	out := make([][]*outcome, len(names))
	for i := range out {
		out[i] = make([]*outcome, len(l.seeds))
	}
	err := par.Try(l.ctx, l.Workers, len(names)*len(l.seeds), func(k int) (err error) {
		i, s := k/len(l.seeds), k%len(l.seeds)
		c := slices.IndexFunc(l.cells, func(c Cell) bool { return c.Name == names[i] })
		reqs := l.load.Draw(l.seeds[s], rate, seconds)
		out[i][s], err = l.one(&l.cells[c], &l.Plant, &l.Gate, l.seeds[s], reqs, goodput.Window{ToUs: sim.ToUs(seconds * 1e6)}, nil)
		return err
	}, nil)
	return out, err
}

// quiet repeats the contrasts at rho 0.6, where nobody needs to be rejected.
func (l *lab) quiet(d *result.ExperimentDoc, capacity float64) error {
	names := []string{alwaysCell, gatedCell, mainCell, noFloorCell}
	seconds := math.Min(l.preset.Seconds, 10)
	runs, err := l.extra(names, 0.6*capacity, seconds)
	if err != nil {
		return err
	}
	for i := 1; i < len(names); i++ {
		for _, key := range []string{"goodput", "admitted_share", "output_tokens_per_s"} {
			d.Quiet = append(d.Quiet, contrast(names[i], names[0], runs[i], runs[0], key))
		}
	}
	return nil
}

// transient is configuration 2 after some seconds of arrivals.
func (l *lab) transient(d *result.ExperimentDoc) error {
	if l.preset.Rate == 0 {
		return nil
	}
	for _, seconds := range []float64{0.25, 1, 4} {
		runs, err := l.extra([]string{secondCell}, l.rate, seconds)
		if err != nil {
			return err
		}
		f := figure(values(runs[0], figureBy("ttft_p99_everybody_ms")))
		d.Transient = append(d.Transient, result.ExperimentTransient{ArrivalsS: seconds, P99Ms: f.Mean, Lo: f.Lo, Hi: f.Hi})
	}
	return nil
}

// rivals repeat the headline with other coefficients in the gate.
func (l *lab) rivals(d *result.ExperimentDoc) error {
	main := l.of(mainCell)
	d.Controllers = append(d.Controllers, controllerDoc(l.Gate.Kind, "headline", main, l.of(alwaysCell)))
	for i := range l.Others {
		r := &l.Others[i]
		var runs [2][]*outcome
		for k, name := range []string{mainCell, alwaysCell} {
			c := slices.IndexFunc(l.cells, func(c Cell) bool { return c.Name == name })
			runs[k] = make([]*outcome, len(l.seeds))
			err := par.Try(l.ctx, l.Workers, len(l.seeds), func(s int) (err error) {
				runs[k][s], err = l.one(&l.cells[c], &r.Plant, &r.Gate, l.seeds[s], l.reqs[s], l.window, nil)
				return err
			}, nil)
			if err != nil {
				return err
			}
		}
		d.Controllers = append(d.Controllers, controllerDoc(r.Gate.Kind, r.Label, runs[0], runs[1]))
	}
	return nil
}

func controllerDoc(kind, label string, main, always []*outcome) result.ExperimentController {
	mean := func(key string) *float64 { return figure(values(main, figureBy(key))).Mean }
	return result.ExperimentController{Kind: kind, Label: label, Goodput: contrast(mainCell, alwaysCell, main, always, "goodput"),
		MedianAPE: mean("prediction_median_ape"), Bias: mean("prediction_bias"), Coverage: mean("prediction_coverage_p90"),
		ShadowAPE: mean("shadow_median_ape"), ShadowCov: mean("shadow_coverage_p90")}
}
