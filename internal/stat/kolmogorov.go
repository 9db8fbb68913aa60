package stat

// This file has the Kolmogorov-Smirnov distance of two samples with its p-values.

import (
	"math"
	"slices"
)

// ks is the result of a two-sided two-sample Kolmogorov-Smirnov comparison of the samples a and b.
type ks struct {
	D           float64 // largest difference of the two ECDFs (empirical distribution functions)
	N, M        int     // sizes of a and b
	At          float64 // the value where D occurs, in the samples' unit
	AShare      float64 // ECDF of a at At
	BShare      float64 // ECDF of b at At
	PAsymptotic float64 // Kolmogorov limit at sqrt(nm/(n+m))*D
	distance    int64   // D*N*M, a whole number
}

// maxExactPairs bounds n*m for the exact p-value, whose cost is n*m additions.
const maxExactPairs = 16_000_000

// KolmogorovSmirnov returns the comparison of two samples, which must not be empty; it does not
// change them. The distance is taken after all observations equal to a value, in both samples, so
// that ties cannot produce a gap that neither distribution has. Of several equal maxima it returns
// the first. Counts are integers, so that the distance is exact and selects the paths that PExact
// counts; gonum's distance adds up rounded shares, and has neither the place of the maximum nor a
// p-value.
//
// Source: Hodges, Ark. Mat. 3 (1958) for the lattice-path count behind PExact.
func KolmogorovSmirnov(a, b []float64) ks {
	a, b = Sorted(a), Sorted(b)
	k := ks{N: len(a), M: len(b)}
	n, m := int64(len(a)), int64(len(b))
	best := int64(-1)
	walk(a, b, func(i, j int, v float64) {
		if d := abs64(int64(i)*m - int64(j)*n); d > best {
			best, k.At = d, v
			k.AShare = float64(i) / float64(n)
			k.BShare = float64(j) / float64(m)
		}
	})
	k.D = math.Abs(k.AShare - k.BShare)
	k.PAsymptotic = KolmogorovSurvival(math.Sqrt(effectiveN(k.N, k.M)) * k.D)
	k.distance = best
	return k
}

// PExact returns the exact p-value, without a correction for ties; NaN above maxExactPairs.
func (k ks) PExact() float64 { return exactP(int64(k.N), int64(k.M), k.distance) }

