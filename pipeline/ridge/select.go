package ridge

// This file chooses lambda by cross-validation: over blocks of time (folds), over configurations (leave
// one configuration out, "loco"), and nested, for an error that the choice has not seen.

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
)

// Point is one lambda of the grid.
type Point struct {
	Lambda       float64
	FoldScores   []float64 // one per fold, or per block with Options.EachBlock
	Fingerprints []string  // of the folds' coefficients
	Within       float64   // mean of FoldScores
	SE           float64   // sample standard deviation of FoldScores / sqrt(folds)
	Loco         []float64 // score of each held-out configuration, in Configs order; nil with one
	Cross        float64   // mean of Loco; NaN with one configuration
	Worst        float64   // largest of Loco; NaN with one configuration
}

// Nested is the unbiased score of one configuration: its lambda was chosen without it.
type Nested struct {
	Config int32
	Lambda float64
	Inner  float64   // mean score that chose lambda, other configurations held out in turn
	Outer  float64   // score of Config under the fit without it
	Beta   []float64 // that fit
}

// Selection is the scored lambda grid of one variant, and the choice.
type Selection struct {
	Gamma   float64 // label of the variant
	Configs []int32 // labels, in the order of the scores
	Grid    []Point // by lambda, ascending

	MinWithin int // index of the smallest Within
	OneSE     int // index of the largest lambda within one standard error of it
	Cross     int // index of the smallest Cross; -1 below three configurations
	Minimax   int // index of the smallest Worst; -1 with one configuration

	Objective Objective // what decided
	Index     int       // the chosen grid point
	Lambda    float64
	Score     float64     // its score under Objective
	FoldBetas [][]float64 // coefficients of each fold at Lambda
	Nested    []Nested    // nil below three configurations
	Findings  []Finding

	intervals *trials // of SelectIntervals, for NestIntervals
}

// LambdaWithout returns the lambda chosen without the rows of a configuration, or the overall
// choice where there are no nested scores.
func (s *Selection) LambdaWithout(config int32) float64 {
	if i := slices.IndexFunc(s.Nested, func(n Nested) bool { return n.Config == config }); i >= 0 {
		return s.Nested[i].Lambda
	}
	return s.Lambda
}

// ScoresHeldOut returns the scores of the chosen lambda under the objective: one for each fold, or
// one for each configuration held out.
func (s *Selection) ScoresHeldOut() []float64 {
	if s.Objective == Within {
		return s.Grid[s.Index].FoldScores
	}
	return s.Grid[s.Index].Loco
}

// NestedMean returns the mean outer score of the nested choices; NaN without them.
func (s *Selection) NestedMean() float64 {
	scores := make([]float64, len(s.Nested))
	for i := range s.Nested {
		scores[i] = s.Nested[i].Outer
	}
	return stat.Mean(scores)
}

// ChooseVariant returns the best of the variants by their fold scores, each at its own best lambda
// (spec#gamma-choice). within has the variants whose mean difference from the best, paired by fold,
// is at most its standard error. The variant with the label usual is chosen if it is among them,
// else the best.
func ChooseVariant(sels []Selection, usual float64) (chosen int, within []int) {
	best := 0
	for v := range sels {
		if sels[v].best().Within < sels[best].best().Within {
			best = v
		}
	}
	chosen = best
	for v := range sels {
		var d []float64
		for j, score := range sels[v].best().FoldScores {
			d = append(d, score-sels[best].best().FoldScores[j])
		}
		if m := stat.Mean(d); m > 0 && !(m <= stat.StdErr(d)) { // worse beyond chance; also with one fold, whose error is NaN
			continue
		}
		within = append(within, v)
		if sels[v].Gamma == usual {
			chosen = v
		}
	}
	return chosen, within
}

// best returns the grid point with the smallest mean score over folds.
func (s *Selection) best() *Point { return &s.Grid[s.MinWithin] }

// choose applies the rules of the choice (spec#selection); of equal scores the larger lambda is chosen.
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
		s.Objective = Cross
		s.Index = s.Cross
		s.Score = s.Grid[s.Cross].Cross
	case want == Minimax && s.Minimax >= 0:
		s.Objective = Minimax
		s.Index = s.Minimax
		s.Score = s.Grid[s.Minimax].Worst
	case o.SmallestWithin:
		s.Objective = Within
		s.Index = s.MinWithin
		s.Score = s.Grid[s.MinWithin].Within
	default:
		s.Objective = Within
		s.Index = s.OneSE
		s.Score = s.Grid[s.OneSE].Within
	}
	s.Lambda = s.Grid[s.Index].Lambda
}

