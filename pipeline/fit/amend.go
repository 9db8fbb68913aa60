// Package amend tries the amendments of the specification on the rows of a fit: each alone, judged on
// the hold-out and on configurations left out, beside the fit without it.
package fit

import (
	"context"

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
func TryEach(ctx context.Context, sources []OptionsSource, o OptionsOptions) ([]result.Amendment, error) {
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
	if m = doc.AlphaNamed(rows.Admission); m == nil || m.TargetErrors == nil {
		return nil, nil
	}
	return m.TargetErrors.MAPEWindow10s, m.LocoMedian
}

// lean are the options without what no trial reads.
func lean(o OptionsOptions) (OptionsOptions, error) {
	o, err := o.Resolve()
	if err != nil {
		return o, err
	}
	if o.Spec.Base() == features.V10 || o.Recipe == Frozen {
		return o, trace.Errorf(CodeBadOption, "--try-amendments: got spec %s and recipe %s, want 1.1 or 1.2 and relative", o.Spec,
			o.Recipe)
	}
	o.Bootstraps, o.Models, o.AlphaTargets = OptionsMinBootstraps, []string{}, []string{rows.Admission}
	return o, nil
}
