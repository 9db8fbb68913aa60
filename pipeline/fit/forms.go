package fit

// This file chooses the form of the step-time model by cross-validation: which terms it has and which
// limits its coefficients have (spec#forms).

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Selections of lambda (spec#selection).
const (
	SelectMinimum     = "minimum"
	SelectOneStandard = "one-standard-error"
)

// Forms of the step-time model (spec#forms): limits on its coefficients under which it is fitted.
// With few distinct loads the terms take each other's work, and then a model with less freedom
// predicts unseen steps better.
const (
	FormBounded   = "bounded"   // every time-like term takes at most mostTimesPeak times the hardware's time
	FormUnbounded = "unbounded" // no limits
	FormFewTerms  = "few-terms" // bounded, and only the terms of the list fewTerms
)

// mostTimesPeak limits a time-like coefficient, as a multiple of the time at the hardware's peak.
const mostTimesPeak = 5

// fewTerms are the terms that the totals in a log line already determine: tokens, requests, whether
// the step has prompts, and a constant.
var fewTerms = []string{features.PrefillLinearCompute, "batch_utilization", "prefill_decode_mix", "chunked_prefill_mixed", "bias"}

// form is a form of the step-time model with its cross-validation scores.
type form struct {
	name  string
	upper []float64         // ridge.Options.Upper
	sels  []ridge.Selection // by gamma
}

// newForms returns the forms of a model with these terms, the preferred one first. A form is a
// choice of terms and of limits for their coefficients.
func newForms(terms []Term) []form {
	bounded := make([]float64, len(terms))
	few := make([]float64, len(terms)) // 0 removes a term (ridge.Options.Upper)
	for j, t := range terms {
		bounded[j] = math.Inf(1)
		if times, ok := features.RooflineTimes(t.Name, t.Unit, 1); ok {
			bounded[j] = mostTimesPeak / times
		}
		if slices.Contains(fewTerms, t.Name) {
			few[j] = bounded[j]
		}
	}
	return []form{
		{name: FormBounded, upper: bounded},
		{name: FormFewTerms, upper: few},
		{name: FormUnbounded},
	}
}

// hasForms reports whether the step time is fitted in several forms: the relative recipe without a
// prior. A coefficient set as prior already states which coefficients are possible.
func (o *Options) hasForms() bool {
	return o.Recipe == Relative && !o.FromSets() && !o.Spec.InComponents()
}

// setSelection sets how lambda of the step time is selected (spec#selection).
func (o *Options) setSelection(opt *ridge.Options) {
	opt.EachBlock = o.Recipe == Relative
	opt.SmallestWithin = o.Recipe == Relative && o.Selection == SelectMinimum
}

// chooseForm scores lambda for every form and returns the forms and the place of the chosen one
// (spec#forms). cells are the training rows by gamma; usual is the position of the default gamma,
// at which the forms are compared. The limits of the chosen form are set in opt.
func chooseForm(cells []*ridge.Cells, terms []Term, usual int, opt *ridge.Options) (forms []form, chosen int, err error) {
	forms = newForms(terms)
	for i := range forms {
		o := *opt
		o.Upper = forms[i].upper
		for _, c := range cells {
			sel, err := c.Select(o)
			if err != nil {
				return nil, 0, err
			}
			forms[i].sels = append(forms[i].sels, sel)
		}
	}
	chosen = betterForm(forms, usual)
	opt.Upper = forms[chosen].upper
	return forms, chosen, nil
}

// betterForm returns the place of the best of the forms of newForms at one gamma. Few terms are
// chosen if their mean score is smaller. Coefficients beyond the hardware's limits are chosen only
// if they lower the score by more than the standard error of the differences, because such a gain
// may be chance and their extrapolation is wrong.
func betterForm(forms []form, gamma int) int {
	const bounded, few, unbounded = 0, 1, 2
	scores := make([][]float64, len(forms))
	for i := range forms {
		scores[i] = forms[i].sels[gamma].ScoresHeldOut()
	}
	best := bounded
	if stat.Mean(scores[few]) < stat.Mean(scores[bounded]) {
		best = few
	}
	gain := make([]float64, len(scores[best]))
	for k := range gain {
		gain[k] = scores[best][k] - scores[unbounded][k]
	}
	if stat.Mean(gain) > stat.StdErr(gain) {
		best = unbounded
	}
	return best
}

// describeForms returns the forms with their scores at one gamma.
func describeForms(forms []form, chosen, gamma int) []result.Candidate {
	var out []result.Candidate
	for i := range forms {
		sel := &forms[i].sels[gamma]
		scores := sel.ScoresHeldOut()
		out = append(out, result.Candidate{
			Name:      forms[i].name,
			Lambda:    result.OrNull(sel.Lambda),
			Score:     result.OrNull(stat.Mean(scores)),
			SE:        result.OrNull(stat.StdErr(scores)),
			HeldOut:   len(scores),
			Objective: string(sel.Objective),
			Chosen:    i == chosen,
		})
	}
	return out
}

// limitFindings returns a finding with the terms that are at their limit.
func limitFindings(terms []Term, upper, beta []float64) []trace.Finding {
	var at []string
	for j, t := range terms {
		if upper != nil && upper[j] > 0 && beta[j] >= upper[j]*(1-1e-9) {
			at = append(at, t.Name)
		}
	}
	if at == nil {
		return nil
	}
	return []trace.Finding{{Code: absorbs, Message: report.AtPhysicalLimit(at, mostTimesPeak)}}
}
