package validate

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// chanceReplays is how many noisy replays are compared with the plain one to learn how far chance alone
// moves a replay of a server that is exactly as modelled (spec#chance). One more replay would exceed the
// largest of their statistics once in a hundred.
const chanceReplays = 99

// chanceStream separates these random numbers from others of the same seed.
const chanceStream = 0xc4a2ce

// Rows that residuals are taken from.
const (
	fewestResiduals  = 10 // fewer rows give no noise
	lengthClasses    = 5  // classes of predicted length in a regime, at most
	fewestClassRows  = 20 // of a class
	blockCorrelation = 5  // correlation times a block of steps lasts
)

// stepNoise are the ratios of measured to predicted step time of a phase, in time order. Their sums in
// each regime and class of predicted length are as predicted, so that a bias of the model is not taken for
// noise.
type stepNoise struct {
	ratio    []float64
	steps    []int32               // engine steps of a row
	byRegime [rows.Mixed + 1][]int // positions of a regime's rows, ascending
	block    int                   // steps that are drawn together
}

// stepNoiseOf reads the rows of [fromNs, toNs): those of one step, or all of them where too few are. Nil
// when there are too few.
func stepNoiseOf(t *rows.Table, predUs []float64, fromNs, toNs int64) *stepNoise {
	var all, single []int
	for _, i := range stat.Order(t.TimeNs) {
		at := t.TimeNs[i]
		if at < fromNs || at >= toNs || t.IsOutlier(i) || !(predUs[i] > 0 && t.Y[i] > 0) {
			continue
		}
		all = append(all, i)
		if t.Steps[i] == 1 {
			single = append(single, i)
		}
	}
	if len(single) >= fewestResiduals {
		all = single
	}
	if len(all) < fewestResiduals {
		return nil
	}
	n := &stepNoise{ratio: make([]float64, len(all)), steps: make([]int32, len(all))}
	stepsPerRow := 0.0
	for k, i := range all {
		n.ratio[k] = t.Y[i] / predUs[i]
		n.steps[k] = int32(max(1, t.Steps[i]))
		n.byRegime[t.Regime[i]] = append(n.byRegime[t.Regime[i]], k)
		stepsPerRow += float64(n.steps[k]) / float64(len(all))
	}
	for _, members := range n.byRegime {
		perStep := make([]float64, len(members))
		for m, k := range members {
			perStep[m] = predUs[all[k]] / float64(n.steps[k])
		}
		order := stat.Order(perStep)
		classes := max(1, min(lengthClasses, len(members)/fewestClassRows))
		for c := range classes {
			class := order[c*len(members)/classes : (c+1)*len(members)/classes]
			n.centre(members, class, func(m int) float64 { return predUs[all[members[m]]] })
		}
	}
	n.block = max(1, int(math.Round(stepsPerRow*float64(n.blockRows()))))
	return n
}

// centre scales the ratios of a class so that their sum is as predicted.
func (n *stepNoise) centre(members, class []int, predUs func(m int) float64) {
	measured, predicted := 0.0, 0.0
	for _, m := range class {
		measured += n.ratio[members[m]] * predUs(m)
		predicted += predUs(m)
	}
	for _, m := range class {
		n.ratio[members[m]] *= predicted / measured
	}
}

// blockRows is how many rows are drawn together: one where neighbours are independent, else
// blockCorrelation correlation times. Sums over blocks of one correlation time scatter by three quarters
// of what the server's do (of an AR(1) series), over five by 95 %.
func (n *stepNoise) blockRows() int {
	correlation := float64(len(n.ratio)) / stat.EffectiveSize(n.ratio)
	if correlation < 1.5 {
		return 1
	}
	return int(math.Round(blockCorrelation * correlation))
}

// noisyModel is a latency model with the residuals of a recording: a block of steps takes the ratios of
// the rows of its regimes that follow a random row.
type noisyModel struct {
	sim.Model
	noise     *stepNoise
	rng       *rand.Rand
	stepsLeft int                   // of the block
	next      [rows.Mixed + 1]int   // position in byRegime
	used      [rows.Mixed + 1]int32 // steps that got the ratio at next
}

// StepUs is the drawn time of the step.
func (m *noisyModel) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	if m.stepsLeft == 0 {
		start := m.rng.IntN(len(m.noise.ratio))
		for regime, members := range m.noise.byRegime {
			m.next[regime], _ = slices.BinarySearch(members, start)
			m.used[regime] = 0
		}
		m.stepsLeft = m.noise.block
	}
	m.stepsLeft--
	regime := regimeOf(b)
	members := m.noise.byRegime[regime]
	if len(members) == 0 {
		return us, nil
	}
	k := members[m.next[regime]%len(members)]
	m.used[regime]++
	if m.used[regime] >= m.noise.steps[k] {
		m.next[regime]++
		m.used[regime] = 0
	}
	return us * m.noise.ratio[k], nil
}

// chance is what chance alone reaches in each metric.
type chance map[string]difference

