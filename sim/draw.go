package sim

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// DrawBeta draws step-time coefficients from the set's covariance around its
// values and returns a copy of the set with them. Terms with a sign are kept at
// 0 or above. A set without a covariance is returned as it is; ok is false then.
func DrawBeta(set *coeff.Set, rng *rand.Rand) (drawn *coeff.Set, ok bool) {
	n := len(set.Beta)
	if len(set.Covariance) != n || n == 0 {
		return set, false
	}
	l := cholesky(set.Covariance)
	z := make([]float64, n)
	for i := range z {
		z[i] = rng.NormFloat64()
	}
	c := *set
	c.Beta = append([]coeff.Coefficient(nil), set.Beta...)
	fs := features.BetaFeatures(set.SpecVersion)
	for i := range c.Beta {
		for j := 0; j <= i; j++ {
			c.Beta[i].Value += l[i][j] * z[j]
		}
		if i < len(fs) && !fs[i].Free {
			c.Beta[i].Value = math.Max(0, c.Beta[i].Value)
		}
	}
	return &c, true
}

// cholesky is the lower factor of a positive semidefinite matrix; a pivot that
// is not positive leaves its column 0.
func cholesky(a [][]float64) [][]float64 {
	n := len(a)
	l := make([][]float64, n)
	for i := range l {
		l[i] = make([]float64, n)
		for j := 0; j <= i; j++ {
			sum := a[i][j]
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			switch {
			case i == j && sum > 0:
				l[i][i] = math.Sqrt(sum)
			case i != j && l[j][j] > 0:
				l[i][j] = sum / l[j][j]
			}
		}
	}
	return l
}

// SetNoise is the noise of a set's residual quantiles; nil when it has none.
func SetNoise(set *coeff.Set) *Noise {
	n := &Noise{}
	for _, r := range set.Residuals {
		var q []Quantile
		for _, p := range r.Quantiles {
			q = append(q, Quantile{Q: p[0], Ratio: p[1]})
		}
		switch r.Regime {
		case RegimeDecode:
			n.Decode = q
		case RegimePrefill:
			n.Prefill = q
		case RegimeMixed:
			n.Mixed = q
		}
	}
	if len(set.Residuals) == 0 {
		return nil
	}
	return n
}
