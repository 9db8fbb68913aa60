package validate

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// This file says how far chance alone moves a replay of a server that is exactly as
// modelled: noisy replays, each against the plain one (spec#chance).

// chanceReplays is how many noisy replays there are. q is their largest statistic, which
// one more of them exceeds once in a hundred.
const chanceReplays = 99

// chanceStream separates these random numbers from others of a seed.
const chanceStream = 0xc4a2ce

// stepNoise are ratios of measured to predicted step time of a phase, in time order.
// Their sums in each regime and class of predicted length are as predicted, so that
// what the model gets wrong there is no noise.
type stepNoise struct {
	ratio []float64
	steps []int32               // of a row
	of    [rows.Mixed + 1][]int // positions of a regime's rows, ascending
	block int                   // steps that are drawn together: some correlation times
}

// stepNoiseOf reads the rows of [from, to): those of one step, or all when few are. Nil
// when there are too few.
func stepNoiseOf(t *rows.Table, predUs []float64, from, to int64) *stepNoise {
	var all, single []int
	for _, i := range stat.Order(t.TimeNs) {
		if at := t.TimeNs[i]; at < from || at >= to || !(predUs[i] > 0 && t.Y[i] > 0) || t.IsOutlier(i) {
			continue
		}
		if all = append(all, i); t.Steps[i] == 1 {
			single = append(single, i)
		}
	}
	if len(single) >= spreadMinRows {
		all = single
	}
	if len(all) < spreadMinRows {
		return nil
	}
	r := &stepNoise{ratio: make([]float64, len(all)), steps: make([]int32, len(all))}
	perRow := 0.0
	for k, i := range all {
		r.ratio[k], r.steps[k] = t.Y[i]/predUs[i], int32(max(1, t.Steps[i]))
		r.of[t.Regime[i]] = append(r.of[t.Regime[i]], k)
		perRow += float64(r.steps[k]) / float64(len(all))
	}
	for _, of := range r.of {
		order := stat.Order(stat.Map(of, func(k int) float64 { return predUs[all[k]] / float64(r.steps[k]) }))
		classes := max(1, min(spreadClasses, len(of)/spreadPerRow))
		for c := range classes {
			r.centre(of, order[c*len(of)/classes:(c+1)*len(of)/classes], func(n int) float64 { return predUs[all[of[n]]] })
		}
	}
	r.block = max(1, int(math.Round(perRow*float64(r.blockRows()))))
	return r
}

// blockTimes is how many correlation times a block is long: of one alone the sums scatter by
// three quarters of what the server's do (of an AR(1) series), of five by 95 %.
const blockTimes = 5

// blockRows is the length of a block in rows: one where neighbours say nothing of each other.
func (r *stepNoise) blockRows() int {
	correlation := float64(len(r.ratio)) / stat.EffectiveSize(r.ratio)
	if correlation < 1.5 {
		return 1
	}
	return int(math.Round(blockTimes * correlation))
}

// centre makes the sum of a class as predicted.
func (r *stepNoise) centre(of, class []int, predUs func(n int) float64) {
	measured, predicted := 0.0, 0.0
	for _, n := range class {
		measured += float64(r.ratio[of[n]] * predUs(n))
		predicted += predUs(n)
	}
	for _, n := range class {
		r.ratio[of[n]] *= predicted / measured
	}
}

// noisy is a latency model with the residuals of a recording: from a random row on, a
// block of steps takes the ratios of the rows of its regimes that follow there.
type noisy struct {
	sim.Model
	from *stepNoise
	rng  *rand.Rand
	left int                   // steps of the block
	at   [rows.Mixed + 1]int   // in of, by regime
	held [rows.Mixed + 1]int32 // steps that had the ratio at at
}

// StepUs is the drawn time of the step.
func (m *noisy) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	if m.left == 0 {
		start := m.rng.IntN(len(m.from.ratio))
		for r, of := range m.from.of {
			m.at[r], _ = slices.BinarySearch(of, start)
			m.held[r] = 0
		}
		m.left = m.from.block
	}
	m.left--
	r := regimeOf(b)
	of := m.from.of[r]
	if len(of) == 0 {
		return us, nil
	}
	k := of[m.at[r]%len(of)]
	if m.held[r]++; m.held[r] >= m.from.steps[k] {
		m.at[r], m.held[r] = m.at[r]+1, 0
	}
	return us * m.from.ratio[k], nil
}

