package requestfit

// This file simulates recordings that vary at random as the real server does: it estimates how much
// step times, the server's speed and clients' stamps scatter, and draws recordings with that scatter.

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// record returns the loads of recording k, with what clients would have measured of a server with the
// candidate's coefficients and the random variation. Every k has its own random numbers.
func (r *repeats) record(k int, variation result.RequestScatter) ([]*Load, error) {
	out := make([]*Load, len(r.loads))
	for i, load := range r.loads {
		cfg, err := load.config(r.m, r.values)
		if err != nil {
			return nil, err
		}
		cfg.Done = r.ctx.Done()
		rng := rand.New(rand.NewPCG(uint64(r.Seed), uint64(1+k*len(r.loads)+i)))
		cfg.Seed = rng.Int64()
		scatterInto(&cfg, variation, rng, r.BlockUs, r.countBlocks())
		res, err := sim.Run(cfg, load.Requests, nil)
		if err != nil {
			return nil, err
		}
		r.steps.Add(res.Steps)
		out[i] = load.withTimes(res, variation, rng)
	}
	return out, nil
}

// scatterInto makes step times of a simulation vary uniformly around their mean (within at most 95 % of
// it, so that none is negative), and the speed of the server drift from time block to time block.
func scatterInto(cfg *sim.Config, variation result.RequestScatter, rng *rand.Rand, blockUs int64, blocks int) {
	if half := math.Min(0.95, math.Sqrt(3)*variation.StepFrac); half > 0 {
		// A uniform distribution of standard deviation StepFrac, as its quantiles 0 and 1.
		q := []sim.Quantile{{Q: 0, Ratio: 1 - half}, {Q: 1, Ratio: 1 + half}}
		cfg.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	}
	if !(variation.DriftFrac > 0) {
		return
	}
	for b := range int64(2 * blocks) { // a server may be busy long after the last arrival
		factor := math.Max(0.1, 1+variation.DriftFrac*rng.NormFloat64())
		cfg.Drift = append(cfg.Drift, sim.DriftPoint{FromUs: b * blockUs, Factor: factor})
	}
}

// withTimes returns the load with the times of a simulated run in place of the measured ones.
// Times that were not measured remain absent.
func (l *Load) withTimes(res *sim.Result, variation result.RequestScatter, rng *rand.Rand) *Load {
	out := *l
	n := len(l.Requests)
	out.SentUs = make([]int64, n)
	out.Seen = make([]sim.Measured, n)
	if l.Stamps != nil {
		out.Stamps = make([]sim.Measured, n)
	}
	for i := range res.Requests {
		m := res.Requests[i].Measured()
		ttftErrorUs := variation.TTFTFrac * rng.NormFloat64() * m.TTFTUs
		egressErrorUs := variation.OutsideUs * rng.NormFloat64()
		m.TTFTUs += ttftErrorUs
		m.E2EUs = m.E2EUs + ttftErrorUs + egressErrorUs
		out.SentUs[i] = res.Requests[i].ArrivalUs
		out.Seen[i] = replaceTimes(l.Seen[i], &m)
		if l.Stamps != nil {
			out.Stamps[i] = replaceTimes(l.Stamps[i], &m)
		}
	}
	return &out
}

// replaceTimes returns the simulated times, of those kinds that were measured.
func replaceTimes(measured sim.Measured, simulated *sim.Measured) sim.Measured {
	if measured.TTFTUs > 0 {
		measured.TTFTUs = simulated.TTFTUs
	}
	if measured.SpanUs > 0 {
		measured.SpanUs = simulated.SpanUs
	}
	if measured.E2EUs > 0 {
		measured.E2EUs = simulated.E2EUs
	}
	return measured
}

// probeStep is the relative standard deviation of step times in the recordings that
// measure its effect on spans.
const probeStep = 0.1

// measureScatter sets r.scatter to the random variation of the real server: the parameters with which
// the residuals of simulated recordings vary as much as those of the real one. probes is the number of
// recordings that are simulated for each estimate; without variation all are alike, and one suffices.
func (r *repeats) measureScatter(real *regression, probes int) error {
	want, drift := real.scatter(r.values)
	still, _, err := r.simulateScatter(result.RequestScatter{}, 1)
	if err != nil {
		return err
	}
	moved, _, err := r.simulateScatter(result.RequestScatter{StepFrac: probeStep}, probes)
	if err != nil {
		return err
	}
	// A variance of step times adds to the squared errors of spans in proportion. The server's own
	// follows from how much the probe's adds.
	if gain := moved[rowSpan] - still[rowSpan]; gain > 0 {
		r.scatter.StepFrac = math.Min(1, probeStep*math.Sqrt(math.Max(0, want[rowSpan]-still[rowSpan])/gain))
	}
	// What the scatter of step times does not explain is drift of the server, or outside the engine.
	now, driftNow, err := r.simulateScatter(r.scatter, probes)
	if err != nil {
		return err
	}
	r.scatter.DriftFrac = math.Sqrt(math.Max(0, drift-driftNow))
	r.scatter.TTFTFrac = math.Sqrt(math.Max(0, want[rowTTFT]-now[rowTTFT]))
	r.scatter.OutsideUs = math.Sqrt(math.Max(0, want[rowEgress]-now[rowEgress]))
	return nil
}

// simulateScatter returns the mean of regression.scatter over recordings of a server with the
// given random variation.
func (r *repeats) simulateScatter(variation result.RequestScatter, probes int) (
	squares [numRowKinds]float64, drift float64, err error,
) {
	got := make([]*regression, probes)
	err = par.Try(r.ctx, r.Workers, probes, func(k int) error {
		loads, err := r.record(k, variation)
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

// scatter returns the squares of the typical errors by kind around their median, and the
// variance over time blocks of the mean error of spans.
func (r *regression) scatter(values []float64) (squares [numRowKinds]float64, drift float64) {
	var off [numRowKinds][]float64
	spans := map[int][]float64{}
	last := 0
	for i := range r.rows {
		row := &r.rows[i]
		residual := row.residual(values)
		off[row.kind] = append(off[row.kind], residual)
		if row.kind == rowSpan {
			spans[row.block] = append(spans[row.block], residual)
			last = max(last, row.block)
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
	for _, mean := range means {
		drift += (mean - all) * (mean - all) / math.Max(1, float64(len(means)-1))
	}
	return squares, drift
}

// driftRows is the smallest number of spans of a time block whose mean error counts.
const driftRows = 3
