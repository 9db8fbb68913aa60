package predict

import (
	"context"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
)

// Server is the server that is asked about, bound to its step times, with no load simulated yet: for callers
// that simulate loads of their own. Of the answer only what describes the server is filled.
func (q *Question) Server(ctx context.Context) (*Prediction, *deploy.Deployment, error) {
	d, findings, err := q.Deployment()
	if err != nil {
		return nil, nil, err
	}
	p, err := q.prepare(ctx, d, findings)
	if err != nil {
		return nil, d, err
	}
	return p, d, p.fitCache(d)
}

// Engine is the configuration of a simulation with one seed. Engines of one server share no scratch space.
func (p *Prediction) Engine(seed int64) (sim.Config, error) {
	o := p.options
	cfg, err := p.simulation.With(&o).Engine(seed)
	cfg.Ranks = p.DP > 1
	return cfg, err
}

// normalQuantile90OverMedian is the ratio of the 90th percentile of the size of a normal error to its median.
const normalQuantile90OverMedian = 1.645 / 0.6745

// StatedError is the half width, as a ratio, of the interval that nine in ten measured servers of this kind
// fall into, for TTFT and for TPOT. Of TTFT the median error was measured; it is widened as that of a normal
// distribution. Where no server of the kind was measured both are the error that is assumed then.
func (p *Prediction) StatedError() (ttft, tpot float64) {
	j := p.Trust.Judged
	if j == nil {
		return library.UnjudgedInterval, library.UnjudgedInterval
	}
	return math.Max(j.TTFTMedian*normalQuantile90OverMedian, j.Interval90), j.Interval90
}