// difference is how far a noisy replay is from the plain one: Kolmogorov-Smirnov distance and median
// relative difference of a request.
type difference struct{ ks, median float64 }

func differenceOf(plain, noisy []float64) difference {
	return difference{stat.Distance(plain, noisy), medianPairedError(plain, noisy)}
}

// include raises the metric's statistics to those of another replay.
func (q chance) include(metric string, d difference) {
	q[metric] = difference{max(q[metric].ks, d.ks), max(q[metric].median, d.median)}
}

// chances replays with noise and compares with the plain replay, request by request, the requests that
// arrive from splitNs on. fresh makes an engine that shares no scratch space with another.
func (p *replayedPhase) chances(ctx context.Context, workers int, fresh func() (engine, error), noise *stepNoise, splitNs int64) (chance, error) {
	draws := make([]chance, chanceReplays)
	err := par.Try(ctx, workers, chanceReplays, func(k int) error {
		e, err := fresh()
		if err != nil {
			return err
		}
		c := e.Config
		rng := rand.New(rand.NewPCG(uint64(e.Seed)+uint64(k), chanceStream))
		c.Latency = &noisyModel{Model: e.Latency, noise: noise, rng: rng}
		res, err := sim.Run(c, p.requests, nil)
		if err != nil {
			return err
		}
		draws[k] = p.differences(res, splitNs)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	q := chance{}
	for _, draw := range draws {
		for metric, d := range draw {
			q.include(metric, d)
		}
	}
	return q, nil
}

// differences compare the plain replay with a noisy one, over the compared requests that both finish.
func (p *replayedPhase) differences(noisy *sim.Result, splitNs int64) chance {
	plainUs := map[string][]float64{}
	noisyUs := map[string][]float64{}
	plain := p.plain()
	plainDeparted := lastDepartureUs(p.recorded, plain)
	noisyDeparted := lastDepartureUs(p.recorded, noisy)
	for i := range p.recorded {
		o := &p.recorded[i]
		a := &plain.Requests[i]
		b := &noisy.Requests[i]
		bothFinished := a.Outcome == sim.OutcomeFinished && b.Outcome == sim.OutcomeFinished
		if o.ArrivalNs < splitNs || o.Excluded != "" || !bothFinished {
			continue
		}
		add := func(metric string, recorded, x, y trace.Opt[float64]) {
			if recorded.OK && x.OK && y.OK {
				plainUs[metric] = append(plainUs[metric], x.V)
				noisyUs[metric] = append(noisyUs[metric], y.V)
			}
		}
		add("ttft", o.TTFTMs, optOf(a.TTFTUs()), optOf(b.TTFTUs()))
		add("itl", o.ITLMs, optOf(a.ITLUs()), optOf(b.ITLUs()))
		add("e2e", o.E2EMs, simulatedE2EUs(o, a, plainDeparted), simulatedE2EUs(o, b, noisyDeparted))
	}
	out := chance{}
	for _, metric := range metricNames {
		if len(plainUs[metric]) > 0 {
			out[metric] = differenceOf(plainUs[metric], noisyUs[metric])
		}
	}
	return out
}

// requestChances is chances where no steps were recorded: the ratios are those of measured to replayed
// times of the phase's requests, drawn in blocks too.
func (p *replayedPhase) requestChances(seed, splitNs int64) chance {
	all := p.sample(result.VariantPlain, p.originNs)
	judged := p.sample(result.VariantPlain, splitNs)
	q := chance{}
	for _, metric := range metricNames {
		plain := judged.sim[metric]
		noise := &stepNoise{}
		measured, replayed := 0.0, 0.0
		for i, simulated := range all.sim[metric] {
			if simulated > 0 {
				noise.ratio = append(noise.ratio, all.real[metric][i]/simulated)
				measured += all.real[metric][i]
				replayed += simulated
			}
		}
		if len(noise.ratio) < fewestResiduals || len(plain) == 0 || measured == 0 {
			continue
		}
		block := noise.blockRows()
		noisy := make([]float64, len(plain))
		for k := range chanceReplays {
			rng := rand.New(rand.NewPCG(uint64(seed)+uint64(k), chanceStream))
			at := 0
			for i := range noisy {
				at++
				if i%block == 0 {
					at = rng.IntN(len(noise.ratio))
				}
				noisy[i] = plain[i] * noise.ratio[at%len(noise.ratio)] * replayed / measured
			}
			q.include(metric, differenceOf(plain, noisy))
		}
	}
	return q
}

// fill puts what chance reaches into the metrics of an entry.
func (q chance) fill(m *result.Metrics) {
	for name, metric := range map[string]*result.Metric{"ttft": m.TTFT, "itl": m.ITL, "e2e": m.E2E} {
		d, known := q[name]
		if known && metric != nil {
			metric.ChanceKSD = &d.ks
			metric.ChanceMedian = result.OrNull(d.median)
		}
	}
}
