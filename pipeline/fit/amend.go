package fit

// amend.go tries the amendments of the specification on the rows of a fit: each alone, judged on
// the hold-out and on configurations left out, beside the fit without it.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// WinShare is the least share of the hold-out error that an amendment must take away.
const WinShare = 0.02

// entry is when an amendment is worth a try.
type entry struct {
	name      string
	trigger   string
	threshold float64
	value     func(*base) float64 // NaN: nothing to read
}

// entries is every amendment in the order of features.Amendments.
var entries = []entry{
	{"log-queue", "largest slot 6 of the waits over its mean", 10, (*base).queueTail},
	{"prefill-diversity", "MAPE of steps with prefill of a mixture of experts", 0.15, (*base).expertPrefill},
	{features.Components, "effective degrees of freedom per configuration", 0.1, (*base).freedom},
	{"queue-pole", "MAPE of the waits where the gate is above 0.9", 0.2, (*base).fullError},
	{features.SeparateAverages, "distance of the gammas that steps and waits choose", 0.05, (*base).gammaDistance},
	{"split-gates", "least share of seats or memory full where the gate is above 0.9", 0.05, (*base).bothFull},
	{features.TimeAverage, "share of the preemption term in step times", 0.01, (*base).preemptionShare},
}

// TryEach fits the sources once as asked for and once with each amendment that the version does not hold
// yet, without intervals and other models.
func TryEach(ctx context.Context, sources []Source, o Options) ([]result.Amendment, error) {
	o, err := lean(o)
	if err != nil {
		return nil, err
	}
	b, err := newBase(ctx, sources, o)
	if err != nil {
		return nil, err
	}
	var out []result.Amendment
	for i, a := range features.Amendments() {
		if o.Spec.Has(a.Name) {
			continue
		}
		e := &entries[i]
		r := result.Amendment{Name: a.Name, Doc: a.Doc, Model: a.Model, Trigger: e.trigger, Threshold: e.threshold}
		r.Value = result.OrNull(e.value(b))
		r.Triggered = r.Value != nil && *r.Value > e.threshold
		with := o
		with.Spec, with.Rows = o.Spec.With(a.Name), nil
		doc, err := Fit(ctx, sources, with, nil)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		setBeside(&r, b.doc, doc, err)
		out = append(out, r)
	}
	return out, nil
}

// setBeside fills the errors of two fits; failed is why there is no second.
func setBeside(r *result.Amendment, without, with *result.Fit, failed error) {
	if failed != nil {
		r.Note = failed.Error()
		return
	}
	r.Without, r.WithoutLeftOut = missesOf(without, r.Model)
	r.With, r.WithLeftOut = missesOf(with, r.Model)
	if r.Without == nil || r.With == nil {
		r.Note = "no hold-out rows of the " + r.Model
		return
	}
	worseElsewhere := r.WithoutLeftOut != nil && r.WithLeftOut != nil && *r.WithLeftOut > *r.WithoutLeftOut
	r.Wins = *r.With < *r.Without*(1-WinShare) && !worseElsewhere
}

// missesOf are a model's errors on the hold-out and on configurations left out.
func missesOf(doc *result.Fit, model string) (holdOut, leftOut *float64) {
	m := &doc.Beta
	if model == "steps" {
		if m.Holdout != nil {
			holdOut = m.Holdout.MAPE
		}
		return holdOut, m.LocoMedian
	}
	if m = doc.AlphaNamed(coeff.Admission); m == nil || m.TargetErrors == nil {
		return nil, nil
	}
	return m.TargetErrors.MAPEWindow10s, m.LocoMedian
}

// lean are the options without what no trial reads.
func lean(o Options) (Options, error) {
	o, err := o.Resolve()
	if err != nil {
		return o, err
	}
	if o.Spec.Base() == features.V10 || o.Recipe == Frozen {
		return o, trace.Errorf(rows.BadOption, "--try-amendments: got spec %s and recipe %s, want 1.1 or 1.2 and relative", o.Spec,
			o.Recipe)
	}
	o.Bootstraps, o.Models, o.AlphaTargets = MinBootstraps, []string{}, []string{coeff.Admission}
	return o, nil
}

// base is the fit without a change, and the rows of its waits: what the triggers read.
type base struct {
	doc   *result.Fit
	waits []wait
}

// wait is one request's row.
type wait struct {
	seats, memory, gate, queue float64 // slots 1, 2, 11 and 6
	us, predUs                 float64
}

