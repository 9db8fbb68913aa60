package rows

// This file makes the rows of step times: the time between the starts of two recorded steps as target,
// and the features of the steps that ran in between, summed (spec#cadence).

import (
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// Vectorizer turns one step into P numbers: the physics features, or another model's basis over the
// same rows.
type Vectorizer struct {
	P int // columns
	// Step writes the vector of one step into x, and returns the features that hit their bound. The members,
	// the requests of the batch, are nil for approximate steps; WantMembers asks for them.
	Step        func(in *features.StepInput, members []trace.Member, x []float64) (features.Hits, error)
	WantMembers bool
}

// featureVectorizer returns the vectorizer that computes the features of a space.
func featureVectorizer(sp *features.Space) Vectorizer {
	return Vectorizer{P: len(sp.BetaFeatures()), Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
		return sp.Beta(in, x)
	}}
}

// Beta returns the step-time rows of the run, with the target cadence or duration. The space gives
// the features and the physical floor; its version must be the one given to Rebuild.
func (s *Steps) Beta(sp *features.Space, o Options) (*Table, error) {
	return s.BetaBasis(sp, featureVectorizer(sp), o)
}

// BetaBasis returns the same rows as Beta with another basis (other features) in place of the
// features. The same candidates are dropped for the same reasons, except that the bounds are those
// of the basis.
func (s *Steps) BetaBasis(sp *features.Space, vec Vectorizer, o Options) (*Table, error) {
	o, err := o.resolve("beta", DefaultBetaTarget(s.Version), coeff.Cadence, coeff.Duration)
	if err != nil {
		return nil, err
	}
	b := newBetaBuilder(s, sp, vec, o)
	if vec.WantMembers {
		if err := b.prepare(); err != nil {
			return nil, err
		}
	}
	for k, to := s.askedSummaries(); k < to; k++ { // k: index of a recorded step
		b.t.Read++
		if why := b.row(k); why != "" {
			b.t.countDrop(why, 1)
		}
	}
	b.t.checkColumns()
	return b.t, nil
}

// betaBuilder makes one table.
type betaBuilder struct {
	s      *Steps
	sp     *features.Space
	vec    Vectorizer
	o      Options
	t      *Table
	ema    averages // preemption average after each recorded step
	parts  []Part
	warm   warmUp
	sparse bool             // fewer than half of the steps are recorded
	spikes [2]runningMedian // of rows without and with prompts
	others variants

	// Filled by prepare, for a basis that needs members; indices are step ids less s.First.
	ready []float64             // vectors of all steps
	fails map[int]error         // of steps whose vector cannot be computed
	hits  map[int]features.Hits // of steps with a feature at its bound

	in   features.StepInput // inputs of the step in row1
	row1 []float64          // vector of one step
	x    []float64          // vector of the row, summed over its steps
}

// newBetaBuilder returns a builder of the rows of one run.
func newBetaBuilder(s *Steps, sp *features.Space, vec Vectorizer, o Options) *betaBuilder {
	from, to := s.askedSummaries()
	t := &Table{
		Run:    s.Run.ID,
		Config: s.Config,
		Target: o.Target,
		Gamma:  o.Gamma,
		P:      vec.P,
		Hits:   make([]int, vec.P),
		Min:    repeated(vec.P, math.Inf(1)),
		Max:    repeated(vec.P, math.Inf(-1)),
	}
	t.reserveRows(Expected(to-from, o.Stride), o.Slim)
	if o.Target == coeff.Cadence {
		t.Lag = o.Lag
	}
	b := &betaBuilder{
		s:      s,
		sp:     sp,
		vec:    vec,
		o:      o,
		t:      t,
		ema:    s.preemptionAverages(o.Gamma),
		parts:  s.parts(o.Split),
		warm:   s.newWarmUp(),
		sparse: isSparse(s),
		row1:   make([]float64, vec.P),
		x:      make([]float64, vec.P),
	}
	b.others = s.newVariants(t, otherGammas(o.Gammas, o.Gamma))
	return b
}

