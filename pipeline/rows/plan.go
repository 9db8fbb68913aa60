package rows

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// plan is the reconstruction (spec#journeys): who ran in every step, as far as the
// journeys tell. Arrays are indexed by step id - first.
type plan struct {
	lives     []life
	first     int64
	async     bool
	budget    int64 // max_num_batched_tokens
	threshold int64 // long_prefill_token_threshold, 0 = off
	chunking  bool

	summary  []int32 // index of the step's BATCH_SUMMARY, -1 without one
	recorded []trace.Step
	decodes  []int32 // sure decodes of lives that are not broken
	tails    []int32 // uncounted decodes (life.tail)
	firsts   []int32 // decodes right behind the first token: labelled PREFILL under async scheduling
	prefills []int32 // lives whose prompt runs in the step, planned or not
	prompts  []int64 // planned prompt tokens
	running  []int32 // planned prompt chunks
	blocked  []Reason
	noTail   []bool // the summary says that the tails did not run
	confirm  []bool // counts only where a summary confirms it

	unblocked, unconfirmed unset
}

// mostChunks is how many steps a prompt may run in: far above a million tokens in chunks of
// 512. mostMembers is how many requests all steps may have together: 1,000 in each of a million.
const (
	mostChunks  = 1 << 12
	mostMembers = 1 << 30
)

// unset finds the indices of an array that are still to be set, however many ranges set it:
// by index, the next one or one before that.
type unset []int32

func newUnset(n int64) unset {
	s := make(unset, n+1)
	for u := range s {
		s[u] = int32(u)
	}
	return s
}

// from is the first index from u on that is to be set; the length of the array when there is none.
func (s unset) from(u int64) int64 {
	for int64(s[u]) != u {
		s[u] = s[s[u]]
		u = int64(s[u])
	}
	return u
}

// each hands over the indices of [lo, hi) that were to be set.
func (s unset) each(lo, hi int64, set func(u int64)) {
	for u := s.from(lo); u < hi; u = s.from(u) {
		set(u)
		s[u]++
	}
}

// members is in how many steps of first..last the lives ran together, as they say.
func members(lives []life, first, last int64) (n int64) {
	for i := range lives {
		if l := &lives[i]; l.broken == "" {
			n += max(0, min(last, l.tail)-max(first, l.s)+1)
		}
	}
	return n
}

func newPlan(lives []life, first, last int64, s *Steps, lost []Span) *plan {
	n, d := last-first+1, s.Dep
	p := &plan{lives: lives, first: first, async: d.Engine.IsAsync(), recorded: s.Run.Steps,
		budget: d.Engine.MaxNumBatchedTokens, threshold: d.Engine.LongPrefillThreshold, chunking: d.Engine.ChunkedPrefill,
		summary: make([]int32, n), decodes: make([]int32, n), tails: make([]int32, n), firsts: make([]int32, n),
		prefills: make([]int32, n), prompts: make([]int64, n), running: make([]int32, n),
		blocked: make([]Reason, n), noTail: make([]bool, n), confirm: make([]bool, n), unblocked: newUnset(n), unconfirmed: newUnset(n)}
	for i := range p.summary {
		p.summary[i] = -1
	}
	for i := range s.Run.Steps {
		p.summary[s.Run.Steps[i].ID-first] = int32(i)
	}
	p.count()
	for _, l := range lost {
		p.mustConfirm(l.StartNs, l.EndNs-1)
	}
	p.guessCached()
	p.cut()
	p.dropUncertain()
	return p
}

// release lets go of what only the reconstruction needed: lives and tails stay.
func (p *plan) release() {
	p.summary = nil
	p.decodes = nil
	p.tails = nil
	p.firsts = nil
	p.prefills = nil
	p.prompts = nil
	p.running = nil
	p.blocked = nil
	p.confirm = nil
	p.recorded = nil
	p.unblocked = nil
	p.unconfirmed = nil
}

// span clips a step interval to the plan and returns array indices [lo, hi).
func (p *plan) span(from, to int64) (lo, hi int64) {
	lo = max(0, from-p.first)
	hi = min(int64(len(p.summary)), to-p.first+1)
	return lo, max(lo, hi)
}

