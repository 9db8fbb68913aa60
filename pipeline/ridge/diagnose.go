package ridge

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
)

// Diagnosis is what the scaled Gram says about the terms before any penalty.
type Diagnosis struct {
	Condition float64   // largest over smallest eigenvalue of non-zero columns; +Inf when singular
	VIF       []float64 // variance inflation of each term against all others; +Inf when an exact combination, NaN for a zero column
	Null      []NullGroup
	Err       error // why nothing is known; nil
}

// NullGroup is a set of terms the rows cannot tell apart: some combinations of
// their shares leave every prediction (nearly) unchanged.
type NullGroup struct {
	Terms      []int       // columns, ascending
	Dim        int         // independent combinations that are not known
	Eigenvalue float64     // smallest, relative to the largest of the Gram
	Directions [][]float64 // Dim vectors over Terms, in coefficients (not shares), largest entry 1
	SumUs      float64     // what the terms explain together at the fit: sum gamma_j*ybar
}

// Diagnose examines the Gram a fit was made on.
func (g *Gram) Diagnose(f Fit) Diagnosis {
	idx := NonZero(f.Scale)
	d := Diagnosis{VIF: make([]float64, g.P), Condition: math.NaN()}
	for j := range d.VIF {
		d.VIF[j] = math.NaN()
	}
	if len(idx) == 0 {
		return d
	}
	values, vectors, err := Eigen(scaled(g, f, idx))
	if err != nil {
		d.Err = err
		return d
	}
	top := values[len(values)-1]
	d.Condition = math.Inf(1)
	if values[0] > 1e-15*top {
		d.Condition = top / values[0]
	}
	for r, j := range idx {
		d.VIF[j] = inflation(values, vectors, r)
	}
	d.Null = nullGroups(values, vectors, idx, f)
	return d
}

// scaled is the Gram of the given columns with unit diagonal.
func scaled(g *Gram, f Fit, idx []int) *mat.SymDense {
	a := mat.NewSymDense(len(idx), nil)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			a.SetSym(r, c, g.G[j*g.P+k]/(f.Scale[j]*f.Scale[k]*f.W))
		}
	}
	return a
}

// inflation is the diagonal of the inverse of the unit-diagonal Gram.
func inflation(values []float64, vectors *mat.Dense, r int) float64 {
	top := values[len(values)-1]
	var sum float64
	for k, e := range values {
		v := vectors.At(r, k)
		switch {
		case e > 1e-13*top:
			sum += v * v / e
		case v*v > 1e-8:
			return math.Inf(1)
		}
	}
	return sum
}

// nullGroups links terms that share a null direction (an entry of the null
// space's projector above 0.02) and reports each connected set.
func nullGroups(values []float64, vectors *mat.Dense, idx []int, f Fit) []NullGroup {
	m := len(idx)
	top := values[m-1]
	null := 0
	for null < m && values[null] <= NullTol*top {
		null++
	}
	if null == 0 {
		return nil
	}
	group := link(m, func(a, b int) bool {
		var p float64
		for k := range null {
			p += vectors.At(a, k) * vectors.At(b, k)
		}
		return math.Abs(p) > 0.02
	})
	var out []NullGroup
	for first := range m {
		if group[first] == first && !isOutside(group, first, vectors, null) {
			out = append(out, newNullGroup(group, first, values, vectors, null, idx, f))
		}
	}
	return out
}

// link labels each of m items with the smallest item it is connected to.
func link(m int, joined func(a, b int) bool) []int {
	label := make([]int, m)
	for a := range m {
		label[a] = a
		for b := range a {
			if label[b] != label[a] && joined(a, b) {
				from := max(label[a], label[b])
				to := min(label[a], label[b])
				for k := range a + 1 {
					if label[k] == from {
						label[k] = to
					}
				}
			}
		}
	}
	return label
}

// isOutside reports a term outside the null space.
func isOutside(group []int, first int, vectors *mat.Dense, null int) bool {
	for k, g := range group {
		if g == first && k != first {
			return false
		}
	}
	var p float64
	for k := range null {
		p += vectors.At(first, k) * vectors.At(first, k)
	}
	return p < 0.02
}

func newNullGroup(group []int, first int, values []float64, vectors *mat.Dense, null int, idx []int, f Fit) NullGroup {
	out := NullGroup{Eigenvalue: math.Inf(1)}
	var rows []int
	for k, g := range group {
		if g == first {
			rows = append(rows, k)
			out.Terms = append(out.Terms, idx[k])
			out.SumUs += f.Gamma[idx[k]] * f.YBar
		}
	}
	for k := range null {
		dir := make([]float64, len(rows))
		var mass float64
		for c, r := range rows {
			v := vectors.At(r, k)
			mass += v * v
			dir[c] = v / f.Scale[idx[r]]
		}
		if mass < 0.5 {
			continue
		}
		out.Dim++
		out.Eigenvalue = math.Min(out.Eigenvalue, math.Max(0, values[k])/values[len(values)-1])
		out.Directions = append(out.Directions, unit(dir))
	}
	return out
}

