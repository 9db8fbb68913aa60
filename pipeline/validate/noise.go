package validate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
)

// noiseMinRows: a regime with fewer one-step rows gets no noise.
const noiseMinRows = 10

// noiseLevels are the probabilities of the corrected residuals. The draws are
// linear between levels, so they must be dense where the quantiles run away: one
// step from 0.99 to the maximum would invent mass that no row has.
var noiseLevels = func() []float64 {
	var levels []float64
	for k := 0; k <= 196; k++ {
		levels = append(levels, float64(k)/200)
	}
	return append(levels, 0.985, 0.9875, 0.99, 0.9925, 0.995, 0.9965, 0.998, 0.999, 0.9995, 1)
}()

// artifactNoise is the residual distribution that the coefficients carry; nil
// when they carry none. Its extremes (probability 0 and 1) are single rows, and
// interpolating towards them would widen the tails: the next quantiles hold there.
func artifactNoise(set *coeff.Set) *sim.Noise {
	n := &sim.Noise{}
	known := false
	for _, r := range set.Residuals {
		var q []sim.Quantile
		for _, p := range r.Quantiles {
			extreme := len(r.Quantiles) > 2 && (p[0] <= 0 || p[0] >= 1)
			if !extreme && (len(q) == 0 || p[0] > q[len(q)-1].Q) {
				q = append(q, sim.Quantile{Q: p[0], Ratio: p[1]})
			}
		}
		known = setNoise(n, r.Regime, q) || known
	}
	if !known {
		return nil
	}
	return n
}

func setNoise(n *sim.Noise, regime string, q []sim.Quantile) bool {
	if len(q) == 0 || q[0].Ratio <= 0 {
		return false
	}
	switch regime {
	case sim.RegimeDecode:
		n.Decode = q
	case sim.RegimePrefill:
		n.Prefill = q
	case sim.RegimeMixed:
		n.Mixed = q
	default:
		return false
	}
	return true
}

// correctedNoise are the residual ratios of the run's own rows relative to its
// drift curve, so that curve times noise is what was measured. One-step rows
// only: the ratio of a sum over several steps is narrower than that of a step.
// Rows outside [from, to) are left out.
func (t *taught) correctedNoise(from, to int64) *sim.Noise {
	if t.beta == nil {
		return nil
	}
	byRegime := map[rows.Regime][]float64{}
	for i := range t.beta.Kept {
		at := t.beta.TimeNs[i]
		if t.beta.Steps[i] != 1 || at < from || at >= to {
			continue
		}
		r := t.beta.Regime[i]
		byRegime[r] = append(byRegime[r], t.beta.Y[i]/(t.pred[i]*t.drift.At(at)))
	}
	n := &sim.Noise{}
	known := false
	for r := rows.Decode; r <= rows.Mixed; r++ {
		if ratios := byRegime[r]; len(ratios) >= noiseMinRows {
			known = setNoise(n, r.String(), levels(ratios)) || known
		}
	}
	if !known {
		return nil
	}
	return n
}

// levels are the quantiles of the ratios, never decreasing.
func levels(ratios []float64) []sim.Quantile {
	slices.Sort(ratios)
	out := make([]sim.Quantile, len(noiseLevels))
	for k, p := range noiseLevels {
		out[k] = sim.Quantile{Q: p, Ratio: Quantile(ratios, p)}
	}
	return out
}
