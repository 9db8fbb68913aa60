package ridge

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/stat"
)

// Point is one lambda of the grid.
type Point struct {
	Lambda       float64
	FoldScores   []float64 // one per forward fold
	Fingerprints []string  // of the folds' coefficients
	Within       float64   // mean of FoldScores
	SE           float64   // sample standard deviation of FoldScores / sqrt(folds)
	Loco         []float64 // score of each configuration left out, in Configs order; nil with one
	Cross        float64   // mean of Loco; NaN with one configuration
	Worst        float64   // largest of Loco; NaN with one configuration
}

// Nested is the honest score of one configuration: lambda was chosen without it.
type Nested struct {
	Config int32
	Lambda float64
	Inner  float64   // mean score that chose lambda, other configurations left out in turn
	Outer  float64   // score of Config under the fit without it
	Beta   []float64 // that fit
}

// Selection is the scored grid of one variant and the choice.
type Selection struct {
	Gamma   float64 // label of the variant
	Configs []int32
	Grid    []Point

	MinWithin int // index of the smallest Within
	OneSE     int // largest lambda within one standard error of it
	Cross     int // index of the smallest Cross; -1 below three configurations
	Minimax   int // index of the smallest Worst; -1 with one configuration

	Objective Objective // what decided
	Index     int       // the chosen grid point
	Lambda    float64
	Score     float64  // its score under Objective
	Nested    []Nested // nil below three configurations
	Findings  []Finding
}

// NestedMean is the mean outer score; NaN without nested scores.
func (s *Selection) NestedMean() float64 {
	var v []float64
	for _, n := range s.Nested {
		v = append(v, n.Outer)
	}
	return stat.Mean(v)
}

// Select scores the lambda grid for every variant of d (one when it has none).
// The score of a fit on rows it has not seen is the mean over configurations of
// sum w(y - x.beta)^2/sum w y^2.
func Select(d *Data, o Options) ([]Selection, error) {
	cells, found, err := Cut(d, o)
	if err != nil {
		return nil, err
	}
	out := make([]Selection, len(cells))
	for v, c := range cells {
		if out[v], err = SelectCells(c, o); err != nil {
			return nil, err
		}
		out[v].Findings = append(slices.Clone(found), out[v].Findings...)
	}
	return out, nil
}

// ChooseVariant is the position with the smallest sum of scores over the given
// models, each a list with one Selection per variant; ties go to the smaller gamma.
func ChooseVariant(models ...[]Selection) int {
	best, bestScore := 0, math.Inf(1)
	for v := range models[0] {
		var score float64
		for _, m := range models {
			score += m[v].Score
		}
		tie := score == bestScore && models[0][v].Gamma < models[0][best].Gamma
		if score < bestScore || tie {
			best, bestScore = v, score
		}
	}
	return best
}

// SelectCells is Select on Gram matrices alone.
func SelectCells(c *Cells, o Options) (Selection, error) {
	if err := o.Check(c.P); err != nil {
		return Selection{}, err
	}
	if o.EpsUs != c.EpsUs || o.Folds != c.Folds {
		return Selection{}, fmt.Errorf("ridge: cells were cut with eps_us=%v folds=%d, want %v and %d", c.EpsUs, c.Folds, o.EpsUs, o.Folds)
	}
	e := newExam(c, &o)
	e.run()
	return e.selection(c.Gamma), nil
}

// trial is one training set and the configurations it is scored on.
type trial struct {
	train *Gram
	test  []*Gram // one per configuration to score; nil entries are not scored
	betas [][]float64
	score [][]float64 // per lambda, per test entry; NaN where not scored
}

// exam is every training set of a selection: folds, configurations left out,
// pairs left out.
type exam struct {
	o       *Options
	p       int
	configs []int32
	folds   []*trial
	loco    []*trial
	pairs   map[[2]int]*trial
	list    []*trial
}

func newExam(c *Cells, o *Options) *exam {
	e := &exam{o: o, p: c.P, configs: c.Configs(), pairs: map[[2]int]*trial{}}
	factor := c.Balance(o.MinCellRows)
	perConfig := func(keep func(CellKey) bool) []*Gram {
		out := make([]*Gram, len(e.configs))
		for k, label := range e.configs {
			out[k] = c.Sum(factor, func(key CellKey) bool { return key.Config == label && keep(key) })
		}
		return out
	}
	for j := range o.Folds {
		train := c.Sum(factor, func(k CellKey) bool { return k.From <= int32(j) })
		e.add(&e.folds, train, perConfig(func(k CellKey) bool { return k.Block == int32(j)+1 }))
	}
	totals := perConfig(func(CellKey) bool { return true })
	n := len(e.configs)
	for a := 0; a < n && n > 1; a++ {
		test := make([]*Gram, n)
		test[a] = totals[a]
		e.add(&e.loco, sumWithout(totals, a, -1), test)
	}
	for a := 0; a < n && n > 2 && !o.SkipNested; a++ {
		for b := a + 1; b < n; b++ {
			test := make([]*Gram, n)
			test[a], test[b] = totals[a], totals[b]
			t := &trial{train: sumWithout(totals, a, b), test: test}
			e.pairs[[2]int{a, b}] = t
			e.list = append(e.list, t)
		}
	}
	return e
}

func (e *exam) add(to *[]*trial, train *Gram, test []*Gram) {
	t := &trial{train: train, test: test}
	*to = append(*to, t)
	e.list = append(e.list, t)
}

