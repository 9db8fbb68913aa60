package ridge

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// eigen is the spectrum of a symmetric matrix, ascending, with its vectors as
// columns; the sign of each vector makes its largest entry positive.
func eigen(a *mat.SymDense) ([]float64, *mat.Dense) {
	m := a.SymmetricDim()
	var e mat.EigenSym
	if !e.Factorize(a, true) {
		panic("ridge: symmetric eigenvalues did not converge")
	}
	var v mat.Dense
	e.VectorsTo(&v)
	for k := range m {
		big := 0
		for r := range m {
			if math.Abs(v.At(r, k)) > math.Abs(v.At(big, k))*(1+1e-9) {
				big = r
			}
		}
		if v.At(big, k) < 0 {
			for r := range m {
				v.Set(r, k, -v.At(r, k))
			}
		}
	}
	return e.Values(nil), &v
}
