package requestfit

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// record is what clients would measure of all loads, the k-th time.
func (r *repeats) record(k int, u result.RequestScatter) ([]*Load, error) {
	out := make([]*Load, len(r.loads))
	for i, load := range r.loads {
		cfg, err := load.config(r.m, r.values)
		if err != nil {
			return nil, err
		}
		cfg.Done = r.ctx.Done()
		rng := rand.New(rand.NewPCG(uint64(r.Seed), uint64(1+k*len(r.loads)+i)))
		cfg.Seed = rng.Int64()
		scatterInto(&cfg, u, rng, r.BlockUs, r.blocks())
		res, err := sim.Run(cfg, load.Requests, nil)
		if err != nil {
			return nil, err
		}
		r.steps.Add(res.Steps)
		out[i] = load.as(res, u, rng)
	}
	return out, nil
}

// scatterInto makes steps scatter, evenly around their mean, and the speed change from block
// to block.
func scatterInto(cfg *sim.Config, u result.RequestScatter, rng *rand.Rand, blockUs int64, blocks int) {
	if half := math.Min(0.95, math.Sqrt(3)*u.StepFrac); half > 0 {
		q := []sim.Quantile{{Q: 0, Ratio: 1 - half}, {Q: 1, Ratio: 1 + half}}
		cfg.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	}
	for b := range int64(2 * blocks) { // a server may be busy long after the last arrival
		if u.DriftFrac > 0 {
			cfg.Drift = append(cfg.Drift, sim.DriftPoint{FromUs: b * blockUs, Factor: math.Max(0.1, 1+u.DriftFrac*rng.NormFloat64())})
		}
	}
}

// as is the load with the times of a simulated run, where it has any.
func (l *Load) as(res *sim.Result, u result.RequestScatter, rng *rand.Rand) *Load {
	out, n := *l, len(l.Requests)
	out.SentUs = make([]int64, n)
	out.Seen = make([]sim.Measured, n)
	if l.Stamps != nil {
		out.Stamps = make([]sim.Measured, n)
	}
	for i := range res.Requests {
		m := res.Requests[i].Measured()
		by := u.TTFTFrac * rng.NormFloat64() * m.TTFTUs
		rest := u.OutsideUs * rng.NormFloat64()
		m.TTFTUs, m.E2EUs = m.TTFTUs+by, m.E2EUs+by+rest
		out.SentUs[i], out.Seen[i] = res.Requests[i].ArrivalUs, where(&l.Seen[i], &m)
		if l.Stamps != nil {
			out.Stamps[i] = where(&l.Stamps[i], &m)
		}
	}
	return &out
}

// where are the times of m that known has as well.
func where(known, m *sim.Measured) sim.Measured {
	out := *known
	for _, v := range [...]struct{ to, from *float64 }{{&out.TTFTUs, &m.TTFTUs}, {&out.SpanUs, &m.SpanUs}, {&out.E2EUs, &m.E2EUs}} {
		if *v.to > 0 {
			*v.to = *v.from
		}
	}
	return out
}

// probeStep is the scatter of steps in the recordings that show its effect on spans.
const probeStep = 0.1

// measure finds the scatter that makes recordings scatter as the real one.
func (r *repeats) measure(real *regression, probes int) error {
	want, drift := real.scatter(r.values)
	still, _, err := r.scatters(result.RequestScatter{}, 1)
	if err != nil {
		return err
	}
	moved, _, err := r.scatters(result.RequestScatter{StepFrac: probeStep}, probes)
	if err != nil {
		return err
	}
	root := math.Sqrt
	if gain := moved[rowSpan] - still[rowSpan]; gain > 0 {
		r.scatter.StepFrac = math.Min(1, probeStep*root(math.Max(0, want[rowSpan]-still[rowSpan])/gain))
	}
	now, quiet, err := r.scatters(r.scatter, probes)
	r.scatter.DriftFrac, r.scatter.TTFTFrac = root(math.Max(0, drift-quiet)), root(math.Max(0, want[rowTTFT]-now[rowTTFT]))
	r.scatter.OutsideUs = root(math.Max(0, want[rowEgress]-now[rowEgress]))
	return err
}

// scatters is the mean scatter of recordings of a server that scatters so.
func (r *repeats) scatters(u result.RequestScatter, probes int) (squares [numRowKinds]float64, drift float64, err error) {
	got := make([]*regression, probes)
	err = par.Try(r.ctx, r.Workers, probes, func(k int) error {
		loads, err := r.record(k, u)
		if err == nil {
			got[k], err = r.regression(loads)
		}
		return err
	}, nil)
	if err != nil {
		return squares, 0, err
	}
	for _, g := range got {
		one, d := g.scatter(r.values)
		for k, v := range one {
			squares[k] += v / float64(probes)
		}
		drift += d / float64(probes)
	}
	return squares, drift, nil
}

// scatter are the squares of the typical errors by kind around their middle, and the variance of a
// time block's mean error of spans.
func (r *regression) scatter(values []float64) (squares [numRowKinds]float64, drift float64) {
	var off [numRowKinds][]float64
	spans := map[int][]float64{}
	last := 0
	for i := range r.rows {
		w := &r.rows[i]
		v := w.residual(values)
		if off[w.kind] = append(off[w.kind], v); w.kind == rowSpan {
			spans[w.block] = append(spans[w.block], v)
			last = max(last, w.block)
		}
	}
	for k := range off {
		if len(off[k]) == 0 {
			continue
		}
		middle := stat.Median(off[k])
		for i := range off[k] {
			off[k][i] = math.Abs(off[k][i] - middle)
		}
		sd := madToSD * stat.Median(off[k])
		squares[k] = sd * sd
	}
	var means []float64
	for b := 0; b <= last; b++ {
		if len(spans[b]) >= driftRows {
			means = append(means, stat.Mean(spans[b]))
		}
	}
	all := stat.Mean(means)
	for _, m := range means {
		drift += (m - all) * (m - all) / math.Max(1, float64(len(means)-1))
	}
	return squares, drift
}

// driftRows is how many spans a time block needs for its mean error to count.
const driftRows = 3
