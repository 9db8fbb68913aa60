package fit

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/bootstrap"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxExperiments bounds the list of experiments.
const maxExperiments = 12

// Identify says, from the recordings alone, which step-time terms can be told
// apart, how well, which kinds of steps are missing, and which one further
// experiment would shrink which interval most. Runs that cannot be fitted leave
// an empty answer with the reason.
func Identify(ctx context.Context, sources []Source, o Options) (*result.Identify, error) {
	o.betaOnly, o.Models, o.AlphaTargets = true, []string{}, nil
	out := &result.Identify{Terms: []result.IdentifyTerm{}, NullDirections: []string{}, MissingRegimes: []string{}, Experiments: []result.Experiment{}, Warnings: []trace.Finding{}}
	f, err := newFitter(ctx, sources, o, nil)
	if err == nil {
		err = f.identify(out)
	}
	if e := (*trace.Error)(nil); errors.As(err, &e) && e.Code == NoRows {
		out.Warnings = append(out.Warnings, trace.Finding{Code: NoRows, Message: e.Msg})
		return out, nil
	}
	return out, err
}

func (f *fitter) identify(out *result.Identify) error {
	s, m, err := f.selectBeta()
	if err != nil {
		return err
	}
	f.gamma = cv.ChooseVariant(m.scores())
	if err := f.solveChosen(s, m); err != nil {
		return err
	}
	tags := ridge.Identify(ridge.WithinVariation(s.train, s.weights))
	conf, diag := f.confidence(s, tags), f.diagnose(s)
	for j, t := range s.terms {
		it := result.IdentifyTerm{Name: t.name, Identified: string(tags[j]), VIF: num(diag.VIF[j])}
		if s.fit.DFTerm != nil {
			it.DF = num(s.fit.DFTerm[j])
		}
		if conf != nil {
			it.HalfWidth = relativeHalfWidth(conf.Terms[j])
		}
		out.Terms = append(out.Terms, it)
	}
	for _, g := range diag.Null {
		out.NullDirections = append(out.NullDirections, nullSentence(s.terms, g, len(s.pool.configs)))
	}
	var all []kinds
	for _, p := range f.used {
		all = append(all, p.kinds)
	}
	out.MissingRegimes = missing(all)
	out.Experiments = f.experiments(s, out.Terms)
	out.Warnings = append(append(out.Warnings, f.out.Warnings...), s.findings...)
	return nil
}

// relativeHalfWidth is half of a 95 % interval over its centre, before signs;
// nil where there is no interval or nothing to compare it with.
func relativeHalfWidth(t bootstrap.Interval) *float64 {
	if t.Method == bootstrap.FromNothing || !(t.Center > 0) {
		return nil
	}
	return num((math.Max(t.Hi, t.Center) - t.Center) / t.Center)
}

// experiments ranks candidates by D-optimality: the information their rows add
// to that of the training rows, both with relative weights. Each names the term
// whose interval it shrinks most; a term that is no candidate's best is listed
// with its own best candidate.
func (f *fitter) experiments(s *solved, terms []result.IdentifyTerm) []result.Experiment {
	list := f.candidates(s)
	grams := make([]*gram.Gram, len(list))
	for k, c := range list {
		grams[k] = gram.OfRows(c.data, cells.Unbalanced(c.data, s.opt), nil, 1)
	}
	if len(grams) == 0 {
		return []result.Experiment{}
	}
	base := gram.OfRows(s.train, cells.Unbalanced(s.train, s.opt), nil, f.o.Workers)
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
			e.After = num(*e.HalfWidth * p.Shrink[j])
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

// largest is the configuration with most training rows: the one experiments vary.
func (s *solved) largest() int32 {
	counts := make([]int, len(s.pool.configs))
	for _, c := range s.train.Config {
		counts[c]++
	}
	return int32(slices.Index(counts, slices.Max(counts)))
}

// candidate is one experiment as synthetic rows.
type candidate struct {
	what string
	data *gram.Data
}

// rowsOf are an experiment's steps as rows of the model, their targets predicted
// by the fit. Steps the features refuse or bound are left out.
func (s *solved) rowsOf(space *features.Space, steps []features.StepInput) *gram.Data {
	d := &gram.Data{P: len(s.terms)}
	x := make([]float64, d.P)
	for i := range steps {
		if hits, err := space.Beta(&steps[i], x); err != nil || hits != 0 {
			continue
		}
		d.X = append(d.X, x...)
		d.Y = append(d.Y, math.Max(gram.Dot(x, s.fit.Beta), 1))
	}
	d.Config, d.Regime = make([]int32, len(d.Y)), make([]int32, len(d.Y))
	return d
}