// count fills the per-step counters that do not depend on chunk sizes.
func (p *plan) count() {
	for i := range p.lives {
		l := &p.lives[i]
		if l.broken != "" {
			p.block(l.from, l.to, l.broken)
			continue
		}
		p.add(p.decodes, l.t+1, l.sure)
		p.add(p.tails, l.sure+1, l.tail)
		p.add(p.firsts, l.t+1, min(l.t+1, l.tail))
		p.add(p.prefills, l.s, l.t)
		if l.guess {
			p.mustConfirm(l.s, l.tail)
		}
	}
}

// mustConfirm makes steps count only where a summary confirms them.
func (p *plan) mustConfirm(from, last int64) {
	lo, hi := p.span(from, last)
	p.unconfirmed.each(lo, hi, func(u int64) { p.confirm[u] = true })
}

func (p *plan) add(to []int32, from, last int64) {
	lo, hi := p.span(from, last)
	for u := lo; u < hi; u++ {
		to[u]++
	}
}

// block makes steps unknown; the first reason stays.
func (p *plan) block(from, to int64, why Reason) {
	lo, hi := p.span(from, to)
	p.unblocked.each(lo, hi, func(u int64) { p.blocked[u] = why })
}

// guessCached finds the cached tokens that no snapshot tells: when every step
// of s..t has a summary and no other request prefills in them, they are the
// prompt minus the prompt tokens that ran (spec#counted-hits). Prompt tokens are the
// scheduled ones minus the decodes, since labels are wrong under asynchronous
// scheduling.
func (p *plan) guessCached() {
	for i := range p.lives {
		l := &p.lives[i]
		if l.broken != "" || l.cached >= 0 {
			continue
		}
		if ran, ok := p.promptTokensOf(l); ok && ran >= 1 && ran <= l.prompt {
			l.cached = l.prompt - ran
			continue
		}
		l.noPrefill = cachedUnknown
	}
}

func (p *plan) promptTokensOf(l *life) (int64, bool) {
	lo, hi := p.span(l.s, l.t)
	if hi-lo != l.t-l.s+1 {
		return 0, false
	}
	var ran int64
	for u := lo; u < hi; u++ {
		if p.summary[u] < 0 || p.prefills[u] != 1 || p.blocked[u] != "" {
			return 0, false
		}
		ran += p.recorded[p.summary[u]].ScheduledTokens - int64(p.decodes[u]+p.tails[u])
	}
	return ran, true
}

// cut divides every prompt into chunks: greedily in scheduling order under the
// token budget, decodes first. A prompt that does not end exactly in its
// FIRST_TOKEN step stays unplanned.
func (p *plan) cut() {
	var queue, active []*life
	for i := range p.lives {
		switch l := &p.lives[i]; {
		case l.broken != "" || l.noPrefill != "":
		case l.t-l.s >= mostChunks:
			l.noPrefill = prefillUnknown
		default:
			queue = append(queue, l)
		}
	}
	for u := int64(0); len(queue)+len(active) > 0; u++ {
		if len(active) == 0 {
			u = queue[0].s
		}
		for len(queue) > 0 && queue[0].s == u {
			active = append(active, queue[0])
			queue = queue[1:]
		}
		active = p.cutStep(active, u)
	}
}

// cutStep gives the active prompts their chunks of step u and returns those
// that go on.
func (p *plan) cutStep(active []*life, u int64) []*life {
	budget := p.budget
	if k := u - p.first; k >= 0 && k < int64(len(p.decodes)) {
		budget -= int64(p.decodes[k] + p.tails[k])
	}
	going := active[:0]
	for _, l := range active {
		ran := l.ran(u - 1)
		left := l.prompt - l.cached - ran
		n := p.chunkSize(left, budget)
		budget -= n
		l.upTo = append(l.upTo, ran+n)
		switch {
		case n < 1 || n == left && u < l.t && !p.endsEarly(l, u) || n < left && u == l.t && !l.guess:
			l.noPrefill, l.upTo = prefillUnknown, nil
		case u < l.t:
			going = append(going, l)
		}
	}
	return going
}

