package ridge

// This file ranks candidate experiments by what their rows would add to those that exist.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// Proposal is what one further experiment would add to the information of a fit.
type Proposal struct {
	Index  int       // position in the candidates
	LogDet float64   // gain of log det of the information: larger is better
	Shrink []float64 // per term, standard error after over before; 1: nothing learned, NaN: no such column
}

// proposeRidge is the information that every term has without rows, relative to that of all
// candidates together. It keeps the determinants finite and comparable.
const proposeRidge = 1e-9

// Propose returns candidate experiments ranked by D-optimality: how much the rows of each candidate
// Gram matrix, added to the base, raise the determinant of the information, and how much they
// shrink each term's standard error. Base and candidates need the same kind of weights (1/variance
// up to one factor, for instance unbalanced relative weights).
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
	idx := nonZeroColumns(scale)
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

// information returns the log determinant of the scaled information of a, or of a and b together (b may
// be nil), and the diagonal of its inverse: the variances of the terms. scale are the scales of all
// columns, idx the columns that are used.
func information(a, b *Gram, scale []float64, idx []int) (logDet float64, variance []float64) {
	m := len(idx)
	chol := make([]float64, m*m)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			entry := a.G[j*a.P+k]
			if b != nil {
				entry += b.G[j*a.P+k]
			}
			chol[r*m+c] = entry / (scale[j] * scale[k])
		}
		chol[r*m+r] += proposeRidge
	}
	if stat.Cholesky(chol, m) < m {
		panic("ridge: information matrix is not positive definite")
	}
	inv := stat.CholeskyInverse(chol, m)
	for r := range m {
		logDet += 2 * math.Log(chol[r*m+r])
		variance = append(variance, inv[r*m+r])
	}
	return logDet, variance
}