// chance is q of each metric, for the requests that arrive from splitNs on.
type chance map[string]difference

type difference struct{ ks, median float64 }

// chances replays with noise and compares with the plain replay, request by request.
// fresh makes an engine that shares nothing with another.
func (p *Phase) chances(ctx context.Context, workers int, fresh func() (engine, error), from *stepNoise, splitNs int64) (chance, error) {
	draws := make([]chance, chanceReplays)
	err := par.Try(ctx, workers, chanceReplays, func(k int) error {
		e, err := fresh()
		if err != nil {
			return err
		}
		c := e.Config
		c.Latency = &noisy{Model: e.Latency, from: from, rng: rand.New(rand.NewPCG(uint64(e.Seed)+uint64(k), chanceStream))}
		res, err := sim.Run(c, p.requests, nil)
		if err == nil {
			draws[k] = p.against(res, splitNs)
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	q := chance{}
	for _, d := range draws {
		for metric, x := range d {
			q.raise(metric, x)
		}
	}
	return q, nil
}

func (q chance) raise(metric string, x difference) {
	q[metric] = difference{max(q[metric].ks, x.ks), max(q[metric].median, x.median)}
}

// requestChances is the same where no steps were recorded: the ratios are those of
// measured to replayed requests of the phase, drawn in blocks too.
func (p *Phase) requestChances(seed, splitNs int64) chance {
	all, judged := p.sample(result.VariantPlain, p.originNs), p.sample(result.VariantPlain, splitNs)
	q := chance{}
	for _, metric := range metricNames {
		plain := judged.sim[metric]
		r := &stepNoise{}
		measured, replayed := 0.0, 0.0
		for i, x := range all.sim[metric] {
			if x > 0 {
				r.ratio = append(r.ratio, all.real[metric][i]/x)
				measured, replayed = measured+all.real[metric][i], replayed+x
			}
		}
		if len(r.ratio) < spreadMinRows || len(plain) == 0 || measured == 0 {
			continue
		}
		block := r.blockRows()
		noise := make([]float64, len(plain))
		for k := range chanceReplays {
			rng := rand.New(rand.NewPCG(uint64(seed)+uint64(k), chanceStream))
			at := 0
			for i := range noise {
				if at++; i%block == 0 {
					at = rng.IntN(len(r.ratio))
				}
				noise[i] = plain[i] * r.ratio[at%len(r.ratio)] * replayed / measured
			}
			q.raise(metric, difference{stat.Distance(plain, noise), medianPairedError(plain, noise)})
		}
	}
	return q
}

// fill says what chance reaches in each metric of an entry.
func (q chance) fill(m *result.Metrics) {
	for name, of := range map[string]*result.Metric{"ttft": m.TTFT, "itl": m.ITL, "e2e": m.E2E} {
		if d, known := q[name]; known && of != nil {
			of.ChanceKSD, of.ChanceMedian = &d.ks, result.OrNull(d.median)
		}
	}
}

// against is D and the median paired difference of each metric between the plain replay
// and a noisy one, over the compared requests that both finish.
func (p *Phase) against(noise *sim.Result, splitNs int64) chance {
	a, b := map[string][]float64{}, map[string][]float64{}
	plain := p.plain()
	departed, noisyDeparted := lastDeparture(p.obs, plain), lastDeparture(p.obs, noise)
	for i := range p.obs {
		o, r, n := &p.obs[i], &plain.Requests[i], &noise.Requests[i]
		if o.ArrivalNs < splitNs || o.Excluded != "" || r.Outcome != sim.OutcomeFinished || n.Outcome != sim.OutcomeFinished {
			continue
		}
		add := func(metric string, recorded, x, y trace.Opt[float64]) {
			if recorded.OK && x.OK && y.OK {
				a[metric], b[metric] = append(a[metric], x.V), append(b[metric], y.V)
			}
		}
		add("ttft", o.TTFTMs, optOf(r.TTFTUs()), optOf(n.TTFTUs()))
		add("itl", o.ITLMs, optOf(r.ITLUs()), optOf(n.ITLUs()))
		add("e2e", o.E2EMs, simE2E(o, r, departed), simE2E(o, n, noisyDeparted))
	}
	out := chance{}
	for _, metric := range metricNames {
		if len(a[metric]) > 0 {
			out[metric] = difference{stat.Distance(a[metric], b[metric]), medianPairedError(a[metric], b[metric])}
		}
	}
	return out
}