// repeated returns n values v.
func repeated(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// isSparse reports whether fewer than half of the steps are recorded (spec#summary-steps).
func isSparse(s *Steps) bool {
	n := len(s.Run.Steps)
	return n > 0 && float64(n) < 0.5*float64(s.Run.Steps[n-1].ID-s.Run.Steps[0].ID+1)
}

// prepare computes the vectors of all steps at once. A basis that needs the members of a batch gets
// them in one pass over the run, because looking up single steps is slow.
func (b *betaBuilder) prepare() error {
	b.fails = map[int]error{}
	b.hits = map[int]features.Hits{}
	b.ready = make([]float64, b.s.Len()*b.vec.P)
	return b.s.Each(func(st *Step, members []trace.Member) {
		if st.Known() {
			k, in := int(st.ID-b.s.First), st.In
			x := b.ready[k*b.vec.P : (k+1)*b.vec.P]
			hits, err := b.vec.Step(&in, members, x)
			if hits != 0 {
				b.hits[k] = hits
			}
			if err != nil {
				b.fails[k] = err
			}
		}
	})
}

// row appends to the table the row that starts at recorded step k. If the step gives no row, row
// returns the reason, otherwise "".
func (b *betaBuilder) row(k int) trace.Code {
	rec := &b.s.Run.Steps[k]
	phase, held := partOf(b.parts, rec.TsStartNs)
	switch {
	case b.warm.isWarmUp(rec.TsStartNs, rec.ID):
		return codeWarmUp
	// In saturated spans only training rows soon after a preemption are kept, and only with o.Preempting.
	case IsInside(b.o.Saturated, rec.TsStartNs) && (held || !b.o.Preempting || !b.hasRecentPreemption(k)):
		return Saturated
	}
	iv, why := b.interval(k)
	if why != "" {
		return why
	}
	if why := b.vector(iv); why != "" {
		return why
	}
	if b.o.Target == coeff.Cadence && b.spikes[b.spikeKind(iv)].isSpike(iv.y/iv.steps()) {
		return codeOutlier
	}
	// The range is that of all training rows, so it is widened before thinning drops some of them.
	if !held {
		b.widenRanges(iv)
	}
	if !survivesThinning(rec.TsStartNs, b.o.Stride) {
		return codeRowsThinned
	}
	b.appendRow(rec, iv, phase, held)
	return ""
}

// hasRecentPreemption reports whether recorded step k, or a step at most features.MemorySteps
// before it, preempted a request: the slowest preemption average still contains it.
func (b *betaBuilder) hasRecentPreemption(k int) bool {
	steps := b.s.Run.Steps
	for last := steps[k].ID; k >= 0 && last-steps[k].ID < features.MemorySteps; k-- {
		if steps[k].NumPreempted > 0 {
			return true
		}
	}
	return false
}

// spikeKind returns which of b.spikes an interval is compared with: 1 when a step of it has prompt
// tokens, otherwise 0. A long prefill among decodes takes a hundred times their time and is no
// spike.
func (b *betaBuilder) spikeKind(iv interval) int {
	for u := iv.from; u <= iv.to; u++ {
		if b.s.prefillTokens(u) > 0 {
			return 1
		}
	}
	return 0
}

// interval is one candidate row: the time y covers the steps from..to.
type interval struct {
	y        float64 // us
	from, to int64   // first and last step whose features are summed
	approx   bool    // the features of step i are taken for those of the step before it (tagLagApproximate)
}

// steps returns the number of steps of the interval.
func (iv interval) steps() float64 { return float64(iv.to - iv.from + 1) }

// interval returns the measured interval that starts at recorded step k, or the reason why there is
// none.
func (b *betaBuilder) interval(k int) (interval, trace.Code) {
	if b.o.Target == coeff.Duration {
		return b.durationOf(k)
	}
	return b.cadenceOf(k)
}

// durationOf returns the time inside schedule() of recorded step k.
func (b *betaBuilder) durationOf(k int) (interval, trace.Code) {
	i := &b.s.Run.Steps[k]
	switch {
	case !isBusy(i):
		return interval{}, codeNoTarget
	case !b.s.compact(i.ID).known():
		return interval{}, UnknownBatch
	case i.DurationUs < 0:
		return interval{}, codeNoTarget
	}
	return interval{y: float64(i.DurationUs), from: i.ID, to: i.ID}, ""
}

// cadenceOf returns the time from the start of recorded step i (index k) to that of the next recorded
// step j (spec#cadence). With a lag, the steps i-lag .. j-1-lag execute in it. None of i-lag .. j-1
// may be idle, because an idle engine waits for requests.
func (b *betaBuilder) cadenceOf(k int) (interval, trace.Code) {
	if k+1 == len(b.s.Run.Steps) {
		return interval{}, NoInterval
	}
	i, j := &b.s.Run.Steps[k], &b.s.Run.Steps[k+1]
	iv := interval{from: i.ID - int64(b.o.Lag), to: j.ID - 1 - int64(b.o.Lag)}
	if j.ID-i.ID > maxSteps && b.s.Run.Aggregate == nil { // between ticks of logged passes lie as many as run in a second
		return iv, NoInterval
	}
	if b.s.compact(i.ID).noStart {
		return iv, codeNoTarget
	}
	if iv.y = float64(j.TsStartNs-i.TsStartNs) / 1000; iv.y < 0 {
		return iv, codeNoTarget
	}
	// In sparse recordings the step before may be unknown. A decode step is then taken to be like the
	// one before it, whose batch nearly always is the same (spec#summary-steps).
	why := b.s.checkInterval(iv, j.ID-1)
	isLoneDecode := j.ID == i.ID+1 && b.isPureDecode(i.ID) && !b.isRecorded(iv.from, i.ID-1)
	if why == UnknownBatch && b.sparse && isLoneDecode {
		return interval{y: iv.y, from: i.ID, to: i.ID, approx: true}, ""
	}
	return iv, why
}

// checkInterval returns why an interval makes no row, empty when it does: all steps from iv.from to
// last must be busy, and the batches of iv.from to iv.to, whose features are summed, known.
func (s *Steps) checkInterval(iv interval, last int64) trace.Code {
	var why trace.Code
	for u := iv.from; u <= last; u++ {
		st := s.compact(u)
		isIdle := st != nil && (st.recorded >= 0 && !isBusy(&s.Run.Steps[st.recorded]) ||
			st.recorded < 0 && st.known() && s.all.scheduledTokens(int(u-s.First)) == 0)
		switch {
		case st == nil:
			why = UnknownBatch
		case isIdle:
			return NoInterval
		case st.reason == reconstruct.EncoderRan:
			return codeEncoder
		// After iv.to a step only has to be busy, which its summary shows even where its batch is unknown.
		case !st.known() && (u <= iv.to || st.recorded < 0):
			why = UnknownBatch
		}
	}
	return why
}

// isRecorded reports whether some step of from..last has a summary. If one had the same decodes as
// its neighbours its batch would be known, so the steps cannot be taken as alike.
func (b *betaBuilder) isRecorded(from, last int64) bool {
	for u := from; u <= last; u++ {
		if st := b.s.compact(u); st != nil && st.recorded >= 0 {
			return true
		}
	}
	return false
}

// isPureDecode reports whether a step runs decodes alone.
func (b *betaBuilder) isPureDecode(id int64) bool {
	st := b.s.compact(id)
	return st.known() && b.s.prefillTokens(id) == 0 && st.decodeTokens > 0 && isBusy(&b.s.Run.Steps[st.recorded])
}

// isBusy reports whether a step runs requests and schedules tokens (spec#cadence).
func isBusy(s *trace.Step) bool { return s.ScheduledTokens > 0 && s.RunningDepth > 0 }

// vector sums the vectors of the interval's steps into b.x. It returns the reason when they cannot
// be used.
func (b *betaBuilder) vector(iv interval) trace.Code {
	clear(b.x)
	var hits features.Hits
	for u := iv.from; u <= iv.to; u++ {
		x, h, err := b.step(u)
		if err != nil {
			return codeOf(err)
		}
		hits |= h
		for j, v := range x {
			b.x[j] += v
		}
	}
	if hits == 0 {
		return ""
	}
	for _, slot := range hits.Slots() {
		b.t.Hits[slot-1]++
	}
	return features.FeatureOutOfRange
}

// step returns the vector of one step; the slice is valid until the next call.
func (b *betaBuilder) step(u int64) ([]float64, features.Hits, error) {
	if b.ready != nil {
		k := int(u - b.s.First)
		return b.ready[k*b.vec.P : (k+1)*b.vec.P], b.hits[k], b.fails[k]
	}
	b.in = b.s.input(u)
	b.in.PreemptionEMA = b.averageAt(u)
	h, err := b.vec.Step(&b.in, nil, b.row1)
	return b.row1, h, err
}

// averageAt returns the preemption average at step u: that of the last recorded step up to u, 0
// before the first.
func (b *betaBuilder) averageAt(u int64) float64 {
	if k := sort.Search(len(b.s.Run.Steps), func(k int) bool { return b.s.Run.Steps[k].ID > u }) - 1; k >= 0 {
		return b.ema.after(k)
	}
	return 0
}

// codeOf returns the code of an error of a feature, as the reason for a dropped row.
func codeOf(err error) trace.Code {
	if e, ok := errors.AsType[*trace.Error](err); ok && e.Code != "" {
		return e.Code
	}
	return features.BadInput
}

// averages are the preemption averages after every recorded step (spec#preemption-average); nil: all
// are 0, because no step preempts.
type averages []float64

// after returns the average after the k-th recorded step.
func (a averages) after(k int) float64 {
	if a == nil {
		return 0
	}
	return a[k]
}

// preemptionAverages returns the averages over all recorded steps in order, before any cleaning.
func (s *Steps) preemptionAverages(gamma float64) averages {
	if !s.Preempts() {
		return nil
	}
	out := make(averages, len(s.Run.Steps))
	ema := 0.0
	for i := range out {
		step := &s.Run.Steps[i]
		ema = features.EMA(ema, gamma, float64(step.NumPreempted), float64(step.RunningDepth))
		out[i] = ema
	}
	return out
}