// Distance returns the Kolmogorov-Smirnov distance of two samples in any order: the largest
// difference of their distribution functions.
func Distance(a, b []float64) float64 {
	a, b = Sorted(a), Sorted(b)
	d := 0.0
	walk(a, b, func(i, j int, _ float64) {
		d = max(d, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	})
	return d
}

// effectiveN returns nm/(n+m).
func effectiveN(n, m int) float64 {
	return float64(n) * float64(m) / float64(n+m)
}

// KolmogorovSurvival returns P(K >= x) for the Kolmogorov distribution, the limit of sqrt(nm/(n+m))
// times the distance. Below 1.18 the theta-function form converges, above it the alternating one,
// both to double precision within a few terms.
func KolmogorovSurvival(x float64) float64 {
	switch {
	case x <= 0:
		return 1
	case x < 1.18:
		sum := 0.0
		for k := 1; k <= 8; k++ {
			odd := float64(2*k - 1)
			sum += math.Exp(-odd * odd * math.Pi * math.Pi / (8 * x * x))
		}
		return 1 - math.Sqrt(2*math.Pi)/x*sum
	}
	sum, sign := 0.0, 1.0
	for k := 1; k <= 20; k++ {
		sum += sign * math.Exp(-2*float64(k)*float64(k)*x*x)
		sign = -sign
	}
	return 2 * sum
}

// exactP returns the share of the lattice paths from (0,0) to (n,m) that somewhere
// reach |i*m - j*n| >= dist. q(i,j), the share among the paths through (i,j) that
// did so up to there, is the mean of its two predecessors weighted by i and j:
// a sum of non-negative terms, so that small p-values keep their digits. Of a row only
// the j between the two borders are visited: beyond them q is 1.
//
// Each value of a row waits for the division of the one before it. Four rows are therefore computed
// together, each one column behind the row above it, which takes a fifth of the time.
func exactP(n, m, dist int64) float64 {
	if n*m > maxExactPairs {
		return math.NaN()
	}
	if dist <= 0 {
		return 1
	}
	q := slices.Repeat([]float64{1}, int(m+1)) // by j: q(i-1, j), from the j that was visited on q(i, j)
	clear(q[:min(m, (dist-1)/n)+1])            // row 0, whose only path is straight
	for i := int64(1); i <= n; {
		var rows [4]latticeRow
		count := min(int64(len(rows)), n-i+1)
		// Of row i+k, the columns between from-k and to-k are computed together with those of the other rows.
		from, to := int64(0), m
		for k := range count {
			r := newLatticeRow(i+k, n, m, dist)
			from, to = max(from, r.next+k), min(to, r.last+k)
			rows[k] = r
		}
		if count == int64(len(rows)) && from <= to {
			for k := range count {
				rows[k].advance(q, from-k)
			}
			advanceTogether(q, &rows, to-from+1)
		}
		for k := range count {
			rows[k].advance(q, rows[k].last+1)
		}
		i += count
	}
	return q[m]
}

// latticeRow is row i of the lattice of exactP, of which the columns from next to last are not computed yet.
type latticeRow struct {
	i          float64
	next, last int64
	left       float64 // q(i, next-1)
}

// newLatticeRow returns row i, whose columns are the j with |i*m - j*n| < dist.
func newLatticeRow(i, n, m, dist int64) latticeRow {
	r := latticeRow{i: float64(i), last: min(m, (i*m+dist-1)/n)}
	if i*m >= dist {
		r.next, r.left = (i*m-dist)/n+1, 1
	}
	return r
}

// advance computes the columns below end.
func (r *latticeRow) advance(q []float64, end int64) {
	for ; r.next < end; r.next++ {
		j := float64(r.next)
		r.left = (r.i*q[r.next] + j*r.left) / (r.i + j)
		q[r.next] = r.left
	}
}

// advanceTogether computes the next columns of four rows, each of which begins one column before the row above it.
func advanceTogether(q []float64, rows *[4]latticeRow, columns int64) {
	a, b, c, d := rows[0], rows[1], rows[2], rows[3]
	for at := a.next; at < a.next+columns; at++ {
		cells := q[at-3 : at+1]
		j := float64(at)
		a.left = (a.i*cells[3] + j*a.left) / (a.i + j)
		b.left = (b.i*cells[2] + (j-1)*b.left) / (b.i + (j - 1))
		c.left = (c.i*cells[1] + (j-2)*c.left) / (c.i + (j - 2))
		d.left = (d.i*cells[0] + (j-3)*d.left) / (d.i + (j - 3))
		cells[3], cells[2], cells[1], cells[0] = a.left, b.left, c.left, d.left
	}
	for k, r := range []latticeRow{a, b, c, d} {
		r.next += columns
		rows[k] = r
	}
}

// walk calls visit with the distinct values v of two sorted samples in order; i and j are the
// numbers of values of a and b that are at most v.
func walk(a, b []float64, visit func(i, j int, v float64)) {
	for i, j := 0, 0; i < len(a) || j < len(b); {
		var v float64
		switch {
		case i == len(a):
			v = b[j]
		case j == len(b):
			v = a[i]
		default:
			v = min(a[i], b[j])
		}
		i, j = past(a, i, v), past(b, j, v)
		visit(i, j, v)
	}
}

// past returns the first index from i on whose value is above v, or len(s).
func past(s []float64, i int, v float64) int {
	for i < len(s) && s[i] <= v {
		i++
	}
	return i
}

// abs64 returns the absolute value.
func abs64(v int64) int64 { return max(v, -v) }
