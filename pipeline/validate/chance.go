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
		measured += r.ratio[of[n]] * predUs(n)
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

// differ compares a noisy replay with the plain one, request by request.
func differ(plain, noise []float64) difference {
	return difference{stat.Distance(plain, noise), medianPairedError(plain, noise)}
}

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
	all := p.sample(result.VariantPlain, p.originNs)
	judged := p.sample(result.VariantPlain, splitNs)
	q := chance{}
	for _, metric := range metricNames {
		plain := judged.sim[metric]
		r := &stepNoise{}
		measured, replayed := 0.0, 0.0
		for i, x := range all.sim[metric] {
			if x > 0 {
				r.ratio = append(r.ratio, all.real[metric][i]/x)
				measured += all.real[metric][i]
				replayed += x
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
			q.raise(metric, differ(plain, noise))
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
	a := map[string][]float64{}
	b := map[string][]float64{}
	plain := p.plain()
	departed := lastDeparture(p.obs, plain)
	noisyDeparted := lastDeparture(p.obs, noise)
	for i := range p.obs {
		o := &p.obs[i]
		r := &plain.Requests[i]
		n := &noise.Requests[i]
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
			out[metric] = differ(a[metric], b[metric])
		}
	}
	return out
}

// This file says how a recorded machine differed from its prediction: its speed
// over time (drift), how single steps scatter around it, and a latency model that
// repeats both.

const (
	driftMinRows   = 5    // a block with fewer rows takes its predecessor's factor
	worthAShorter  = 0.01 // of a step: how much nearer shorter blocks must come, on rows they were not made of
	driftLo        = 0.9
	driftHi        = 1.1
	nsPerS         = 1e9
	driftRangeText = "0.9-1.1"
)

// driftBlocksNs are the lengths a block may have, longest first.
var driftBlocksNs = [...]int64{20e9, 10e9, 5e9}

// thinBlockRows is how many rows the shortest blocks of thinned rows have in the mean.
const thinBlockRows = 20

// drift is the machine's speed over time: the median of y/prediction in blocks
// of 20, 10 or 5 seconds (spec#drift). A factor above 1 is a slower machine, or a
// model that predicts too little.
type drift struct {
	OriginNs int64 // monotonic, start of block 0: the first row
	BlockNs  int64
	Points   []result.DriftPoint
	factors  []float64 // by block, gaps filled from the block before
	median   float64   // of factors
}

// DriftOf makes the curve of rows in any order; timeNs monotonic, y and pred in us.
// Blocks are as short as the rows bear out: the curve of every second row must come
// nearer to the other rows, by 1 % of a step, than the one of longer blocks does. Of thinned
// rows all lengths are longer by the same factor where so few are left (spec#max-rows).
func DriftOf(timeNs []int64, y, pred []float64, thinned bool) *drift {
	if len(timeNs) == 0 {
		return &drift{}
	}
	var halves [2]ratios
	all := ratios{originNs: slices.Min(timeNs)}
	for n, i := range stat.Order(timeNs) {
		all.add(timeNs[i], y[i]/pred[i])
		halves[n%2].originNs = all.originNs
		halves[n%2].add(timeNs[i], y[i]/pred[i])
	}
	blocks := driftBlocksNs
	if thinned {
		shortest := float64(blocks[len(blocks)-1]) * float64(len(timeNs))
		factor := max(1, int64(math.Ceil(thinBlockRows*float64(slices.Max(timeNs)-all.originNs)/shortest)))
		for i := range blocks {
			blocks[i] *= factor
		}
	}
	best, least := blocks[0], math.Inf(1)
	for _, blockNs := range blocks {
		a := halves[0].curve(blockNs)
		b := halves[1].curve(blockNs)
		if err := a.error(&halves[1]) + b.error(&halves[0]); err < least-worthAShorter*float64(len(timeNs)) {
			best, least = blockNs, err
		}
	}
	return all.curve(best)
}

// ratios are measured over predicted step times at their stamps.
type ratios struct {
	originNs int64
	at       []int64
	of       []float64
}

func (r *ratios) add(ns int64, ratio float64) {
	r.at = append(r.at, ns)
	r.of = append(r.of, ratio)
}

// curve is the drift in blocks of one length.
func (r *ratios) curve(blockNs int64) *drift {
	d := &drift{OriginNs: r.originNs, BlockNs: blockNs}
	byBlock := map[int64][]float64{}
	last := int64(0)
	for i, ns := range r.at {
		b := (ns - r.originNs) / blockNs
		last = max(last, b)
		byBlock[b] = append(byBlock[b], r.of[i])
	}
	for b := int64(0); b <= last; b++ {
		if in := byBlock[b]; len(in) >= driftMinRows {
			d.Points = append(d.Points, result.DriftPoint{StartS: d.startS(b), Factor: stat.Median(in), Rows: len(in)})
		}
	}
	d.fill(last + 1)
	return d
}

// error is the sum of |log(ratio/factor)| over rows.
func (d *drift) error(r *ratios) float64 {
	sum := 0.0
	for i, ns := range r.at {
		if r.of[i] > 0 {
			sum += math.Abs(math.Log(r.of[i] / d.At(ns)))
		}
	}
	return sum
}

func (d *drift) startS(block int64) float64 { return float64(block) * float64(d.BlockNs) / nsPerS }

func (d *drift) fill(blocks int64) {
	if len(d.Points) == 0 {
		return
	}
	factor, next := d.Points[0].Factor, 0
	for b := int64(0); b < blocks; b++ {
		if next < len(d.Points) && d.Points[next].StartS <= d.startS(b) {
			factor, next = d.Points[next].Factor, next+1
		}
		d.factors = append(d.factors, factor)
	}
	d.median = stat.Median(d.factors)
}

// At is the factor at a monotonic stamp; the ends hold beyond the curve, and
// without a curve it is 1.
func (d *drift) At(ns int64) float64 {
	if len(d.factors) == 0 {
		return 1
	}
	b := (ns - d.OriginNs) / d.BlockNs
	return d.factors[max(0, min(b, int64(len(d.factors)-1)))]
}

// Follow is a step time as the machine was at a stamp: times the factor there over
// the curve's median, which leaves what the model gets wrong all the time.
func (d *drift) Follow(us float64, ns int64) float64 {
	if len(d.factors) == 0 {
		return us
	}
	return us * d.At(ns) / d.median
}

// Farthest is the factor farthest from 1 in ratio, and whether there is one.
func (d *drift) Farthest() (float64, bool) {
	best, found := 1.0, false
	for _, p := range d.Points {
		if !found || math.Abs(math.Log(p.Factor)) > math.Abs(math.Log(best)) {
			best, found = p.Factor, true
		}
	}
	return best, found
}

// Swing is the largest factor over the smallest: drift that no one coefficient
// set can follow, whatever its bias.
func (d *drift) Swing() float64 {
	if len(d.Points) == 0 {
		return 1
	}
	lo, hi := d.Points[0].Factor, d.Points[0].Factor
	for _, p := range d.Points {
		lo, hi = min(lo, p.Factor), max(hi, p.Factor)
	}
	return hi / lo
}

// Finding is machine_drift when the curve leaves 0.9-1.1, else none.
func (d *drift) Finding(run string) []trace.Finding {
	far, ok := d.Farthest()
	if !ok || (far >= driftLo && far <= driftHi) {
		return nil
	}
	return []trace.Finding{trace.Findingf(rows.MachineDrift,
		"run %s: measured/predicted step time reaches %.2f in a %.0f-second block, want %s", run, far, d.startS(1), driftRangeText)}
}

const (
	spreadMinRows = 10     // a regime with fewer one-step rows gets no noise
	spreadClasses = 5      // classes of predicted length in a regime
	spreadPerRow  = 20     // rows a class needs at least
	spreadMaxRows = 20_000 // ratios kept of a class
	partRows      = 1000   // a part of a phase with fewer rows has no tails of its own: 200 a class
)

// spread is how measured step times scatter around prediction times drift curve,
// by regime and by class of predicted length: the relative noise of a short step is
// not that of a long one. Every class is centred on the median ratio of its
// regime, so that a bias of the model that depends on the length stays visible.
type spread struct {
	rows    int
	classes [rows.Mixed + 1][]spreadClass
}

// spreadClass holds the sorted ratios of steps predicted up to topUs.
type spreadClass struct {
	topUs  float64
	ratios []float64
}

// spreadOfRows reads the one-step rows of [from, to) and their predictions: the ratio
// of a sum over several steps is narrower than that of a step. Nil when there are
// too few.
func spreadOfRows(t *rows.Table, predUs []float64, d *drift, from, to int64) *spread {
	var pred, ratio [rows.Mixed + 1][]float64
	for i := range t.Kept {
		at, r := t.TimeNs[i], t.Regime[i]
		if t.Steps[i] == 1 && at >= from && at < to && !t.IsOutlier(i) {
			pred[r], ratio[r] = append(pred[r], predUs[i]), append(ratio[r], t.Y[i]/(predUs[i]*d.At(at)))
		}
	}
	s, known := &spread{}, false
	for r := range ratio {
		s.rows += len(ratio[r])
		if len(ratio[r]) >= spreadMinRows {
			s.classes[r] = spreadClassesOf(pred[r], ratio[r])
			known = true
		}
	}
	if !known {
		return nil
	}
	return s
}

func spreadClassesOf(pred, ratio []float64) []spreadClass {
	n := max(1, min(spreadClasses, len(ratio)/spreadPerRow))
	centre := stat.Median(ratio)
	order := stat.Order(pred)
	var out []spreadClass
	for k := range n {
		part := order[k*len(order)/n : (k+1)*len(order)/n]
		rs := stat.Thin(stat.Map(part, func(k int) float64 { return ratio[k] }), spreadMaxRows)
		shift := centre / stat.Median(rs)
		for i := range rs {
			rs[i] *= shift
		}
		slices.Sort(rs)
		out = append(out, spreadClass{pred[part[len(part)-1]], rs})
	}
	return out
}

// spreads is the scatter of a phase before and from its hold-out on: a machine's
// noise changes like its speed.
type spreads struct {
	cutNs         int64
	before, after *spread
}

// spreadsOf cuts the phase [from, to) at cut; a part with fewer than partRows
// takes the scatter of the whole phase. Nil when that has too few.
func spreadsOf(t *rows.Table, predUs []float64, d *drift, from, cut, to int64) *spreads {
	whole := spreadOfRows(t, predUs, d, from, to)
	if whole == nil {
		return nil
	}
	part := func(from, to int64) *spread {
		if s := spreadOfRows(t, predUs, d, from, to); s != nil && s.rows >= partRows {
			return s
		}
		return whole
	}
	return &spreads{cut, part(from, cut), part(cut, to)}
}

func (s *spreads) at(ns int64) *spread {
	if ns < s.cutNs {
		return s.before
	}
	return s.after
}

// draw is a ratio for a step of the regime predicted to take us; 1 for a regime
// without rows.
func (s *spread) draw(rng *rand.Rand, r rows.Regime, us float64) float64 {
	cs := s.classes[r]
	if len(cs) == 0 {
		return 1
	}
	k := 0
	for k < len(cs)-1 && us > cs[k].topUs {
		k++
	}
	return stat.Quantile(cs[k].ratios, rng.Float64())
}

// recorded is a latency model on the machine of a recording: the model's step time
// times the drift factor at the simulated time, times a residual ratio.
type recorded struct {
	sim.Model
	Drift    *drift
	OriginNs int64 // of simulated time 0
	Spreads  *spreads
	Rng      *rand.Rand
}

// StepUs is the drawn time of the step.
func (m *recorded) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	at := m.OriginNs + b.StartUs*1000
	return us * m.Drift.At(at) * m.Spreads.at(at).draw(m.Rng, regimeOf(b), us), nil
}

func regimeOf(b *sim.Batch) rows.Regime {
	switch b.Regime() {
	case sim.RegimeDecode:
		return rows.Decode
	case sim.RegimePrefill:
		return rows.Prefill
	}
	return rows.Mixed
}
