package sim

// This file varies predicted step times: random noise drawn from a coefficient set's residuals,
// drift over simulated time, and coefficients drawn from their covariance.

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Quantile is one point of a distribution of ratios measured/predicted: the share Q of them is at
// most Ratio.
type Quantile struct{ Q, Ratio float64 }

// Noise multiplies each step time by a random ratio. Ratios are drawn from the measured residuals
// of the step's regime, by linear interpolation between the given quantiles. For a regime without
// quantiles the ratio is 1.
type Noise struct {
	Decode, Prefill, Mixed []Quantile
}

// NoiseOf returns the noise of a coefficient set's residual quantiles, as validation and simulation
// use it; nil if the set has none. The quantiles 0 and 1 are single measurements, and interpolating
// towards them would make the tails too wide. Where a regime has more than two quantiles they are
// dropped, and the outermost other quantiles are used up to the ends.
func NoiseOf(set *coeff.Set) *Noise {
	n := &Noise{}
	for regime, quantiles := range set.Residuals {
		q := n.quantilesOf(regime)
		if q == nil {
			continue
		}
		for _, p := range quantiles {
			if isEnd := p[0] <= 0 || p[0] >= 1; !isEnd || len(quantiles) <= 2 {
				*q = append(*q, Quantile{Q: p[0], Ratio: p[1]})
			}
		}
	}
	if n.Decode == nil && n.Prefill == nil && n.Mixed == nil {
		return nil
	}
	return n
}

// DriftPoint is a factor on step times from FromUs up to the next point.
type DriftPoint struct {
	FromUs int64
	Factor float64
}

// quantilesOf returns the distribution of a regime; nil if there is no such regime.
func (n *Noise) quantilesOf(regime string) *[]Quantile {
	switch regime {
	case coeff.RegimeDecode:
		return &n.Decode
	case coeff.RegimePrefill:
		return &n.Prefill
	case coeff.RegimeMixed:
		return &n.Mixed
	}
	return nil
}

// checkQuantiles returns an error unless the quantiles of each regime increase.
func (n *Noise) checkQuantiles() error {
	for _, regime := range []string{coeff.RegimeDecode, coeff.RegimePrefill, coeff.RegimeMixed} {
		q := *n.quantilesOf(regime)
		for i, p := range q {
			bad := !(p.Q >= 0 && p.Q <= 1) || !(p.Ratio > 0) || math.IsInf(p.Ratio, 0)
			if bad || i > 0 && (p.Q <= q[i-1].Q || p.Ratio < q[i-1].Ratio) {
				return trace.Errorf(CodeBadConfig,
					"noise %s quantile %d: got (%g, %g), want q in [0, 1] increasing and ratios > 0 not decreasing",
					regime, i, p.Q, p.Ratio)
			}
		}
	}
	return nil
}

// draw returns a random ratio for a regime.
func (n *Noise) draw(rng *rand.Rand, regime string) float64 {
	q := *n.quantilesOf(regime)
	if len(q) == 0 {
		return 1
	}
	return RatioAt(q, rng.Float64())
}

// RatioAt returns the ratio at quantile u: linear between the two nearest quantiles of q, and
// constant beyond its ends. It is 1 if q is empty.
func RatioAt(q []Quantile, u float64) float64 {
	if len(q) == 0 {
		return 1
	}
	if u <= q[0].Q {
		return q[0].Ratio
	}
	for i := 1; i < len(q); i++ {
		if u <= q[i].Q {
			f := (u - q[i-1].Q) / (q[i].Q - q[i-1].Q)
			return q[i-1].Ratio + f*(q[i].Ratio-q[i-1].Ratio)
		}
	}
	return q[len(q)-1].Ratio
}

// driftCursor evaluates a drift curve at times that never decrease.
type driftCursor struct {
	points []DriftPoint
	next   int
	factor float64
}

// newDriftCursor returns a cursor at time 0, where the factor is 1 unless a point states another.
func newDriftCursor(points []DriftPoint) driftCursor { return driftCursor{points: points, factor: 1} }

// factorAt returns the factor on step times at a time of us microseconds, which must not be before
// that of the previous call.
func (d *driftCursor) factorAt(us int64) float64 {
	for d.next < len(d.points) && d.points[d.next].FromUs <= us {
		d.factor = d.points[d.next].Factor
		d.next++
	}
	return d.factor
}

// DrawBeta returns a copy of the set with step-time coefficients drawn from a normal distribution
// with the set's covariance. Coefficients that must not be negative are cut at 0. A set without a
// covariance is returned unchanged, and ok is false.
func DrawBeta(set *coeff.Set, rng *rand.Rand) (drawn *coeff.Set, ok bool) {
	terms := len(set.Beta)
	if len(set.Covariance) != terms || terms == 0 {
		return set, false
	}
	factor := slices.Concat(set.Covariance...)
	// With the Cholesky factor L of the covariance, mean + L z has that covariance for independent
	// standard normal z.
	stat.Cholesky(factor, terms)
	normal := make([]float64, terms)
	for i := range normal {
		normal[i] = rng.NormFloat64()
	}
	copied := *set
	copied.Beta = append([]coeff.Coefficient(nil), set.Beta...)
	ofTerm := features.BetaFeatures(set.SpecVersion)
	for i := range copied.Beta {
		for j := 0; j <= i; j++ {
			copied.Beta[i].Value += factor[i*terms+j] * normal[j]
		}
		if i < len(ofTerm) && !ofTerm[i].Free {
			copied.Beta[i].Value = math.Max(0, copied.Beta[i].Value)
		}
	}
	return &copied, true
}
