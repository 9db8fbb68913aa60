// Package cv chooses the penalty on folds and on configurations left out.
package ridge

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
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

// choose applies the rules of the choice (spec#selection); a tie goes to the larger lambda.
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
	case o.SmallestWithin && o.Precision != nil:
		k := max(0, slices.IndexFunc(s.Grid, func(p Point) bool { return p.Within <= limit })) // -1: one fold has no error
		s.Objective, s.Index, s.Score = Within, k, s.Grid[k].Within
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

// warn names a choice at the grid's edge and folds that repeat each other.
func (s *Selection) warn() {
	if len(s.Grid) > 1 && (s.Index == 0 || s.Index == len(s.Grid)-1) {
		s.Findings = append(s.Findings, Finding{
			Code: LambdaAtEdge, Config: -1, Run: -1,
			Message: fmt.Sprintf("lambda %g is an end of its grid %g..%g", s.Lambda, s.Grid[0].Lambda, s.Grid[len(s.Grid)-1].Lambda),
		})
	}
	if a, b, ok := repeated(s.Grid[s.Index].Fingerprints); ok {
		s.Findings = append(s.Findings, Finding{
			Code: FoldsNotDistinct, Config: -1, Run: -1,
			Message: fmt.Sprintf("folds %d and %d have the same coefficients", a+1, b+1),
		})
	}
}

// repeated finds two equal fingerprints.
func repeated(prints []string) (a, b int, found bool) {
	for b := range prints {
		if a := slices.Index(prints[:b], prints[b]); a >= 0 {
			return a, b, true
		}
	}
	return 0, 0, false
}
