package autoscale

// This file has what the online estimators have in common: a Kalman filter for the parameters of a
// queueing model, with the identity as transition, whose observations of a window are mean TTFT and
// ITL. NIS is the normalised innovation squared; a window is rejected (gated) if its NIS is too
// large.

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// observer returns the observations, TTFT and ITL in ms, that a queueing model predicts at state x;
// ok is false if it has no answer.
type observer func(x []float64) (z []float64, ok bool)

// verdict is what an online estimator did with a window, as windows.parquet states it.
type verdict string

// The verdicts of filters and of refits.
const (
	accepted        verdict = "accepted"               // the window moved the state
	acceptedOpening verdict = "gate_opened"            // the second in a row beyond the gate: something has changed
	rejectedNIS     verdict = "innovation_too_large"   // for the filter's noise
	rejectedSign    verdict = "parameter_not_positive" // after the update
	// the model has no answer at the window's rate and the filter's state, or one step of the
	// Jacobian away
	rejectedModel verdict = "model_has_no_answer"
	// the last windows do not determine the parameters, so the last good refit is kept
	heldBack verdict = "held_back"
	filling  verdict = "filling" // too few windows yet for a refit
)

// step is the result of an online estimator for one window.
type step struct {
	Window     int // position in the input
	X          []float64
	P          [][]float64 // covariance of X
	Innovation [2]float64  // observed - predicted TTFT and ITL, ms
	NIS        float64     // normalised innovation squared; NaN without a prediction
	Verdict    verdict
}

// Accepted reports whether the window changed the state.
func (s *step) Accepted() bool { return s.Verdict == accepted || s.Verdict == acceptedOpening }

// gaussian is the state of a filter: mean x and covariance p.
type gaussian struct {
	x *mat.VecDense
	p *mat.Dense
}

// copy returns an independent copy.
func (g *gaussian) copy() gaussian { return gaussian{mat.VecDenseCopyOf(g.x), mat.DenseCopyOf(g.p)} }

// state returns a copy of the mean.
func (g *gaussian) state() []float64 { return append([]float64(nil), g.x.RawVector().Data...) }

// rowsOf returns the rows of a matrix.
func rowsOf(m *mat.Dense) [][]float64 {
	n, _ := m.Dims()
	out := make([][]float64, n)
	for i := range out {
		out[i] = mat.Row(nil, i, m)
	}
	return out
}

// differences returns the observations at x and their derivatives by central differences; step is
// the step for a value, change the difference of two observations. failed states where the model
// has no answer; it is "" otherwise.
func differences(
	h observer,
	x []float64,
	step func(v float64) float64,
	change func(up, down float64) float64,
) (hx []float64, j *mat.Dense, failed string) {
	hx, ok := h(x)
	if !ok {
		return nil, nil, "at the state"
	}
	j = mat.NewDense(len(hx), len(x), nil)
	at := slices.Clone(x)
	for c := range x {
		eps := step(x[c])
		at[c] = x[c] + eps
		up, ok1 := h(at)
		at[c] = x[c] - eps
		down, ok2 := h(at)
		at[c] = x[c]
		if !ok1 || !ok2 {
			return hx, nil, "beside the state"
		}
		for r := range hx {
			j.Set(r, c, change(up[r], down[r])/(2*eps))
		}
	}
	return hx, j, ""
}

// innovationOf returns the inverse of S = H P H' + R and the NIS y' S^-1 y of innovation y, where r
// is the diagonal of R. ok is false if S cannot be inverted.
func innovationOf(y []float64, h, p *mat.Dense, r []float64) (sInv *mat.Dense, nis float64, ok bool) {
	m := len(y)
	var s mat.Dense
	s.Product(h, p, h.T())
	for i := range m {
		s.Set(i, i, s.At(i, i)+r[i])
	}
	sInv = mat.NewDense(m, m, nil)
	if sInv.Inverse(&s) != nil {
		return nil, math.NaN(), false
	}
	v := mat.NewVecDense(m, y)
	return sInv, mat.Inner(v, sInv, v), true
}

// cycle does one time update and one measurement update: P grows by q, then x and P are corrected
// by observations z with noise diag(r). It returns the innovation and its NIS. If the model or an
// inverse has no result, failed states which, and g is the state up to there.
func (g *gaussian) cycle(h observer, z []float64, q *mat.Dense, r []float64) (y []float64, nis float64, failed string) {
	g.p.Add(g.p, q)
	hx, j, failed := differences(h, g.state(), func(v float64) float64 {
		return cmp.Or(replicaStep*math.Abs(v), replicaStep)
	},
		func(up, down float64) float64 { return up - down })
	if failed != "" {
		return nil, math.NaN(), failed
	}
	y = make([]float64, len(z))
	for i := range z {
		y[i] = z[i] - hx[i]
	}
	sInv, nis, ok := innovationOf(y, j, g.p, r)
	if !ok {
		return y, math.NaN(), "inverting the innovation's covariance"
	}
	g.correct(y, j, sInv)
	return y, nis, ""
}

// correct does the measurement update for innovation y: K = P H' S^-1, x + K y, (I - K H) P.
func (g *gaussian) correct(y []float64, h, sInv *mat.Dense) {
	var k, kh, rest, p mat.Dense
	k.Product(g.p, h.T(), sInv)
	var step mat.VecDense
	step.MulVec(&k, mat.NewVecDense(len(y), y))
	g.x.AddVec(g.x, &step)
	kh.Mul(&k, h)
	n, _ := g.p.Dims()
	rest.Sub(scaledIdentity(n, 1), &kh)
	p.Mul(&rest, g.p)
	g.p = &p
}
