package ridge

// This file describes which terms the rows separate: condition number, variance inflation, and the
// groups of terms of which only a sum is determined.

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Diagnosis describes how well the rows separate the terms, from the scaled Gram matrix before any
// penalty.
type Diagnosis struct {
	Condition float64   // largest over smallest eigenvalue of non-zero columns; +Inf when singular
	VIF       []float64 // variance inflation of each term against all others; +Inf when an exact combination, NaN for a zero column
	Null      []NullGroup
	Err       error // why nothing is known; nil
}

// NullGroup is a set of terms that the rows do not separate: some combinations of
// their shares leave every prediction (nearly) unchanged.
type NullGroup struct {
	Terms      []int       // columns, ascending
	Dim        int         // independent combinations that are not known
	Eigenvalue float64     // smallest, relative to the largest of the Gram
	Directions [][]float64 // Dim vectors over Terms, in coefficients (not shares), largest entry 1
	SumUs      float64     // what the terms explain together at the fit: sum gamma_j*ybar
}

// Diagnose returns diagnostics of the Gram on which a fit was made.
func (g *Gram) Diagnose(f Fit) Diagnosis {
	idx := nonZeroColumns(f.Scale)
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
	if values[0] > 1e-15*top { // otherwise 0 but for rounding
		d.Condition = top / values[0]
	}
	for r, j := range idx {
		d.VIF[j] = inflation(values, vectors, r)
	}
	d.Null = nullGroups(values, vectors, idx, f)
	return d
}

// scaled returns the Gram matrix of the given columns, scaled to a unit diagonal.
func scaled(g *Gram, f Fit, idx []int) *mat.SymDense {
	a := mat.NewSymDense(len(idx), nil)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			a.SetSym(r, c, g.G[j*g.P+k]/(f.Scale[j]*f.Scale[k]*f.W))
		}
	}
	return a
}

// inflation returns the variance inflation of term r: its entry on the diagonal of the inverse of
// the scaled Gram matrix, +Inf when the term is an exact combination of others.
func inflation(values []float64, vectors *mat.Dense, r int) float64 {
	top := values[len(values)-1]
	var sum float64
	for k, e := range values {
		v := vectors.At(r, k)
		switch {
		case e > 1e-13*top:
			sum += v * v / e
		case v*v > 1e-8: // the term has a part in a direction of eigenvalue 0, beyond rounding
			return math.Inf(1)
		}
	}
	return sum
}

// nullShare is the squared length of a term's part in the null space, or an entry of the projector onto
// it, below which the term is not part of it: rounding, or a small correlation with terms that are.
const nullShare = 0.02

// nullSpace is the directions that the rows do not determine, among the columns that are not all zero.
type nullSpace struct {
	values  []float64  // eigenvalues of the scaled Gram matrix, ascending
	vectors *mat.Dense // its eigenvectors, by column; rows are positions in idx
	dim     int        // the first dim of them are the null space: eigenvalues up to nullTol of the largest
	idx     []int      // columns of the data
	fit     Fit
}

// entry returns entry (a, b) of the projector onto the null space: how strongly terms a and b move
// together in directions that the rows do not determine.
func (n *nullSpace) entry(a, b int) float64 {
	var p float64
	for k := range n.dim {
		p += n.vectors.At(a, k) * n.vectors.At(b, k)
	}
	return p
}

// nullGroups returns the groups of terms that the rows do not separate. Two terms are linked if an
// entry of the projector onto the null space is above nullShare; each connected set is one group.
func nullGroups(values []float64, vectors *mat.Dense, idx []int, f Fit) []NullGroup {
	m := len(idx)
	n := &nullSpace{values: values, vectors: vectors, idx: idx, fit: f}
	for n.dim < m && values[n.dim] <= nullTol*values[m-1] {
		n.dim++
	}
	if n.dim == 0 {
		return nil
	}
	group := link(m, func(a, b int) bool { return math.Abs(n.entry(a, b)) > nullShare })
	var out []NullGroup
	for first := range m {
		if group[first] != first { // not the first term of a group
			continue
		}
		var members []int
		for k, g := range group {
			if g == first {
				members = append(members, k)
			}
		}
		isOutside := len(members) == 1 && n.entry(first, first) < nullShare
		if !isOutside {
			out = append(out, n.group(members))
		}
	}
	return out
}

// link returns for each of m items the smallest item to which it is connected.
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

// group returns the group of the terms at the given positions. A null direction belongs to it if more
// than half of its squared length lies on the group's terms.
func (n *nullSpace) group(members []int) NullGroup {
	out := NullGroup{Eigenvalue: math.Inf(1)}
	for _, k := range members {
		j := n.idx[k]
		out.Terms = append(out.Terms, j)
		out.SumUs += n.fit.Gamma[j] * n.fit.YBar
	}
	for k := range n.dim {
		dir := make([]float64, len(members))
		var length float64 // squared, of the part on the group's terms
		for c, r := range members {
			v := n.vectors.At(r, k)
			length += v * v
			dir[c] = v / n.fit.Scale[n.idx[r]]
		}
		if length < 0.5 {
			continue
		}
		out.Dim++
		out.Eigenvalue = math.Min(out.Eigenvalue, math.Max(0, n.values[k])/n.values[len(n.values)-1])
		out.Directions = append(out.Directions, unit(dir))
	}
	return out
}

// unit returns v divided by its entry of largest magnitude.
func unit(v []float64) []float64 {
	big := slices.MaxFunc(v, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	out := make([]float64, len(v))
	for k, x := range v {
		out[k] = x / big
	}
	return out
}