// argmin returns the last index of the smallest value, which is the larger lambda of a tie.
func argmin(grid []Point, f func(Point) float64) int {
	best := 0
	for i, p := range grid {
		if f(p) <= f(grid[best]) {
			best = i
		}
	}
	return best
}

// warn adds a finding for a lambda at an end of the grid.
func (s *Selection) warn() {
	last := len(s.Grid) - 1
	if last > 0 && (s.Index == 0 || s.Index == last) {
		meaning := "the measurements decide without a penalty"
		if s.Index == last {
			meaning = "the penalty decides more than the measurements, and predictions may be too small"
		}
		s.Findings = append(s.Findings, Finding{
			Code:   LambdaAtEdge,
			Config: -1,
			Run:    -1,
			Message: fmt.Sprintf("lambda %g is an end of its grid %g..%g: %s",
				s.Lambda, s.Grid[0].Lambda, s.Grid[last].Lambda, meaning),
		})
	}
}

// trial is one training set, fitted and scored at every lambda. Of a fold it has the rows before the
// fold's validation block; otherwise it has all rows but those of one or two configurations.
type trial struct {
	fold   int         // position of the fold; -1: configurations are held out
	out    [2]int      // positions of the held-out configurations; -1: none
	betas  [][]float64 // per lambda
	scores [][]float64 // per lambda and configuration; NaN where it is not scored
}

// leavesOut reports whether the configuration at this position is held out.
func (t *trial) leavesOut(config int) bool { return config == t.out[0] || config == t.out[1] }

// add adds the coefficients and scores at one lambda.
func (t *trial) add(beta, scores []float64) {
	t.betas = append(t.betas, beta)
	t.scores = append(t.scores, scores)
}

// trials are all training sets of a choice of lambda: one for each fold, one for each held-out
// configuration, one for each pair of held-out configurations.
type trials struct {
	o       *Options
	configs []int32
	folds   []*trial
	loco    []*trial
	pairs   map[[2]int]*trial
	list    []*trial
}

// newTrials returns the training sets: forward folds, or every block held out in turn.
func newTrials(configs []int32, o *Options, eachBlock bool) *trials {
	t := &trials{o: o, configs: configs, pairs: map[[2]int]*trial{}}
	add := func(fold, a, b int) *trial {
		added := &trial{fold: fold, out: [2]int{a, b}}
		t.list = append(t.list, added)
		return added
	}
	folds := o.Folds
	if eachBlock {
		folds++
	}
	for j := range folds {
		t.folds = append(t.folds, add(j, -1, -1))
	}
	n := len(configs)
	if n < 2 {
		return t
	}
	for a := range n {
		t.loco = append(t.loco, add(-1, a, -1))
	}
	if n < 3 || o.SkipNested {
		return t
	}
	for a := range n {
		for b := a + 1; b < n; b++ {
			t.pairs[[2]int{a, b}] = add(-1, a, b)
		}
	}
	return t
}

// selection returns the choice among the lambdas once all trials are solved.
func (t *trials) selection(gamma float64) Selection {
	s := Selection{Gamma: gamma, Configs: t.configs}
	for i, lambda := range t.o.Lambdas {
		s.Grid = append(s.Grid, t.point(i, lambda))
	}
	s.choose(t.o)
	for _, f := range t.folds {
		s.FoldBetas = append(s.FoldBetas, f.betas[s.Index])
	}
	s.Nested = t.nested()
	s.warn()
	return s
}

// point returns the scores of grid point i.
func (t *trials) point(i int, lambda float64) Point {
	p := Point{Lambda: lambda, Cross: math.NaN(), Worst: math.NaN()}
	for _, fold := range t.folds {
		p.FoldScores = append(p.FoldScores, stat.Mean(fold.scores[i]))
		p.Fingerprints = append(p.Fingerprints, Fingerprint(fold.betas[i]))
	}
	p.Within, p.SE = stat.Mean(p.FoldScores), stat.StdErr(p.FoldScores)
	for k, without := range t.loco {
		p.Loco = append(p.Loco, without.scores[i][k])
	}
	if p.Loco != nil {
		p.Cross, p.Worst = stat.Mean(p.Loco), slices.Max(p.Loco)
	}
	return p
}