// unit divides by the entry of largest size.
func unit(v []float64) []float64 {
	big := slices.MaxFunc(v, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	return stat.Map(v, func(x float64) float64 { return x / big })
}

// Proposal says what one more experiment would show.
type Proposal struct {
	Index  int       // position in the candidates
	LogDet float64   // gain of log det of the information: larger is better
	Shrink []float64 // per term, standard error after over before; 1: nothing learned, NaN: no such column
}

// proposeRidge is the prior information of a term, relative to what the whole
// pool would say about it: it keeps terms without rows comparable.
const proposeRidge = 1e-9

// Propose ranks candidate experiments by D-optimality: what adding the rows of
// each candidate Gram to the base does to the determinant of the information
// and to each term's standard error. Base and candidates carry the same kind of
// weights (1/variance up to one factor, e.g. unbalanced relative weights).
func (base *Gram) Propose(candidates []*Gram) []Proposal {
	p := base.P
	pool := New(p)
	pool.Add(base)
	for _, c := range candidates {
		pool.Add(c)
	}
	scale := make([]float64, p)
	for j := range scale {
		scale[j] = math.Sqrt(pool.G[j*p+j])
	}
	idx := NonZero(scale)
	logBefore, before := information(base, nil, scale, idx)
	var out []Proposal
	for k, c := range candidates {
		logAfter, after := information(base, c, scale, idx)
		prop := Proposal{Index: k, LogDet: logAfter - logBefore, Shrink: make([]float64, p)}
		for j := range prop.Shrink {
			prop.Shrink[j] = math.NaN()
		}
		for r, j := range idx {
			prop.Shrink[j] = math.Sqrt(after[r] / before[r])
		}
		out = append(out, prop)
	}
	stat.SortStable(out, func(a, b Proposal) int { return cmp.Compare(b.LogDet, a.LogDet) })
	return out
}

// information is the log determinant and the diagonal of the inverse of the
// scaled information of one or two Grams.
func information(a, b *Gram, scale []float64, idx []int) (logDet float64, variance []float64) {
	m := len(idx)
	l := make([]float64, m*m)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			v := a.G[j*a.P+k]
			if b != nil {
				v += b.G[j*a.P+k]
			}
			l[r*m+c] = v / (scale[j] * scale[k])
		}
		l[r*m+r] += proposeRidge
	}
	if stat.Cholesky(l, m) < m {
		panic("ridge: information matrix is not positive definite")
	}
	inv := stat.CholeskyInverse(l, m)
	for r := range m {
		logDet += 2 * math.Log(l[r*m+r])
		variance = append(variance, inv[r*m+r])
	}
	return logDet, variance
}

// identifiedShare is the v_j under which a term does not vary inside a
// configuration (spec#identified).
const identifiedShare = 1e-6

// WithinVariation is, per configuration (in d.Configs order) and term, the share
// v_j = sum w(x - mean_w)^2/sum w x^2 of a column that varies inside the
// configuration; NaN for an all-zero column. w nil: the rows' factors.
func (d *Data) WithinVariation(w []float64) [][]float64 {
	if w == nil {
		w = d.factors()
	}
	configs := d.Configs()
	rows := make([][]int32, len(configs))
	k := 0
	for i, c := range d.Config {
		if configs[k] != c {
			k, _ = slices.BinarySearch(configs, c)
		}
		rows[k] = append(rows[k], int32(i))
	}
	out := make([][]float64, len(configs))
	par.Each(0, len(configs), func(_, k int) { out[k] = variation(d, w, rows[k]) })
	return out
}

func variation(d *Data, w []float64, rows []int32) []float64 {
	mean := make([]float64, d.P)
	square := make([]float64, d.P)
	spread := make([]float64, d.P)
	var total float64
	for _, i := range rows {
		total += w[i]
	}
	for _, i := range rows {
		for j, x := range d.Row(int(i)) {
			mean[j] += w[i] * x / total
			square[j] += w[i] * x * x
		}
	}
	for _, i := range rows {
		for j, x := range d.Row(int(i)) {
			spread[j] += w[i] * (x - mean[j]) * (x - mean[j])
		}
	}
	for j := range spread {
		spread[j] /= square[j] // 0/0 is NaN: an all-zero column
	}
	return spread
}

// Identify tags each term from its within-configuration shares: within when it
// varies inside at least one configuration, else between-configs, or prior-only
// with one configuration or an all-zero column (spec#identified).
func Identify(shares [][]float64) []string {
	out := make([]string, len(shares[0]))
	for j := range out {
		out[j] = coeff.PriorOnly
		for _, v := range shares {
			if len(shares) > 1 && v[j] == v[j] && out[j] == coeff.PriorOnly {
				out[j] = coeff.BetweenConfigs
			}
			if v[j] >= identifiedShare {
				out[j] = coeff.Within
			}
		}
	}
	return out
}
