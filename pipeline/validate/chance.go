package validate

// This file makes replays in which every step takes its predicted time times a ratio that the server
// itself once had, and the API its measured scatter. Together they say how far chance alone moves a
// server that is exactly as modelled (spec#chance), so a gate fails only for a distance beyond that.

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// Number of replays with the server's own noise. Their requests together are the simulated
// distribution (spec#distance-beyond), and each alone shows how far chance moves a server that is
// exactly as modelled (spec#chance): a further one would exceed the largest of chanceReplays
// statistics once in a hundred. Long recordings get fewer, because chance moves many requests little
// and the replays take time in proportion to their number.
const (
	chanceReplays     = 99
	fewestReplays     = 7
	mostNoisyRequests = 2_000 * chanceReplays // of all noisy replays of a phase
)

// noisyReplays returns how many noisy replays a phase with so many requests gets.
func noisyReplays(requests int) int {
	if requests == 0 {
		return chanceReplays
	}
	return min(chanceReplays, max(fewestReplays, mostNoisyRequests/requests))
}

// chanceFactor returns what the largest distance of some noisy replays from all of them is multiplied
// by to be that of chanceReplays. The largest of n is exceeded with probability 1/(n+1), at which
// Kolmogorov's distribution has the quantile sqrt(log(2(n+1))/2); and a replay is the nearer to all
// the larger a part of them it is.
func chanceFactor(replays int) float64 {
	squared := func(n float64) float64 { return math.Log(2*(n+1)) * (n - 1) / n }
	return math.Sqrt(squared(chanceReplays) / squared(float64(replays)))
}

// chanceStream separates these random numbers from others of the same seed.
const chanceStream = 0xc4a2ce

// Rows that residuals are taken from.
const (
	fewestResiduals  = 10     // fewer rows give no noise
	mostNoiseRows    = 20_000 // of a phase, the last ones: bounds the search for like batches
	lengthClasses    = 5      // classes of predicted length in a regime, at most
	fewestClassRows  = 20     // of a class
	blockCorrelation = 5      // correlation times a block of steps lasts
)

// stepNoise is the noise of the step times of a phase: ratios of measured step times to those of the most
// alike batches, in time order. What the coefficients miss of a batch they miss of those like it too, so a
// worse model has no more noise. The mean ratio of each regime is 1: noise does not make a replay slower.
type stepNoise struct {
	ratio    []float64                  // by row
	byRegime [rows.Mixed + 1][]noisyRow // a regime's rows, in time order
	before   [rows.Mixed + 1][]int32    // by row: how many of the regime's rows come before it
	block    int                        // steps that are drawn together
}

// noisyRow is what a draw needs of a row. A replay reads rows at random, so both are in one place.
type noisyRow struct {
	ratio float64
	steps int32 // engine steps of the row
}