// nested chooses lambda again for each configuration, without any of its rows, and returns its
// scores on them.
func (t *trials) nested() []Nested {
	if len(t.pairs) == 0 {
		return nil
	}
	var out []Nested
	for a, label := range t.configs {
		best := 0
		bestScore := math.Inf(1)
		for i := range t.o.Lambdas {
			if score := t.inner(a, i); score <= bestScore { // of equal scores the larger lambda
				best = i
				bestScore = score
			}
		}
		// The fit without a at the lambda that was chosen without a.
		without := t.loco[a]
		out = append(out, Nested{
			Config: label,
			Lambda: t.o.Lambdas[best],
			Inner:  bestScore,
			Outer:  without.scores[best][a],
			Beta:   without.betas[best],
		})
	}
	return out
}

// inner returns the mean score at lambda i of the other configurations, each held out together with
// a.
func (t *trials) inner(a, i int) float64 {
	var v []float64
	for b := range t.configs {
		if b != a {
			v = append(v, t.pairs[[2]int{min(a, b), max(a, b)}].scores[i][b])
		}
	}
	return stat.Mean(v)
}

// Select returns the scores of the lambda grid for every variant of d (one if it has none). The
// score of a fit on held-out rows is the mean over configurations of sum w(y - x.beta)^2/sum w y^2.
func Select(d *Data, o Options) ([]Selection, error) {
	cells, found, err := d.Cut(o)
	if err != nil {
		return nil, err
	}
	out := make([]Selection, len(cells))
	for v, c := range cells {
		if out[v], err = c.Select(o); err != nil {
			return nil, err
		}
		out[v].Findings = append(slices.Clone(found), out[v].Findings...)
	}
	return out, nil
}

// Select is the function Select for cells that were cut before: it needs no rows.
func (c *Cells) Select(o Options) (Selection, error) {
	if o.EpsUs != c.EpsUs || o.Folds != c.Folds {
		return Selection{}, fmt.Errorf("ridge: cells were cut with eps_us=%v folds=%d, want %v and %d",
			c.EpsUs, c.Folds, o.EpsUs, o.Folds)
	}
	t := newTrials(c.Configs(), &o, o.EachBlock)
	t.solveGrams(c)
	return t.selection(c.Gamma), nil
}

// gramTrial is a trial as Gram matrices: the training rows, and the rows on which each
// configuration is scored (nil: not scored).
type gramTrial struct {
	train *Gram
	test  []*Gram
}

// gramTrials returns the Gram matrices of the trials in t.list, in its order.
func (t *trials) gramTrials(c *Cells) []gramTrial {
	factor := c.Balance(t.o.MinCellRows)
	perConfig := func(keep func(CellKey) bool) []*Gram {
		grams := make([]*Gram, len(t.configs))
		for i, label := range t.configs {
			grams[i] = c.Sum(factor, func(key CellKey) bool { return key.Config == label && keep(key) })
		}
		return grams
	}
	totals := perConfig(func(CellKey) bool { return true })
	out := make([]gramTrial, len(t.list))
	for i, one := range t.list {
		if j := int32(one.fold); j >= 0 {
			// Forward fold j trains on what is before block j+1 and is scored on it.
			trains := func(k CellKey) bool { return k.From <= j }
			tested := j + 1
			if t.o.EachBlock {
				trains = func(k CellKey) bool { return k.trainsWithout(j) }
				tested = j
			}
			out[i].train = c.Sum(factor, trains)
			out[i].test = perConfig(func(k CellKey) bool { return k.Block == tested })
			continue
		}
		out[i].train = New(c.P)
		out[i].test = make([]*Gram, len(totals))
		for k, g := range totals {
			if one.leavesOut(k) {
				out[i].test[k] = g
			} else {
				out[i].train.Add(g)
			}
		}
	}
	return out
}

// solveGrams solves and scores every trial at every lambda. Each solution starts from the working
// set of the lambda before.
func (t *trials) solveGrams(c *Cells) {
	grams := t.gramTrials(c)
	solvers := make([]*solver, t.o.Threads())
	par.Each(t.o.Threads(), len(grams), func(worker, i int) {
		if solvers[worker] == nil {
			solvers[worker] = newSolver(c.P, t.o)
		}
		own := solvers[worker]
		g := grams[i]
		own.load(g.train, 0)
		own.cold()
		for _, lambda := range t.o.Lambdas {
			own.solve(lambda)
			beta := make([]float64, c.P)
			own.beta(beta)
			scores := make([]float64, len(g.test))
			for k, test := range g.test {
				scores[k] = math.NaN()
				if test != nil {
					scores[k] = test.Score(beta)
				}
			}
			t.list[i].add(beta, scores)
		}
	})
}

