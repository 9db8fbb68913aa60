package library

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/sim"
)

// load is the point under the harness; its group counts ttftCount points of TTFT.
func (p *point) load(h learn.Harness, groupSize int) (*load, error) {
	reqs, err := p.Requests(h)
	return &load{name: p.ID, group: p.Group(), dep: p.Deployment, reqs: reqs, ttftMs: p.TTFTMs, tpotMs: p.TPOTMs,
		tpotWeight: 1, ttftWeight: min(1, ttftCount/float64(groupSize))}, err
}

// loads are the points, each under the harness of its group.
func loads(points []point, harness func(p *point) learn.Harness) ([]*load, error) {
	size := map[string]int{}
	for i := range points {
		size[points[i].Group()]++
	}
	out := make([]*load, len(points))
	for i := range points {
		p := &points[i]
		var err error
		if out[i], err = p.load(harness(p), size[p.Group()]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// simulate runs one load with a coefficient set.
func (l *load) simulate(set *coeff.Set, gradient bool) (*sim.Means, error) {
	step, err := sim.NewPhysics(set, l.dep)
	if err != nil {
		return nil, err
	}
	cfg := sim.DefaultConfig(l.dep, step)
	if cfg.Overhead, err = sim.NewAlphaDelay(set, coeff.Overhead, l.dep); err != nil {
		return nil, err
	}
	cfg.Gradient = gradient
	return sim.MeansOf(cfg, l.reqs)
}