func newBase(ctx context.Context, sources []Source, o Options) (*base, error) {
	b := &base{}
	var tables []*rows.Table
	o.Rows = func(d *Dump) error {
		for _, t := range d.Tables {
			if t.Target == coeff.Admission {
				tables = append(tables, t)
			}
		}
		return nil
	}
	var err error
	if b.doc, err = Fit(ctx, sources, o, nil); err != nil {
		return nil, err
	}
	if m := b.doc.AlphaNamed(coeff.Admission); m != nil {
		for _, t := range tables {
			b.add(t, m, o.Spec)
		}
	}
	return b, nil
}

func (b *base) add(t *rows.Table, m *result.Model, v features.Version) {
	slot := func(name string) int {
		return slices.Index(features.Names(features.AlphaFeatures(v)), name)
	}
	seats, memory, gate := slot("batch_saturation"), slot("kv_pressure"), slot("queued_regime_bias")
	queue := slot("queue_memory_interaction")
	for i := range t.Kept {
		x, pred := t.Row(i), 0.0
		for j, c := range m.Coefficients {
			pred += float64(c.Value * x[j])
		}
		b.waits = append(b.waits, wait{x[seats], x[memory], x[gate], x[queue], t.Y[i], math.Max(0, pred)})
	}
}

// fullGate is the gate from which a server counts as full; fullLeast how many rows must be there.
const (
	fullGate  = 0.9
	fullLeast = 20
)

func (b *base) full() []wait {
	return slices.DeleteFunc(slices.Clone(b.waits), func(w wait) bool { return w.gate <= fullGate })
}

// fullError is the MAPE of the waits on a full server.
func (b *base) fullError() float64 {
	sum, n := 0.0, 0.0
	for _, w := range b.full() {
		if w.us >= 1 {
			sum, n = sum+math.Abs(w.predUs-w.us)/w.us, n+1
		}
	}
	if n < fullLeast {
		return math.NaN()
	}
	return sum / n
}

// bothFull is how often the rarer of the two reasons for a full server holds.
func (b *base) bothFull() float64 {
	full, seats, memory := b.full(), 0, 0
	for _, w := range full {
		if w.seats > fullGate {
			seats++
		}
		if w.memory > fullGate {
			memory++
		}
	}
	if len(full) < fullLeast {
		return math.NaN()
	}
	return float64(min(seats, memory)) / float64(len(full))
}

// queueTail is how far the longest queue is from the mean one.
func (b *base) queueTail() float64 {
	sum, most, n := 0.0, 0.0, 0
	for _, w := range b.waits {
		if w.queue > 0 {
			sum, most, n = sum+w.queue, math.Max(most, w.queue), n+1
		}
	}
	if n < fullLeast {
		return math.NaN()
	}
	return most * float64(n) / sum
}

// gammaDistance is how far apart the two models would choose their preemption averages.
func (b *base) gammaDistance() float64 {
	m := b.doc.AlphaNamed(coeff.Admission)
	if m == nil || b.preemptionShare() == 0 {
		return math.NaN() // without preemptions every gamma is as good
	}
	return math.Abs(bestGamma(&b.doc.Beta) - bestGamma(m))
}

// bestGamma is the gamma of the smallest score of a grid.
func bestGamma(m *result.Model) float64 {
	best, gamma := math.Inf(1), math.NaN()
	for _, p := range m.Grid {
		score := p.Cross
		if score == nil {
			score = p.Within
		}
		if score != nil && *score < best {
			best, gamma = *score, p.GammaEMA
		}
	}
	return gamma
}

// preemptionShare is the share of step times that the preemption average explains.
func (b *base) preemptionShare() float64 {
	for _, c := range b.doc.Beta.Coefficients {
		if c.Name == "preemption_overhead" && c.Share != nil {
			return *c.Share
		}
	}
	return math.NaN()
}

// expertPrefill is the worst hold-out MAPE of steps with prefill of a mixture of experts.
func (b *base) expertPrefill() float64 {
	worst := -1.0
	for _, c := range b.doc.Beta.Cells {
		moe := slices.ContainsFunc(b.doc.Configs, func(f result.FitConfig) bool { return f.Key == c.Config && f.Deployment.Model.IsMoE() })
		if moe && c.Bucket == "" && c.Regime != rows.Decode.String() && c.MAPE != nil {
			worst = max(worst, *c.MAPE)
		}
	}
	if worst < 0 {
		return math.NaN()
	}
	return worst
}

// freedom is the effective degrees of freedom per configuration.
func (b *base) freedom() float64 {
	if b.doc.Beta.DFEff == nil {
		return math.NaN()
	}
	return *b.doc.Beta.DFEff / float64(len(b.doc.Configs))
}
