package ridge

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/stat"
)

// SelectCensored scores the lambda grid on interval targets, one Selection per
// variant of d: the folds, objectives and ties of Select with the score of T-7.
func SelectCensored(d *Data, b Bounds, o Options) ([]Selection, error) {
	if err := check(d, &o); err != nil {
		return nil, err
	}
	if err := b.Check(d.Len()); err != nil {
		return nil, err
	}
	out := make([]Selection, max(1, len(d.Variants)))
	for v := range out {
		e := &censoredExam{d: d.With(v), b: b, o: &o, w: CensoredWeights(d, o), configs: d.Configs()}
		embargo, gamma := o.EmbargoRows, 0.0
		if len(d.Variants) > 0 {
			embargo, gamma = d.Variants[v].EmbargoRows, d.Variants[v].Gamma
		}
		found, err := e.run(embargo)
		if err != nil {
			return nil, err
		}
		out[v] = e.selection(gamma)
		out[v].Findings = append(found, out[v].Findings...)
	}
	return out, nil
}

// censoredTrial is one training set, scored on the rows of each test entry.
type censoredTrial struct {
	train []int32
	test  [][]int32
	betas [][]float64
	score [][]float64
	err   error
}

// censoredExam mirrors exam on rows: an interval has no Gram.
type censoredExam struct {
	d       *Data
	b       Bounds
	o       *Options
	w       []float64
	configs []int32
	folds   []*censoredTrial
	loco    []*censoredTrial
	pairs   map[[2]int]*censoredTrial
}

func (e *censoredExam) run(embargo int) ([]Finding, error) {
	folds, found, err := Folds(e.d, *e.o, embargo)
	if err != nil {
		return nil, err
	}
	list := e.trials(folds)
	par.Each(e.o.workers(), len(list), func(_, i int) { e.solve(list[i]) })
	for _, t := range list {
		if t.err != nil {
			return nil, t.err
		}
	}
	return found, nil
}

func (e *censoredExam) trials(folds []Fold) []*censoredTrial {
	var list []*censoredTrial
	add := func(train []int32, test [][]int32) *censoredTrial {
		t := &censoredTrial{train: train, test: test}
		list = append(list, t)
		return t
	}
	for _, f := range folds {
		e.folds = append(e.folds, add(f.Train, [][]int32{f.Test}))
	}
	n := len(e.configs)
	for a := 0; a < n && n > 1; a++ {
		e.loco = append(e.loco, add(e.rows(a, -1, false), [][]int32{e.rows(a, -1, true)}))
	}
	e.pairs = map[[2]int]*censoredTrial{}
	for a := 0; a < n && n > 2 && !e.o.SkipNested; a++ {
		for b := a + 1; b < n; b++ {
			e.pairs[[2]int{a, b}] = add(e.rows(a, b, false), [][]int32{e.rows(a, -1, true), e.rows(b, -1, true)})
		}
	}
	return list
}

// rows lists the rows of configurations a and b (in), or of all others.
func (e *censoredExam) rows(a, b int, in bool) []int32 {
	var out []int32
	for i, c := range e.d.Config {
		hit := c == e.configs[a] || b >= 0 && c == e.configs[b]
		if hit == in {
			out = append(out, int32(i))
		}
	}
	return out
}

func (e *censoredExam) solve(t *censoredTrial) {
	c := newCensored(e.d, e.b, e.w, t.train, e.o)
	for _, lambda := range e.o.Lambdas {
		if _, t.err = c.fit(lambda); t.err != nil {
			t.err = fmt.Errorf("%d training rows: %w", len(t.train), t.err)
			return
		}
		beta := slices.Clone(c.beta)
		var scores []float64
		for _, rows := range t.test {
			scores = append(scores, e.b.score(e.d, e.w, rows, e.o.SpreadUs, func(i int32) float64 { return Dot(e.d.Row(int(i)), beta) }))
		}
		t.betas, t.score = append(t.betas, beta), append(t.score, scores)
	}
}

func (e *censoredExam) selection(gamma float64) Selection {
	s := Selection{Gamma: gamma, Configs: e.configs}
	for i, lambda := range e.o.Lambdas {
		p := Point{Lambda: lambda, Cross: math.NaN(), Worst: math.NaN()}
		for _, t := range e.folds {
			p.FoldScores = append(p.FoldScores, t.score[i][0])
			p.Fingerprints = append(p.Fingerprints, Fingerprint(t.betas[i]))
		}
		p.Within, p.SE = stat.Mean(p.FoldScores), stat.StdErr(p.FoldScores)
		for _, t := range e.loco {
			p.Loco = append(p.Loco, t.score[i][0])
		}
		if p.Loco != nil {
			p.Cross, p.Worst = stat.Mean(p.Loco), slices.Max(p.Loco)
		}
		s.Grid = append(s.Grid, p)
	}
	s.choose(e.o)
	s.Nested = e.nested()
	s.doubts()
	return s
}

func (e *censoredExam) nested() []Nested {
	if len(e.pairs) == 0 {
		return nil
	}
	var out []Nested
	for a, label := range e.configs {
		best, bestScore := 0, math.Inf(1)
		for i := range e.o.Lambdas {
			if score := e.inner(a, i); score <= bestScore {
				best, bestScore = i, score
			}
		}
		t := e.loco[a]
		out = append(out, Nested{
			Config: label, Lambda: e.o.Lambdas[best], Inner: bestScore,
			Outer: t.score[best][0], Beta: t.betas[best],
		})
	}
	return out
}

func (e *censoredExam) inner(a, i int) float64 {
	var v []float64
	for b := range e.configs {
		switch {
		case b > a:
			v = append(v, e.pairs[[2]int{a, b}].score[i][1])
		case b < a:
			v = append(v, e.pairs[[2]int{b, a}].score[i][0])
		}
	}
	return stat.Mean(v)
}
