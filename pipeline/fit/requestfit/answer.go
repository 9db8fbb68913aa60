package requestfit

// This file turns the final candidate of a fit into its answer: the covariance of the free terms after
// the evidence, intervals and evidence of each term, and the directions in coefficient space that the
// measured times determine.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"gonum.org/v1/gonum/mat"
)

// learned returns the result for the final candidate s. post is the covariance of the free terms after
// the evidence, scatter the random variation of the real server (nil for load levels).
func (l *learner) learned(s *state, post []float64, scatter *result.RequestScatter) *Learned {
	n := len(l.m.free)
	directions := l.directions(s.values, post)
	level := &result.RequestLevel{
		Prior:          l.m.name,
		Passes:         append([]result.RequestPass{}, l.passes...),
		Objective:      s.objective,
		NoiseFloor:     s.twins,
		Evaluations:    l.calls,
		SimulatedSteps: l.steps.Load(),
		Scatter:        scatter,
		Directions:     []result.LearnedDirection{},
	}
	for _, d := range directions {
		level.Directions = append(level.Directions, d.LearnedDirection)
	}
	if l.seen != nil {
		level.SpanErrorFrac = result.OrNull(l.seen.errors[rowSpan])
		level.TTFTErrorFrac = result.OrNull(l.seen.errors[rowTTFT])
	}
	for _, load := range l.loads {
		level.Loads = append(level.Loads, result.RequestLoad{
			Name:     load.Name,
			Tier:     load.Tier,
			Requests: len(load.Requests) - load.later,
		})
	}
	out := &Learned{Set: l.m.setOf(s.values), Level: level, Names: l.m.names, directions: directions}
	for k := range n {
		out.Covariance = append(out.Covariance, post[k*n:(k+1)*n])
	}
	l.describe(out, s)
	return out
}

// posterior returns the covariance of the free terms after the evidence.
func (l *learner) posterior(e evidence) ([]float64, error) {
	n := len(l.m.free)
	information := make([]float64, n*n)
	for k := range information {
		information[k] = e.sum.G[k]/(e.variance*e.design) + l.m.precision[k]
	}
	return l.m.inverse(information)
}

// inverse inverts an information matrix of the free terms. It returns an error if the matrix is
// singular.
func (m *model) inverse(information []float64) ([]float64, error) {
	out := stat.Inverse(information, len(m.free))
	if out == nil {
		return nil, trace.Errorf(coeff.ImpossibleCoefficient,
			"prior %s: got an information matrix that is singular", m.name).
			WithHint("is every request or load level of the one deployment, and its times in the unit stated?")
	}
	return out, nil
}

// describe sets intervals and evidence of the free terms. A term on which no measured time of any
// load depends counts as known from the prior alone, even if the prior's correlations moved it.
func (l *learner) describe(out *Learned, s *state) {
	n := len(s.values)
	for k, v := range s.values {
		c := l.m.coefficientOf(out.Set, k)
		half := stat.Normal95 * math.Sqrt(out.Covariance[k][k])
		c.CI95 = &[2]float64{math.Max(0, v-half), v + half}
		c.CI95Given = coeff.GivenPrior
		// The share of the prior's variance that the measured times removed.
		share := 1 - out.Covariance[k][k]/(l.m.sd[k]*l.m.sd[k])
		// The derivative of every measured time by this term is 0: all that changed it is the prior.
		if !slices.ContainsFunc(s.blocks, func(b *ridge.Gram) bool { return b.G[k*n+k] > 0 }) {
			share = 0
		}
		switch {
		case share > learnedShare:
			c.Identified = coeff.Within
			c.Evidence = "data"
		case share < 1-learnedShare:
			c.Identified = coeff.PriorOnly
			c.Evidence = "prior"
		default:
			c.Identified = coeff.Within
			c.Evidence = fmt.Sprintf("data %.2f, prior %.2f", share, 1-share)
		}
	}
	out.Set.Covariance = make([][]float64, len(out.Set.Beta))
	for j := range out.Set.Covariance {
		out.Set.Covariance[j] = make([]float64, len(out.Set.Beta))
	}
	for k := range l.m.beta {
		for i := range l.m.beta {
			out.Set.Covariance[l.m.free[k]][l.m.free[i]] = out.Covariance[k][i]
		}
	}
}

// direction is one independent combination of free terms.
type direction struct {
	result.LearnedDirection
	vector []float64 // change of the free terms by one standard error of the answer along it
}