// endsEarly accepts a prompt that ends one step before an abort without a first
// token: under asynchronous scheduling its first decode was in flight.
func (p *plan) endsEarly(l *life, u int64) bool {
	if !l.guess || !p.async || u != l.t-1 {
		return false
	}
	if k := l.t - p.first; k >= 0 && k < int64(len(p.tails)) {
		p.prefills[k]--
		p.tails[k]++
		p.firsts[k]++
	}
	l.t, l.sure = u, u
	return true
}

func (p *plan) chunkSize(left, budget int64) int64 {
	if !p.chunking {
		return left
	}
	if p.threshold > 0 {
		left = min(left, p.threshold)
	}
	return max(0, min(left, budget))
}

// Part is one phase of a run, or the whole run where run.yaml has no phases,
// with the time that divides training from hold-out (spec#hold-out).
type Part struct {
	Phase   int // index into the deployment's phases; -1 for the whole run
	Name    string
	StartNs int64
	CutNs   int64 // rows at or after it are hold-out
	EndNs   int64 // exclusive
}

// Parts divides a run: the last 1-split in time of each phase is hold-out. A
// phase counts from its first to its last recorded moment, since recordings
// may start late and phases end late. The warmup phase has no hold-out.
func Parts(run *trace.Run, d *deploy.Deployment, split float64) []Part {
	first, last, ok := extent(run)
	if !ok {
		return nil
	}
	return PartsOf(first, last, d, split)
}

// parts are those of the run.
func (s *Steps) parts(split float64) []Part {
	if of := s.Run.Slice; of != nil && len(s.Run.Steps) > 0 {
		return PartsOf(of.FirstNs, of.LastNs, s.Dep, split)
	}
	return Parts(s.Run, s.Dep, split)
}

// PartsOf is Parts of a recording from first to last. Phases that all lie outside it are on another
// clock, that of clients that were not aligned: none then.
func PartsOf(first, last int64, d *deploy.Deployment, split float64) []Part {
	if !slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.StartNs <= last && p.EndNs > first }) {
		return []Part{{Phase: -1, StartNs: first, CutNs: cutAt(first, last+1, split), EndNs: last + 1}}
	}
	parts := make([]Part, len(d.Phases))
	for i, p := range d.Phases {
		start := max(p.StartNs, first)
		end := min(p.EndNs, last+1)
		parts[i] = Part{Phase: i, Name: p.Name, StartNs: p.StartNs, CutNs: cutAt(start, max(start, end), split), EndNs: p.EndNs}
		if p.Name == deploy.WarmupPhase {
			parts[i].CutNs = p.EndNs
		}
	}
	return parts
}

func cutAt(start, end int64, split float64) int64 {
	return start + int64(float64(end-start)*split)
}

// extent is the time from the first to the last recorded step, or without
// steps from the first to the last arrival.
func extent(run *trace.Run) (first, last int64, ok bool) {
	if n := len(run.Steps); n > 0 {
		return run.Steps[0].TsStartNs, run.Steps[n-1].TsStartNs, true
	}
	for i := range run.Requests {
		at := run.Requests[i].ArrivedNs
		if !at.OK {
			continue
		}
		if !ok || at.V < first {
			first = at.V
		}
		if !ok || at.V > last {
			last = at.V
		}
		ok = true
	}
	return first, last, ok
}

// place finds the part a stamp belongs to: its phase index (-1 for none) and
// whether it is hold-out.
func place(parts []Part, ns int64) (phase int32, holdOut bool) {
	for _, p := range parts {
		if ns >= p.StartNs && ns < p.EndNs {
			return int32(p.Phase), ns >= p.CutNs
		}
	}
	return -1, false
}

// warmUp tells rows of the warm-up (spec#warm-up): those of the warmup phase when
// there is one, else those up to the 10th recorded step.
type warmUp struct {
	byPhase bool
	phases  []deploy.Phase
	lastID  int64 // last warm-up step id, without a warmup phase
}