// sumWithout adds all Grams but those at a and b.
func sumWithout(grams []*Gram, a, b int) *Gram {
	out := NewGram(grams[0].P)
	for k, g := range grams {
		if k != a && k != b {
			out.Add(g)
		}
	}
	return out
}

// run solves every trial at every lambda.
func (e *exam) run() {
	solvers := make([]*solver, e.o.workers())
	par.Each(e.o.workers(), len(e.list), func(worker, i int) {
		if solvers[worker] == nil {
			solvers[worker] = newSolver(e.p, e.o)
		}
		s, t := solvers[worker], e.list[i]
		s.load(t.train, 0)
		s.cold()
		for _, lambda := range e.o.Lambdas {
			s.solve(lambda)
			beta := make([]float64, e.p)
			s.beta(beta)
			t.betas = append(t.betas, beta)
			t.score = append(t.score, t.scores(beta))
		}
	})
}

func (t *trial) scores(beta []float64) []float64 {
	out := make([]float64, len(t.test))
	for k, g := range t.test {
		out[k] = math.NaN()
		if g != nil {
			out[k] = g.Score(beta)
		}
	}
	return out
}

func (e *exam) selection(gamma float64) Selection {
	s := Selection{Gamma: gamma, Configs: e.configs}
	for i, lambda := range e.o.Lambdas {
		s.Grid = append(s.Grid, e.point(i, lambda))
	}
	s.choose(e.o)
	s.Nested = e.nested()
	s.doubts()
	return s
}

func (e *exam) point(i int, lambda float64) Point {
	p := Point{Lambda: lambda, Cross: math.NaN(), Worst: math.NaN()}
	for _, t := range e.folds {
		p.FoldScores = append(p.FoldScores, stat.Mean(t.score[i]))
		p.Fingerprints = append(p.Fingerprints, Fingerprint(t.betas[i]))
	}
	p.Within, p.SE = stat.Mean(p.FoldScores), stat.StdErr(p.FoldScores)
	for k, t := range e.loco {
		p.Loco = append(p.Loco, t.score[i][k])
	}
	if p.Loco != nil {
		p.Cross, p.Worst = stat.Mean(p.Loco), slices.Max(p.Loco)
	}
	return p
}

// choose applies the rules of V-8; a tie goes to the larger lambda.
func (s *Selection) choose(o *Options) {
	want := o.Objective
	within := func(p Point) float64 { return p.Within }
	cross := func(p Point) float64 { return p.Cross }
	worst := func(p Point) float64 { return p.Worst }
	s.MinWithin = argmin(s.Grid, within)
	s.OneSE = s.MinWithin
	limit := s.Grid[s.MinWithin].Within + s.Grid[s.MinWithin].SE
	for i, p := range s.Grid {
		if p.Within <= limit && i > s.OneSE {
			s.OneSE = i
		}
	}
	s.Cross, s.Minimax = -1, -1
	if len(s.Configs) >= 3 {
		s.Cross = argmin(s.Grid, cross)
	}
	if len(s.Configs) >= 2 {
		s.Minimax = argmin(s.Grid, worst)
	}
	switch {
	case (want == Auto || want == Cross) && s.Cross >= 0:
		s.Objective, s.Index, s.Score = Cross, s.Cross, s.Grid[s.Cross].Cross
	case want == Minimax && s.Minimax >= 0:
		s.Objective, s.Index, s.Score = Minimax, s.Minimax, s.Grid[s.Minimax].Worst
	case o.SmallestWithin:
		s.Objective, s.Index, s.Score = Within, s.MinWithin, s.Grid[s.MinWithin].Within
	default:
		s.Objective, s.Index, s.Score = Within, s.OneSE, s.Grid[s.OneSE].Within
	}
	s.Lambda = s.Grid[s.Index].Lambda
}

// argmin is the last position of the smallest value.
func argmin(grid []Point, f func(Point) float64) int {
	best := 0
	for i, p := range grid {
		if f(p) <= f(grid[best]) {
			best = i
		}
	}
	return best
}

// nested repeats the leave-one-out choice without the outer configuration.
func (e *exam) nested() []Nested {
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
			Outer: t.score[best][a], Beta: t.betas[best],
		})
	}
	return out
}

// inner is the mean score at lambda i of the other configurations, each left
// out together with a.
func (e *exam) inner(a, i int) float64 {
	var v []float64
	for b := range e.configs {
		if b == a {
			continue
		}
		v = append(v, e.pairs[[2]int{min(a, b), max(a, b)}].score[i][b])
	}
	return stat.Mean(v)
}

// doubts names a choice at the grid's edge and folds that repeat each other.
func (s *Selection) doubts() {
	if len(s.Grid) > 1 && (s.Index == 0 || s.Index == len(s.Grid)-1) {
		s.Findings = append(s.Findings, Finding{
			Code: LambdaAtEdge, Config: -1, Run: -1,
			Message: fmt.Sprintf("lambda %g is an end of its grid %g..%g", s.Lambda, s.Grid[0].Lambda, s.Grid[len(s.Grid)-1].Lambda),
		})
	}
	if a, b, ok := Repeated(s.Grid[s.Index].Fingerprints); ok {
		s.Findings = append(s.Findings, Finding{
			Code: FoldsNotDistinct, Config: -1, Run: -1,
			Message: fmt.Sprintf("folds %d and %d have the same coefficients", a+1, b+1),
		})
	}
}

// Repeated finds two equal fingerprints.
func Repeated(prints []string) (a, b int, found bool) {
	for b := range prints {
		if a := slices.Index(prints[:b], prints[b]); a >= 0 {
			return a, b, true
		}
	}
	return 0, 0, false
}
