package requestfit

// This file compares the means of a simulated load level with those that a benchmark reported.

import (
	"encoding/binary"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// Point is the mean TTFT and TPOT, ms, that a benchmark reported of a load level.
type Point struct{ TTFTMs, TPOTMs float64 }

// Assumed relative errors of a point: repeated benchmarks differ by 2 % in TPOT. TTFT has twice
// that, because benchmarks do not state how they start and how lengths vary. The points of one
// server differ from a prediction mostly by a common factor; larger errors would keep the fit
// from learning that factor.
const (
	pointTPOTSD = 0.02
	pointTTFTSD = 0.04
)

// assess simulates the load level and returns how its means compare with the measured ones. The
// rows of its normal equations are weighted by pointTPOTSD and pointTTFTSD; errors beyond robustAt
// count linearly (Huber).
func (p *Point) assess(cfg sim.Config, reqs []sim.Request, theta []float64, derivatives bool) (*sim.Score, error) {
	cfg.Gradient = derivatives
	means, err := sim.MeansOf(cfg, reqs)
	if err != nil {
		return &sim.Score{}, err
	}
	return p.compare(means, theta, derivatives), nil
}

// compare returns how simulated means compare with the measured ones, as [Point.assess].
func (p *Point) compare(means *sim.Means, theta []float64, derivatives bool) *sim.Score {
	score := &sim.Score{Pairs: 2, Steps: means.Steps}
	if derivatives {
		score.Blocks = []*ridge.Gram{ridge.New(len(means.TPOTBy))}
	}
	compared := []struct {
		got, want float64   // simulated and measured, ms
		sd        float64   // of the measured one, relative
		by        []float64 // derivatives of got by the simulator's columns
	}{
		{got: means.TPOTMs, want: p.TPOTMs, sd: pointTPOTSD, by: means.TPOTBy},
		{got: means.TTFTMs, want: p.TTFTMs, sd: pointTTFTSD, by: means.TTFTBy},
	}
	for _, mean := range compared {
		if !(mean.want > 0) { // not reported
			continue
		}
		off := math.Log(mean.got / mean.want)
		// Weights are relative to TPOT, whose error is the unit of the objective.
		weight := pointTPOTSD / mean.sd
		if !isNumber(off) { // the simulated server did not finish the load
			off = math.Copysign(mostOff, off)
		}
		// Huber's loss: linear beyond robustAt standard errors.
		pull := math.Min(1, robustAt*mean.sd/math.Abs(off))
		score.Objective += weight * weight * off * off * pull * (1 - pull/2)
		if derivatives {
			// got is linear in the coefficients about theta, so that by.coefficients should be this:
			target := mean.want - mean.got + ridge.Dot(mean.by, theta)
			score.Blocks[0].AddRow(pull*weight*weight/(mean.want*mean.want), mean.by, target)
		}
	}
	score.Paired = score.Objective
	return score
}

// candidate is what the simulated means of a load level depend on beside the level.
type candidate struct {
	prior *Prior
	theta string // bytes of the coefficients on the level's deployment
}

// meansAt returns the means of the load level with the values of the free terms, with their derivatives. It simulates
// each candidate once: a fit, the fit with the share of cached tokens that it finds, and those of the cross-validation
// begin with the same one. done interrupts.
func (l *Load) meansAt(m *model, values []float64, done <-chan struct{}) (*sim.Means, error) {
	var theta []byte
	for _, v := range m.theta(l, values) {
		theta = binary.LittleEndian.AppendUint64(theta, math.Float64bits(v))
	}
	at := candidate{prior: m.prior, theta: string(theta)}
	if known := l.simulated[at]; known != nil {
		return known, nil
	}
	cfg, err := l.config(m, values)
	if err != nil {
		return nil, err
	}
	cfg.Gradient = true
	cfg.Done = done
	means, err := sim.MeansOf(cfg, l.Requests)
	if err != nil {
		return nil, err
	}
	if l.simulated == nil {
		l.simulated = map[candidate]*sim.Means{}
	}
	l.simulated[at] = means
	return means, nil
}

// mostOff is the log ratio that counts as the error of a load level which the simulated server does
// not finish with a candidate: a factor of 100.
const mostOff = 4.6

// PredictPoint predicts the means that a benchmark of the load level would report, with a
// coefficient set.
func (l *Load) PredictPoint(set *coeff.Set) (Point, error) {
	means, err := l.means(&Prior{Name: "set", Set: set})
	return Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}, err
}

// means returns the means of the load level, simulated with the prior's coefficients.
func (l *Load) means(p *Prior) (sim.Means, error) {
	m, err := newModel(p, l.Deployment)
	if err != nil {
		return sim.Means{}, err
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		return sim.Means{}, err
	}
	means, err := sim.MeansOf(cfg, l.Requests)
	if err != nil {
		return sim.Means{}, err
	}
	return *means, nil
}

// fullCache is the ratio of simulated to measured TTFT beyond which a simulated server that ran out
// of KV blocks shows that the measured one did not.
const fullCache = 2

// Full reports whether the prior's server runs out of KV blocks under a load level although the
// measured server, by its TTFT, did not. The stated size of the KV cache is then wrong, not the
// coefficients. It also returns the simulated TTFT.
func (l *Load) Full(p *Prior) (ttftMs float64, full bool, err error) {
	if l.Point == nil {
		return 0, false, nil
	}
	means, err := l.means(p)
	isSlower := l.Point.TTFTMs > 0 && means.TTFTMs > fullCache*l.Point.TTFTMs
	return means.TTFTMs, means.Preemptions > 0 && isSlower, err
}