func (s *Steps) newWarmUp() warmUp {
	d := s.Dep
	w := warmUp{phases: d.Phases}
	w.byPhase = slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.Name == deploy.WarmupPhase })
	if of, n := s.Run.Slice, min(warmUpSteps, len(s.Run.Steps)); n > 0 && (of == nil || of.IsFirst()) {
		w.lastID = s.Run.Steps[n-1].ID
	}
	return w
}

// holds reports whether a row starting at ns, or joined to step id, is warm-up.
func (w *warmUp) holds(ns, id int64) bool {
	if !w.byPhase {
		return id <= w.lastID
	}
	for i := range w.phases {
		if p := &w.phases[i]; ns >= p.StartNs && ns < p.EndNs {
			return p.Name == deploy.WarmupPhase
		}
	}
	return false
}

func inside(spans []Span, ns int64) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return ns >= s.StartNs && ns < s.EndNs })
}

// keep appends a row that starts at recorded step i.
func (b *betaBuilder) keep(i *trace.Step, iv interval, phase int32, held bool) {
	t, k := b.t, b.look(iv)
	t.X = append(t.X, b.x...)
	t.Y = append(t.Y, iv.y)
	t.Steps = append(t.Steps, iv.steps())
	t.Regime = append(t.Regime, k.regime())
	t.TimeNs = append(t.TimeNs, i.TsStartNs)
	if !b.o.Slim {
		t.FirstStep = append(t.FirstStep, iv.from)
		t.LastStep = append(t.LastStep, iv.to)
	}
	t.Tag = append(t.Tag, k.tag)
	t.Phase = append(t.Phase, phase)
	t.Factor = append(t.Factor, k.factor)
	t.HoldOut = append(t.HoldOut, held)
	t.Sets = append(t.Sets, k.sets())
	t.FloorUs = append(t.FloorUs, k.floorUs)
	t.Batch = append(t.Batch, k.requests/iv.steps())
	t.Context = append(t.Context, k.context/math.Max(1, k.decodes))
	t.Kept++
	b.others.keep(t, b.x, func(ema, x []float64) { b.vectorUnder(iv, ema, x) })
}

// widen extends the per-step feature range by the interval's steps.
func (b *betaBuilder) widen(iv interval) {
	for u := iv.from; u <= iv.to; u++ {
		x := b.x
		if iv.to > iv.from {
			x, _, _ = b.step(u)
		}
		b.t.widen(x)
	}
}

// widen extends the range of the features by x.
func (t *Table) widen(x []float64) {
	for j, v := range x {
		t.Min[j], t.Max[j] = math.Min(t.Min[j], v), math.Max(t.Max[j], v)
	}
}

// looks is what the steps of a row have in common.
type looks struct {
	tag                        Tag
	prefill, decode, few       bool // every step is pure prefill; pure decode; 1-4 tokens
	preempting, full           bool // some step
	factor                     float64
	floorUs                    float64
	requests, decodes, context float64
}

func (b *betaBuilder) look(iv interval) looks {
	k := looks{prefill: true, decode: true, few: true, factor: 1}
	for u := iv.from; u <= iv.to; u++ {
		st := b.s.At(u)
		k.add(&st.In, b.sp.FloorUs(&st.In))
		k.tag = max(k.tag, st.Tag)
		if st.Recorded >= 0 {
			k.record(&b.s.Run.Steps[st.Recorded])
		}
	}
	if iv.approx {
		k.tag = tagLagApproximate
	}
	return k
}

func (k *looks) add(in *features.StepInput, floorUs float64) {
	k.prefill = k.prefill && in.DecodeTokens == 0
	k.decode = k.decode && in.PrefillTokens == 0
	k.few = k.few && in.ScheduledTokens <= 4
	k.floorUs += float64(floorUs)
	k.requests += in.NumPrefillReqs + in.NumDecodeReqs
	k.decodes += in.NumDecodeReqs
	k.context += in.DecodeContextTokens
}

func (k *looks) record(s *trace.Step) {
	k.preempting = k.preempting || s.NumPreempted > 0
	k.full = k.full || s.KVUsage > 0.9
	k.factor = math.Min(k.factor, preemptionFactor(s.NumPreempted, s.RunningDepth))
}