// learnedShare is the share of the prior's variance that requests must remove from a direction, or from
// a term, for it to count as learned from them.
const learnedShare = 0.9

// directions returns independent combinations of the free terms, best determined first: the
// eigenvectors of the posterior covariance in units of the prior. Eigenvalue v means that the
// requests removed 1-v of the prior's variance.
func (l *learner) directions(values, post []float64) []direction {
	n := len(l.m.free)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, append([]float64(nil), l.m.precision...))) {
		return nil
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	// The prior's precision is LL', L lower triangular, so that the prior's covariance of L'theta is 1. The
	// posterior covariance of L'theta is L' post L, with the variances left of the prior's 1 as eigenvalues.
	var half, rest mat.Dense
	half.Mul(lower.T(), mat.NewDense(n, n, append([]float64(nil), post...)))
	rest.Mul(&half, &lower)
	sym := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			sym.SetSym(i, j, (rest.At(i, j)+rest.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(sym, true) {
		return nil
	}
	// An eigenvector is a change of L'theta; terms has the changes of theta, by column.
	var vectors, terms mat.Dense
	eigen.VectorsTo(&vectors)
	// The share of the prior's variance that is left along each direction.
	left := eigen.Values(nil) // ascending
	settleUnlearned(left, &vectors)
	if err := terms.Solve(lower.T(), &vectors); err != nil {
		return nil
	}
	_, shownBy := features.Experiments()
	out := make([]direction, n)
	for k := range n {
		d := &out[k]
		d.Terms = l.mainTerms(&terms, k)
		d.LearnedFrac = math.Min(1, math.Max(0, 1-left[k]))
		d.Learned = d.LearnedFrac >= learnedShare
		if !d.Learned {
			d.Needs = shownBy[d.Terms[0]]
		}
		d.vector = make([]float64, n)
		for j := range n {
			d.vector[j] = math.Sqrt(math.Max(0, left[k])) * terms.At(j, k)
		}
	}
	return out
}

// nothingShare is the share of the prior's variance up to which a direction counts as one of which nothing was
// learned.
const nothingShare = 1e-6

// settleUnlearned chooses one basis of the directions along which nothing was learned. Their eigenvalues are all 1
// but for rounding, so any rotation of them is an answer too, and rounding of the input would decide which. It
// takes the coordinate axis that lies nearest to their space, then the one nearest to what is left of the space
// without it, and so on. values ascend and belong to the columns of vectors; both are changed in place.
func settleUnlearned(values []float64, vectors *mat.Dense) {
	from := len(values)
	for from > 0 && values[from-1] >= 1-nothingShare {
		from--
		values[from] = 1
	}
	if n, to := vectors.Dims(); to > from {
		settleSpace(vectors.Slice(0, n, from, to).(*mat.Dense))
	}
}

// settleSpace replaces the orthonormal columns by others of the same space, made from its nearest axes.
func settleSpace(columns *mat.Dense) {
	n, m := columns.Dims()
	rest := mat.DenseCopyOf(columns) // the space without the vectors that are settled
	for k := range m {
		nearest, length := 0, 0.0
		for j := range n {
			if v := mat.Norm(rest.RowView(j), 2); v > length*(1+1e-6) { // the first of equally near ones
				nearest = j
				length = v
			}
		}
		// The projection of the axis onto the rest, in coordinates of the columns and in those of the space.
		within := mat.NewVecDense(m, nil)
		within.ScaleVec(1/length, rest.RowView(nearest))
		projected := mat.NewVecDense(n, nil)
		projected.MulVec(rest, within)
		var along mat.Dense
		along.Outer(1, projected, within)
		rest.Sub(rest, &along)
		columns.SetCol(k, projected.RawVector().Data)
	}
}

// namedShare is the least share of a direction that the terms named for it make up together.
const namedShare = 0.8

// mainTerms returns the names of the terms that make up most of direction k, the largest first.
func (l *learner) mainTerms(vectors *mat.Dense, k int) (names []string) {
	n := len(l.m.free)
	type part struct {
		name  string
		share float64
	}
	parts, total := make([]part, n), 0.0
	for j := range n {
		v := vectors.At(j, k) / l.m.sd[j]
		parts[j] = part{l.m.names[j], v * v}
		total += v * v
	}
	stat.SortStable(parts, func(a, b part) int { return cmp.Compare(b.share, a.share) })
	sum := 0.0
	for _, p := range parts {
		if sum >= namedShare*total {
			break
		}
		names = append(names, p.name)
		sum += p.share
	}
	return names
}