// SelectIntervals scores the lambda grid on interval targets (spec#interval-fit) and returns one
// Selection per variant of d, or the error of ctx. Folds, objectives and ties are those of Select; the score is
// [Bounds.Score].
func (d *Data) SelectIntervals(ctx context.Context, b Bounds, o Options) ([]Selection, error) {
	out := make([]Selection, max(1, len(d.Variants)))
	w := CensoredWeights(d, o)
	plain := -1 // the first variant without columns of its own
	for v := range out {
		isPlain := v < len(d.Variants) && d.same(d.Variants[v])
		if isPlain && plain >= 0 {
			out[v] = out[plain]
			out[v].Gamma = d.gamma(v)
			out[v].Findings = slices.Clone(out[plain].Findings)
			continue
		}
		var err error
		if out[v], err = d.With(v).selectIntervals(ctx, b, w, d.gamma(v), newTrials(d.Configs(), &o, false)); err != nil {
			return nil, err
		}
		if isPlain {
			plain = v
		}
	}
	return out, nil
}

// NestIntervals returns the selection that SelectIntervals returns for these data with the nested
// choices, given the one without them (Options.SkipNested), whose trials are not solved again.
func (d *Data) NestIntervals(ctx context.Context, quick Selection, b Bounds, o Options) (Selection, error) {
	t := newTrials(d.Configs(), &o, false)
	// newTrials appends pairs of configurations after the others, so that the trials of quick are the first.
	for k, solved := range quick.intervals.list {
		*t.list[k] = *solved
	}
	return d.selectIntervals(ctx, b, CensoredWeights(d, o), quick.Gamma, t)
}

// selectIntervals solves the trials that are not solved yet and returns the choice.
func (d *Data) selectIntervals(ctx context.Context, b Bounds, w []float64, gamma float64, t *trials) (Selection, error) {
	folds, found, err := Folds(d, *t.o)
	if err != nil {
		return Selection{}, err
	}
	if err := t.solveIntervals(ctx, d, b, w, folds); err != nil {
		return Selection{}, err
	}
	s := t.selection(gamma)
	s.Findings = append(found, s.Findings...)
	s.intervals = t
	return s, nil
}

// solveIntervals solves every trial that has no solution yet at every lambda on its rows: the loss of
// an interval is not a quadratic, so Gram matrices do not suffice.
func (t *trials) solveIntervals(ctx context.Context, d *Data, b Bounds, w []float64, folds []Fold) error {
	return par.Try(ctx, t.o.Threads(), len(t.list), func(i int) error {
		one := t.list[i]
		if one.betas != nil {
			return nil
		}
		train, test := t.intervalRows(d, one, folds)
		c := newCensored(d, b, w, train, t.o)
		for _, lambda := range t.o.Lambdas {
			if _, err := c.fit(lambda); err != nil {
				return fmt.Errorf("%d training rows: %w", len(train), err)
			}
			beta := slices.Clone(c.at.beta)
			scores := make([]float64, len(test))
			for k, rows := range test {
				scores[k] = math.NaN()
				if rows != nil {
					scores[k] = b.Score(d, w, rows, t.o.SpreadUs, func(i int32) float64 { return Dot(d.Row(int(i)), beta) })
				}
			}
			one.add(beta, scores)
		}
		return nil
	}, nil)
}

// intervalRows returns the rows that a trial trains on and the sets of rows that it is scored on:
// for a fold its validation rows as one set, otherwise one set for each held-out configuration.
func (t *trials) intervalRows(d *Data, one *trial, folds []Fold) (train []int32, test [][]int32) {
	if one.fold >= 0 {
		return folds[one.fold].Train, [][]int32{folds[one.fold].Test}
	}
	test = make([][]int32, len(t.configs))
	for i, c := range d.Config {
		k := 0
		for t.configs[k] != c {
			k++
		}
		if one.leavesOut(k) {
			test[k] = append(test[k], int32(i))
		} else {
			train = append(train, int32(i))
		}
	}
	return train, test
}
