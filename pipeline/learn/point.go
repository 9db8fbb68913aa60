package learn

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/replay"
)

// assess simulates the load of a point under its harness and compares means. The
// rows of its normal equations weigh as much as relative errors of pointTPOTSD
// weigh beside those of a request, and linearly (Huber) from robustAt errors on.
func (p *Point) assess(cfg sim.Config, reqs []sim.Request, theta []float64, derivatives bool) (*replay.Score, error) {
	cfg.Gradient = derivatives
	m, err := replay.MeansOf(cfg, reqs)
	if err != nil {
		return &replay.Score{}, err
	}
	s := &replay.Score{Pairs: 2, Steps: m.Steps}
	if derivatives {
		s.Blocks = []*gram.Gram{gram.New(len(m.TPOTBy))}
	}
	for _, v := range []struct {
		got, want, sd float64
		by            []float64
	}{{m.TPOTMs, p.TPOTMs, pointTPOTSD, m.TPOTBy}, {m.TTFTMs, p.TTFTMs, pointTTFTSD, m.TTFTBy}} {
		if !(v.want > 0) {
			continue
		}
		off, weight := portable.Log(v.got/v.want), pointTPOTSD/v.sd
		if !isNumber(off) {
			off = math.Copysign(mostOff, off)
		}
		pull := math.Min(1, robustAt*v.sd/math.Abs(off))
		s.Objective += float64(weight * weight * off * off * pull * (1 - float64(pull/2)))
		if derivatives {
			s.Blocks[0].AddRow(pull*weight*weight/(v.want*v.want), v.by, v.want-v.got+gram.Dot(v.by, theta))
		}
	}
	s.Paired = s.Objective
	return s, nil
}

// mostOff is the log ratio of a load that a candidate does not finish.
const mostOff = 4.6

// predicted is what a benchmark of a load would print.
func predicted(cfg sim.Config, reqs []sim.Request) (Point, error) {
	m, err := replay.MeansOf(cfg, reqs)
	if err != nil {
		return Point{}, err
	}
	return Point{TTFTMs: m.TTFTMs, TPOTMs: m.TPOTMs}, nil
}

// PredictPoint is what a benchmark of the load would print with a coefficient set.
func (l *Load) PredictPoint(set *coeff.Set) (Point, error) {
	m, err := newModel(&Prior{Name: "set", Set: set}, l.Deployment)
	if err != nil {
		return Point{}, err
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		return Point{}, err
	}
	return predicted(cfg, l.Requests)
}
