package ridge

// This file has the recipe of spec 1.0, kept unchanged so that earlier coefficients can be computed
// again. Nothing of the package's loss, weights and constraints applies to it.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// FrozenPoint is one lambda of the frozen grid.
type FrozenPoint struct {
	Lambda       float64
	FoldRMSE     []float64 // root mean squared error of each fold, unweighted, us
	Mean         float64   // of FoldRMSE, by which lambda is chosen
	Score        float64   // mean over folds of RMSE/sd(y), by which gamma is chosen
	Fingerprints []string  // of the folds' coefficients
}

// FrozenFit is the outcome of the frozen recipe of spec 1.0: plain ridge regression on raw
// features, with a penalised bias and without sign constraints.
type FrozenFit struct {
	Grid       []FrozenPoint
	Index      int // of the chosen point of Grid
	Lambda     float64
	Beta       []float64 // fitted on all rows at Lambda
	DF         float64   // sum s^2/(s^2+lambda) over the singular values of sqrt(W)X
	Overfitted bool      // DF over configurations > mostFrozenDF
	Findings   []Finding
}

// FitFrozen returns the recipe of spec 1.0 (spec#frozen-recipe): beta = (X'WX + lambda I)^-1 X'Wy
// with the row factors as W, and the lambda of the smallest mean root mean squared error
// over forward folds.
func (d *Data) FitFrozen(o Options) (FrozenFit, error) {
	// Grid and folds are the recipe's own, whatever the options ask for.
	o.Lambdas = []float64{.001, .01, .1, 1, 10, 100}
	o.EmbargoRows = 0
	folds, found, err := Folds(d, o)
	if err != nil {
		return FrozenFit{}, err
	}
	w := d.factors()
	f := FrozenFit{Findings: found, Grid: make([]FrozenPoint, len(o.Lambdas))}
	if err := f.score(d, o, w, folds); err != nil {
		return FrozenFit{}, err
	}
	f.Lambda = f.Grid[f.Index].Lambda
	all := OfRows(d, w, nil, o.Threads())
	if f.Beta, err = frozenSolve(all, f.Lambda); err != nil {
		return FrozenFit{}, err
	}
	if f.DF, err = frozenDF(all, f.Lambda); err != nil {
		return FrozenFit{}, err
	}
	f.Overfitted = f.DF/float64(len(d.Configs())) > mostFrozenDF
	return f, nil
}

// mostFrozenDF is the number of degrees of freedom for each configuration above which the recipe of spec
// 1.0 warns of overfitting.
const mostFrozenDF = 0.1

// score fits and scores the grid on every fold, and sets Index to the lambda of the smallest mean
// error.
func (f *FrozenFit) score(d *Data, o Options, w []float64, folds []Fold) error {
	for k, lambda := range o.Lambdas {
		f.Grid[k].Lambda = lambda
	}
	for _, fold := range folds {
		g := OfRows(d, w, fold.Train, o.Threads())
		sd := deviation(d.Y, fold.Test)
		for k := range f.Grid {
			p := &f.Grid[k]
			beta, err := frozenSolve(g, p.Lambda)
			if err != nil {
				return err
			}
			rmse := math.Sqrt(squares(d, fold.Test, beta) / float64(len(fold.Test)))
			p.FoldRMSE = append(p.FoldRMSE, rmse)
			p.Score += rmse / sd / float64(len(folds))
			p.Fingerprints = append(p.Fingerprints, Fingerprint(beta))
		}
	}
	for k := range f.Grid {
		f.Grid[k].Mean = stat.Mean(f.Grid[k].FoldRMSE)
		if f.Grid[k].Mean <= f.Grid[f.Index].Mean { // of equal errors the larger lambda
			f.Index = k
		}
	}
	return nil
}

// squares returns the sum of squared errors of beta on the rows, in us^2.
func squares(d *Data, rows []int32, beta []float64) float64 {
	var ss float64
	for _, i := range rows {
		e := d.Y[i] - Dot(d.Row(int(i)), beta)
		ss += e * e
	}
	return ss
}

// deviation returns the standard deviation of y over the rows.
func deviation(y []float64, rows []int32) float64 {
	var m, ss float64
	for _, i := range rows {
		m += y[i] / float64(len(rows))
	}
	for _, i := range rows {
		ss += (y[i] - m) * (y[i] - m)
	}
	return math.Sqrt(ss / float64(len(rows)))
}

// frozenSolve returns the coefficients (G + lambda I)^-1 B of a Gram matrix: by Cholesky, or by
// eigenvalues if the factorisation fails.
func frozenSolve(g *Gram, lambda float64) ([]float64, error) {
	p := g.P
	shifted := make([]float64, p*p)
	copy(shifted, g.G)
	for j := range p {
		shifted[j*p+j] += lambda
	}
	beta := append([]float64(nil), g.B...)
	if stat.Cholesky(shifted, p) == p {
		stat.CholeskySolve(shifted, p, beta)
		return beta, nil
	}
	values, vectors, err := Eigen(Symmetric(g.G, p))
	if err != nil {
		return nil, err
	}
	clear(beta)
	for k, eigenvalue := range values {
		var projection float64
		for j := range p {
			projection += vectors.At(j, k) * g.B[j]
		}
		for j := range p {
			beta[j] += vectors.At(j, k) * projection / (math.Max(eigenvalue, 0) + lambda)
		}
	}
	return beta, nil
}

// frozenDF returns the effective degrees of freedom: sum e/(e+lambda) over the eigenvalues of G.
func frozenDF(g *Gram, lambda float64) (float64, error) {
	values, _, err := Eigen(Symmetric(g.G, g.P))
	if err != nil {
		return 0, err
	}
	var df float64
	for _, e := range values {
		if e > 0 {
			df += e / (e + lambda)
		}
	}
	return df, nil
}
