package sim

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
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
	l := slices.Concat(set.Covariance...)
	stat.Cholesky(l, n)
	z := make([]float64, n)
	for i := range z {
		z[i] = rng.NormFloat64()
	}
	c := *set
	c.Beta = append([]coeff.Coefficient(nil), set.Beta...)
	fs := features.BetaFeatures(set.SpecVersion)
	for i := range c.Beta {
		for j := 0; j <= i; j++ {
			c.Beta[i].Value += float64(l[i*n+j] * z[j])
		}
		if i < len(fs) && !fs[i].Free {
			c.Beta[i].Value = math.Max(0, c.Beta[i].Value)
		}
	}
	return &c, true
}
