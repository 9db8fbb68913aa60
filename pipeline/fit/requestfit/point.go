package requestfit

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// Point is what a benchmark printed of a load: means over its requests, ms.
type Point struct{ TTFTMs, TPOTMs float64 }

// Relative errors that a point has beyond what coefficients can explain: TPOT as
// repeated benchmarks differ, TTFT twice that, because benchmarks do not state their start and
// spread of lengths. Points of a group are off by one factor more than they scatter: a
// larger error leaves that factor unlearned (TestEvalPoints).
const (
	pointTPOTSD = 0.02
	pointTTFTSD = 0.04
)

// assess simulates the load of a point under its harness and compares means. The
// rows of its normal equations weigh as much as relative errors of pointTPOTSD
// weigh against those of a request, and linearly (Huber) from robustAt errors on.
func (p *Point) assess(cfg sim.Config, reqs []sim.Request, theta []float64, derivatives bool) (*sim.Score, error) {
	cfg.Gradient = derivatives
	m, err := sim.MeansOf(cfg, reqs)
	if err != nil {
		return &sim.Score{}, err
	}
	s := &sim.Score{Pairs: 2, Steps: m.Steps}
	if derivatives {
		s.Blocks = []*ridge.Gram{ridge.New(len(m.TPOTBy))}
	}
	for _, v := range []struct {
		got, want, sd float64
		by            []float64
	}{{m.TPOTMs, p.TPOTMs, pointTPOTSD, m.TPOTBy}, {m.TTFTMs, p.TTFTMs, pointTTFTSD, m.TTFTBy}} {
		if !(v.want > 0) {
			continue
		}
		off := math.Log(v.got / v.want)
		weight := pointTPOTSD / v.sd
		if !isNumber(off) {
			off = math.Copysign(mostOff, off)
		}
		pull := math.Min(1, robustAt*v.sd/math.Abs(off))
		s.Objective += weight * weight * off * off * pull * (1 - pull/2)
		if derivatives {
			s.Blocks[0].AddRow(pull*weight*weight/(v.want*v.want), v.by, v.want-v.got+ridge.Dot(v.by, theta))
		}
	}
	s.Paired = s.Objective
	return s, nil
}

// mostOff is the log ratio of a load that a candidate does not finish.
const mostOff = 4.6

// PredictPoint predicts what a benchmark of the load would print, with a coefficient set.
func (l *Load) PredictPoint(set *coeff.Set) (Point, error) {
	means, err := l.means(&Prior{Name: "set", Set: set})
	return Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}, err
}

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

// fullCache is how many times the measured TTFT a simulated one must be, where the
// simulated server ran out of KV blocks, to show that the measured one did not.
const fullCache = 2

// Full reports that the prior's server runs out of KV blocks under a load level, and queues
// requests, where the measured server by its TTFT did not: then the size of the cache is
// wrong, not the coefficients. It also returns the simulated TTFT.
func (l *Load) Full(p *Prior) (ttftMs float64, full bool, err error) {
	if l.Point == nil {
		return 0, false, nil
	}
	means, err := l.means(p)
	isSlower := l.Point.TTFTMs > 0 && means.TTFTMs > fullCache*l.Point.TTFTMs
	return means.TTFTMs, means.Preemptions > 0 && isSlower, err
}
