package ridge

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// trial is one training set, fitted and scored at every lambda: the rows before a
// block of a fold, or those without one or two configurations.
type trial struct {
	fold   int         // position of the fold; -1: configurations are left out
	out    [2]int      // positions of the configurations left out; -1: none
	betas  [][]float64 // per lambda
	scores [][]float64 // per lambda and configuration; NaN where it is not scored
}

func (t *trial) leavesOut(config int) bool { return config == t.out[0] || config == t.out[1] }

func (t *trial) add(beta, scores []float64) {
	t.betas, t.scores = append(t.betas, beta), append(t.scores, scores)
}

// trials are all training sets of a choice: folds, configurations left out, pairs
// left out.
type trials struct {
	o       *Options
	configs []int32
	folds   []*trial
	loco    []*trial
	pairs   map[[2]int]*trial
	list    []*trial
}

func newTrials(configs []int32, o *Options) *trials {
	t := &trials{o: o, configs: configs, pairs: map[[2]int]*trial{}}
	add := func(fold, a, b int) *trial {
		s := &trial{fold: fold, out: [2]int{a, b}}
		t.list = append(t.list, s)
		return s
	}
	for j := range o.Folds {
		t.folds = append(t.folds, add(j, -1, -1))
	}
	n := len(configs)
	for a := 0; a < n && n > 1; a++ {
		t.loco = append(t.loco, add(-1, a, -1))
	}
	for a := 0; a < n && n > 2 && !o.SkipNested; a++ {
		for b := a + 1; b < n; b++ {
			t.pairs[[2]int{a, b}] = add(-1, a, b)
		}
	}
	return t
}

// selection is the choice among the lambdas of solved trials.
func (t *trials) selection(gamma float64) Selection {
	s := Selection{Gamma: gamma, Configs: t.configs}
	for i, lambda := range t.o.Lambdas {
		s.Grid = append(s.Grid, t.point(i, lambda))
	}
	s.choose(t.o)
	s.Nested = t.nested()
	s.warn()
	return s
}

func (t *trials) point(i int, lambda float64) Point {
	p := Point{Lambda: lambda, Cross: math.NaN(), Worst: math.NaN()}
	for _, s := range t.folds {
		p.FoldScores = append(p.FoldScores, stat.Mean(s.scores[i]))
		p.Fingerprints = append(p.Fingerprints, Fingerprint(s.betas[i]))
	}
	p.Within, p.SE = stat.Mean(p.FoldScores), stat.StdErr(p.FoldScores)
	for k, s := range t.loco {
		p.Loco = append(p.Loco, s.scores[i][k])
	}
	if p.Loco != nil {
		p.Cross, p.Worst = stat.Mean(p.Loco), slices.Max(p.Loco)
	}
	return p
}

// nested repeats the leave-one-out choice without the outer configuration.
func (t *trials) nested() []Nested {
	if len(t.pairs) == 0 {
		return nil
	}
	var out []Nested
	for a, label := range t.configs {
		best, bestScore := 0, math.Inf(1)
		for i := range t.o.Lambdas {
			if score := t.inner(a, i); score <= bestScore {
				best, bestScore = i, score
			}
		}
		s := t.loco[a]
		out = append(out, Nested{
			Config: label, Lambda: t.o.Lambdas[best], Inner: bestScore,
			Outer: s.scores[best][a], Beta: s.betas[best],
		})
	}
	return out
}

// inner is the mean score at lambda i of the other configurations, each left
// out together with a.
func (t *trials) inner(a, i int) float64 {
	var v []float64
	for b := range t.configs {
		if b != a {
			v = append(v, t.pairs[[2]int{min(a, b), max(a, b)}].scores[i][b])
		}
	}
	return stat.Mean(v)
}