// stepNoiseOf returns the noise in the rows of [fromNs, toNs): those of one step, or all of them if
// those are too few; nil if there are too few.
func stepNoiseOf(t *rows.Table, predUs []float64, fromNs, toNs int64) *stepNoise {
	var all, single []int
	for _, i := range stat.Order(t.TimeNs) {
		startNs := t.TimeNs[i]
		if startNs < fromNs || startNs >= toNs || t.IsOutlier(i) || !(predUs[i] > 0 && t.Y[i] > 0) {
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
	all = all[max(0, len(all)-mostNoiseRows):]
	noise := &stepNoise{ratio: rows.NoiseOf(t, predUs, all)}
	// A row may be the mean of several equal steps, so a block of rows is longer in steps.
	stepsPerRow := 0.0
	var byRegime [rows.Mixed + 1][]int // positions of a regime's rows, ascending
	for row, i := range all {
		for regime, ofRegime := range byRegime {
			noise.before[regime] = append(noise.before[regime], int32(len(ofRegime)))
		}
		byRegime[t.Regime[i]] = append(byRegime[t.Regime[i]], row)
		stepsPerRow += float64(int32(max(1, t.Steps[i]))) / float64(len(all))
	}
	// Scale the ratios of each regime so that noise leaves the sum of its times as it is. The order of
	// statements matters: byRegime must get the scaled ratios.
	for regime, ofRegime := range byRegime {
		measured, withoutNoise := 0.0, 0.0
		for _, row := range ofRegime {
			measured += t.Y[all[row]]
			withoutNoise += t.Y[all[row]] / noise.ratio[row]
		}
		for _, row := range ofRegime {
			noise.ratio[row] *= withoutNoise / measured
			noise.byRegime[regime] = append(noise.byRegime[regime],
				noisyRow{ratio: noise.ratio[row], steps: int32(max(1, t.Steps[all[row]]))})
		}
	}
	noise.block = max(1, int(math.Round(stepsPerRow*float64(noise.blockRows()))))
	return noise
}

// blockRows returns how many rows are drawn together: one where neighbours are independent, else
// blockCorrelation correlation times. Sums over blocks of one correlation time scatter by three quarters
// of what the server's do (of an AR(1) series), over five by 95 %.
func (n *stepNoise) blockRows() int {
	correlation := float64(len(n.ratio)) / stat.EffectiveSize(n.ratio) // correlation time in rows
	if correlation < 1.5 {                                             // rounds to 1: independent
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
	start     int                   // row that the block begins with
	next      [rows.Mixed + 1]int   // position in byRegime; unplaced: to be found from start
	used      [rows.Mixed + 1]int32 // steps that got the ratio at next
}

// unplaced is the position in a regime of which a block has had no step yet.
const unplaced = -1

// StepUs returns the drawn time of the step.
func (m *noisyModel) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	if m.stepsLeft == 0 {
		// A new block begins at a random row. Each regime continues from its first row after that one.
		m.start = m.rng.IntN(len(m.noise.ratio))
		for regime := range m.next {
			m.next[regime] = unplaced
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
	if m.next[regime] == unplaced {
		m.next[regime] = int(m.noise.before[regime][m.start])
	}
	if m.next[regime] == len(members) {
		m.next[regime] = 0
	}
	// A row that is the mean of several steps gives its ratio to as many steps.
	row := members[m.next[regime]]
	m.used[regime]++
	if m.used[regime] >= row.steps {
		m.next[regime]++
		m.used[regime] = 0
	}
	return us * row.ratio, nil
}

// noisyTimes are simulated times of the compared requests on a server with noise, ms: of each kind one list a
// replay.
type noisyTimes byKind[[][]float64]

// withStepNoise replays the phase with noise in the step times, noisyReplays times, and returns the times
// of the compared requests that arrive from splitNs on, times a factor of each request of the phase; a kind without
// factors has 1. Replays that follow each other use the same engine.
func (p *replayedPhase) withStepNoise(ctx context.Context, workers int, noise *stepNoise, splitNs int64,
	factor byKind[[]float64]) (noisy noisyTimes, err error) {
	draws := make([]byKind[[]float64], noisyReplays(len(p.requests)))
	type replayer struct {
		engine
		requests []simulatedRequest // of its last replay
	}
	var idle sync.Pool // of *replayer
	err = par.Try(ctx, workers, len(draws), func(k int) error {
		e, ok := idle.Get().(*replayer)
		if !ok {
			made, err := p.newEngines[0]()
			if err != nil {
				return err
			}
			e = &replayer{engine: made, requests: make([]simulatedRequest, len(p.requests))}
		}
		defer idle.Put(e)
		c := e.Config
		rng := rand.New(rand.NewPCG(uint64(e.Seed)+uint64(k), chanceStream))
		c.Latency = &noisyModel{Model: e.Latency, noise: noise, rng: rng}
		if _, err := p.simulate(c, nil, e.requests); err != nil {
			return err
		}
		draw := p.sampleOf([]*simulatedRun{{requests: e.requests}}, splitNs)
		for kind, of := range factor {
			if of == nil {
				continue
			}
			for n, i := range draw.request[kind] { // the n-th time is that of request i
				draw.sim[kind][n] *= of[i]
			}
		}
		draws[k] = draw.sim // of a long recording the other lists are most of the memory
		return nil
	}, nil)
	if err != nil {
		return noisy, err
	}
	for kind := range noisy {
		for _, times := range draws {
			noisy[kind] = append(noisy[kind], times[kind])
		}
	}
	return noisy, nil
}

// withRequestNoise does what withStepNoise does if no steps were recorded: it returns the plain
// replay's times, each multiplied by the noise of a recorded request, drawn in blocks of neighbours
// too.
func (p *replayedPhase) withRequestNoise(seed, splitNs int64) (noisy noisyTimes) {
	all := p.sample(result.VariantPlain, p.originNs)
	judged := p.sample(result.VariantPlain, splitNs)
	alike := p.alikeRequests()
	for kind := range numKinds {
		noise := &stepNoise{ratio: requestNoise(all, kind, alike)}
		plain := judged.sim[kind]
		if len(noise.ratio) < fewestResiduals || len(plain) == 0 {
			continue
		}
		block := noise.blockRows()
		for k := range noisyReplays(len(p.requests)) {
			rng := rand.New(rand.NewPCG(uint64(seed)+uint64(k), chanceStream))
			times := make([]float64, len(plain))
			// At each start of a block jump to a random recorded request, else take the next one.
			position := 0
			for i := range times {
				position++
				if i%block == 0 {
					position = rng.IntN(len(noise.ratio))
				}
				times[i] = plain[i] * noise.ratio[position%len(noise.ratio)]
			}
			noisy[kind] = append(noisy[kind], times)
		}
	}
	return noisy
}

// requestNoise returns the noise of a kind of time in the recorded requests, in order of arrival: ratios
// of mean 1. The ratio of recorded to replayed time of a request scatters around the ratios of the
// requests most alike. From that scatter the part is taken off that replayed times show as well,
// because both depend on the moment within a step at which a request arrives.
func requestNoise(all *sample, kind timeKind, alike map[int][]float64) []float64 {
	var points []float64                 // of all requests one after another, dim coordinates each
	var ratio, real, simulated []float64 // logs, by request
	dim := 0
	for k, i := range all.request[kind] {
		recordedMs, simulatedMs := all.real[kind][k], all.sim[kind][k]
		if !(recordedMs > 0 && simulatedMs > 0) {
			continue
		}
		dim = len(alike[i])
		points = append(points, alike[i]...)
		ratio = append(ratio, math.Log(recordedMs/simulatedMs))
		real = append(real, math.Log(recordedMs))
		simulated = append(simulated, math.Log(simulatedMs))
	}
	if len(ratio) < fewestResiduals {
		return nil
	}
	ratio = aroundNeighbours(points, dim, ratio)
	// The recorded times of alike requests scatter more than the replayed ones. Only that difference
	// is noise of the server, so the logs of the ratios are shrunk to it.
	needed := scatterOfLogs(aroundNeighbours(points, dim, real)) - scatterOfLogs(aroundNeighbours(points, dim, simulated))
	share := 0.0
	if has := scatterOfLogs(ratio); has > 0 {
		share = math.Sqrt(min(1, max(0, needed/has)))
	}
	// Divide by the mean, so that noise does not make requests slower.
	mean := 0.0
	for i, log := range ratio {
		ratio[i] = math.Exp(share * log)
		mean += ratio[i] / float64(len(ratio))
	}
	for i := range ratio {
		ratio[i] /= mean
	}
	return ratio
}

// aroundNeighbours returns the values less the medians of those of the nearest points.
func aroundNeighbours(points []float64, dim int, values []float64) []float64 {
	near := stat.NewNeighbours(points, dim, values)
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v - near.Median(i)
	}
	return out
}

// scatterOfLogs returns the mean square of the values, without the largest twentieth.
func scatterOfLogs(values []float64) float64 {
	squares := make([]float64, len(values))
	for i, value := range values {
		squares[i] = value * value
	}
	squares = stat.Sorted(squares)
	return stat.Mean(squares[:len(squares)-len(squares)/20])
}

// alikeRequests returns a point for each request of the phase: recorded requests whose points are
// near have similar lengths and met a similar load. Each coordinate is scaled by its standard
// deviation over the requests.
func (p *replayedPhase) alikeRequests() map[int][]float64 {
	loads := loadsOf(p.recorded)
	var columns [][]float64
	for _, value := range []func(i int) float64{
		func(i int) float64 { return math.Log(float64(p.recorded[i].Prompt)) },
		func(i int) float64 { return math.Log(float64(max(1, p.recorded[i].Output))) },
		func(i int) float64 { return loads[i].inFlight },
		func(i int) float64 { return loads[i].promptTokens },
	} {
		column := make([]float64, len(p.recorded))
		for i := range column {
			column[i] = value(i)
		}
		if scale := stat.StdErr(column) * math.Sqrt(float64(len(column))); scale > 0 {
			for i := range column {
				column[i] /= scale
			}
			columns = append(columns, column)
		}
	}
	points := map[int][]float64{}
	for i := range p.recorded {
		for _, column := range columns {
			points[i] = append(points[i], column[i])
		}
	}
	return points
}

// metLoad is what a request met, by the recording: how many requests were in flight while it was, in the
// mean, and the prompt tokens that arrived then, per second.
type metLoad struct{ inFlight, promptTokens float64 }

// loadsOf returns the loads of requests in order of arrival; a request without a recorded end meets
// those at its arrival.
func loadsOf(recorded []Request) []metLoad {
	const msToNs = 1e6
	type event struct {
		ns     int64
		change float64
	}
	var events []event
	arrivals := make([]int64, len(recorded))
	tokens := make([]float64, len(recorded)+1) // of the requests before
	for i := range recorded {
		o := &recorded[i]
		arrivals[i] = o.ArrivalNs
		tokens[i+1] = tokens[i] + float64(o.Prompt)
		if o.E2EMs.OK {
			endNs := o.ArrivalNs + int64(o.E2EMs.V*msToNs)
			events = append(events, event{ns: o.ArrivalNs, change: 1}, event{ns: endNs, change: -1})
		}
	}
	stat.SortStable(events, func(a, b event) int { return cmp.Compare(a.ns, b.ns) })
	requestNs := make([]float64, len(events)) // integral of the requests in flight up to the event
	inFlight := make([]float64, len(events))  // requests in flight from the event on
	for k, e := range events {
		inFlight[k] = e.change
		if k > 0 {
			inFlight[k] += inFlight[k-1]
			requestNs[k] = requestNs[k-1] + inFlight[k-1]*float64(e.ns-events[k-1].ns)
		}
	}
	// areaAt returns the integral up to a time: that of the last event before or at it, and the rest.
	areaAt := func(ns int64) float64 {
		k, _ := slices.BinarySearchFunc(events, ns+1, func(e event, ns int64) int { return cmp.Compare(e.ns, ns) })
		if k == 0 {
			return 0
		}
		return requestNs[k-1] + inFlight[k-1]*float64(ns-events[k-1].ns)
	}
	out := make([]metLoad, len(recorded))
	for i := range recorded {
		from := recorded[i].ArrivalNs
		lastsNs := max(1, int64(recorded[i].E2EMs.V*msToNs))
		next, _ := slices.BinarySearch(arrivals, from+lastsNs)
		out[i] = metLoad{
			inFlight:     (areaAt(from+lastsNs) - areaAt(from)) / float64(lastsNs),
			promptTokens: (tokens[max(next, i)] - tokens[i]) / float64(lastsNs) * nsPerS,
		}
	}
	return out
}

// fill adds to the metrics of an entry the comparison with its noisy replays (compareShapes). real has the
// recorded times.
func (n noisyTimes) fill(workers int, m *result.Metrics, real byKind[[]float64]) {
	of := byKind[*result.Metric]{kindTTFT: m.TTFT, kindITL: m.ITL, kindE2E: m.E2E}
	par.Each(workers, len(of), func(_, kind int) {
		if of[kind] != nil {
			compareShapes(of[kind], real[kind], n[kind])
		}
	})
}
