// Package identify says what recordings can tell apart, and which experiment would help.
package fit

import (
	"context"
	"errors"
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxExperiments bounds the list of experiments.
const maxExperiments = 12

// Identify says, from the recordings alone, which step-time terms can be told
// apart, how well, which kinds of steps are missing, and which one further
// experiment would shrink which interval most. Runs that cannot be fitted leave
// an empty answer with the reason.
func Identify(ctx context.Context, sources []OptionsSource, o OptionsOptions) (*result.Identify, error) {
	o.BetaOnly, o.Models, o.AlphaTargets = true, []string{}, nil
	out := &result.Identify{Terms: []result.IdentifyTerm{}, NullDirections: []string{}, MissingRegimes: []string{},
		Experiments: []result.Experiment{}, Warnings: []trace.Finding{}}
	st, err := FitStepTime(ctx, sources, o)
	if err == nil {
		fillTerms(st, out)
	}
	if e := (*trace.Error)(nil); errors.As(err, &e) && e.Code == CodeNoRows {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: e.Msg})
		return out, nil
	}
	return out, err
}

func fillTerms(st *StepTime, out *result.Identify) {
	s := st.Model
	tags := ridge.Identify(ridge.WithinVariation(s.Train, s.Weights))
	conf, diag := Confidence(s, tags, &st.Options), DiagnoseRows(s, st.Options.Workers)
	for j, t := range s.Terms {
		it := result.IdentifyTerm{Name: t.Name, Identified: string(tags[j]), VIF: result.OrNull(diag.VIF[j])}
		if s.Fit.DFTerm != nil {
			it.DF = result.OrNull(s.Fit.DFTerm[j])
		}
		if conf != nil {
			it.HalfWidth = relativeHalfWidth(conf.Terms[j])
		}
		out.Terms = append(out.Terms, it)
	}
	if err := diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: err.Error()})
	}
	for _, g := range diag.Null {
		out.NullDirections = append(out.NullDirections, NullSentence(s.Terms, g, len(s.Pool.Configs)))
	}
	var all []kinds
	for _, p := range st.Runs {
		all = append(all, kindsOf(p.Coverage))
	}
	out.MissingRegimes = missing(all)
	out.Experiments = experiments(st, out.Terms)
	out.Warnings = append(append(out.Warnings, st.Warnings...), s.Findings...)
}

// relativeHalfWidth is half of a 95 % interval over its centre, before signs;
// nil where there is no interval or nothing to compare it with.
func relativeHalfWidth(t ridge.Interval) *float64 {
	if t.Method == ridge.FromNothing || !(t.Center > 0) {
		return nil
	}
	return result.OrNull((math.Max(t.Hi, t.Center) - t.Center) / t.Center)
}

// experiments ranks candidates by D-optimality: the information their rows add
// to that of the training rows, both with relative weights. Each names the term
// whose interval it shrinks most; a term that is no candidate's best is listed
// with its own best candidate.
func experiments(st *StepTime, terms []result.IdentifyTerm) []result.Experiment {
	s, list := st.Model, candidates(st)
	grams := make([]*ridge.Gram, len(list))
	for k, c := range list {
		grams[k] = ridge.OfRows(c.data, ridge.Unbalanced(c.data, s.Opt), nil, 1)
	}
	if len(grams) == 0 {
		return []result.Experiment{}
	}
	base := ridge.OfRows(s.Train, ridge.Unbalanced(s.Train, s.Opt), nil, st.Options.Workers)
	ranked := ridge.Propose(base, grams)
	named := make([]bool, len(terms))
	out := []result.Experiment{}
	add := func(p ridge.Proposal, j int) {
		if j < 0 || len(out) == maxExperiments {
			return
		}
		named[j] = true
		e := result.Experiment{Description: list[p.Index].what, Term: terms[j].Name, HalfWidth: terms[j].HalfWidth, GainLogDet: p.LogDet}
		if e.HalfWidth != nil {
			e.After = result.OrNull(*e.HalfWidth * p.Shrink[j])
		}
		out = append(out, e)
	}
	for _, p := range ranked {
		if best := mostShrunk(p.Shrink); best >= 0 && !named[best] {
			add(p, best)
		}
	}
	for j := range terms {
		if !named[j] {
			if p := bestFor(ranked, j); p != nil {
				add(*p, j)
			}
		}
	}
	return out
}

// worthwhile is the share of a standard error an experiment must take off.
const worthwhile = 0.9

// mostShrunk is the term whose standard error falls most; -1 when none does.
func mostShrunk(shrink []float64) int {
	best := -1
	for j, v := range shrink {
		if v < worthwhile && (best < 0 || v < shrink[best]) {
			best = j
		}
	}
	return best
}

// bestFor is the proposal that shrinks one term most; nil when none does.
func bestFor(ranked []ridge.Proposal, j int) *ridge.Proposal {
	var best *ridge.Proposal
	for k := range ranked {
		if p := &ranked[k]; p.Shrink[j] < worthwhile && (best == nil || p.Shrink[j] < best.Shrink[j]) {
			best = p
		}
	}
	return best
}