// preemptionFactor is 0.5 where more than half of the running requests
// were preempted (strict), else 1.
func preemptionFactor(preempted, running int64) float64 {
	if float64(preempted)/float64(max(1, running)) > 0.5 {
		return 0.5
	}
	return 1
}

func (k *looks) regime() Regime {
	switch {
	case k.decode:
		return Decode
	case k.prefill:
		return Prefill
	}
	return Mixed
}

func (k *looks) sets() StressSet {
	var s StressSet
	for _, c := range []struct {
		is  bool
		set StressSet
	}{{k.preempting, Preempting}, {k.full, fullCache}, {k.prefill, purePrefill}, {k.decode, PureDecode}, {k.few, fewTokens}} {
		if c.is {
			s |= c.set
		}
	}
	return s
}

// Constants of rows and cleaning.
const (
	maxSteps       = 20  // steps of one row (spec#multi-step-rows)
	spikeFactor    = 10  // times the median of the window (spec#row-drops)
	spikeWindow    = 101 // rows
	warmUpSteps    = 10  // spec#warm-up
	evidenceTokens = 64  // prefill tokens an evidence interval must exceed (spec#lag)
	evidenceLags   = 3   // lags 0, 1, 2
)

// DefaultSplit is the training share of each phase (spec#hold-out).
const DefaultSplit = 0.8

// Span is a half-open time interval on the monotonic clock, ns.
type Span struct{ StartNs, EndNs int64 }

// Options decide how recorded steps (Beta) or requests (Alpha) become rows. The zero value asks for
// the version's default target at lag 0.
type Options struct {
	Target    string    // cadence or duration; overhead, admission, egress or queue; empty: the version's default
	Lag       int       // of Beta: steps between schedule() and execution, 0..2 (spec#lag); cadence only
	Gamma     float64   // preemption EMA, in (0, 1]; 0: features.DefaultGamma
	Gammas    []float64 // factors whose columns are wanted too (Table.Variants); Gamma may be among them
	Split     float64   // training share of each phase, in (0, 1]; 0: DefaultSplit
	Saturated []Span    // rows that start, and requests that arrive, inside are dropped as saturated
	// Preempting keeps such rows of Beta for training within features.MemorySteps of a preemption (spec#saturation).
	Preempting bool
	Stride     int  // one row in so many is kept (spec#max-rows); up to 1: all
	Slim       bool // of Beta: without FirstStep and LastStep, which only rows that are written out need
}

// DefaultBetaTarget is the version's beta target (spec#spec-version).
func DefaultBetaTarget(v features.Version) string {
	if v == features.V10 {
		return coeff.Duration
	}
	return coeff.Cadence
}

// DefaultAlphaTarget is the version's alpha target (spec#spec-version).
func DefaultAlphaTarget(v features.Version) string {
	if v == features.V10 {
		return coeff.Queue
	}
	return coeff.Overhead
}

// resolve fills defaults and checks ranges: of the targets that are known, the default one where none is named.
func (o Options) resolve(kind, usual string, known ...string) (Options, error) {
	if o.Target == "" {
		o.Target = usual
	}
	if o.Gamma == 0 {
		o.Gamma = features.DefaultGamma
	}
	if o.Split == 0 {
		o.Split = DefaultSplit
	}
	last := len(known) - 1
	switch {
	case !slices.Contains(known, o.Target):
		return o, trace.Errorf(BadOption, "%s target: got %q, want %s or %s", kind, o.Target, strings.Join(known[:last], ", "), known[last])
	case o.Lag < 0 || o.Lag >= evidenceLags:
		return o, trace.Errorf(BadOption, "lag: got %d steps, want 0, 1 or 2", o.Lag)
	case !(o.Gamma > 0 && o.Gamma <= 1):
		return o, trace.Errorf(BadOption, "gamma: got %g, want a number in (0, 1]", o.Gamma)
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(BadOption, "split: got %g, want a share in (0, 1]", o.Split)
	}
	return o, nil
}

// AssumedLag is the lag of a run whose data cannot tell (spec#lag).
func AssumedLag(d *deploy.Deployment) int {
	if d.Engine.IsAsync() {
		return 1
	}
	return 0
}
