package rows

// This file makes the rows of delays around the engine (spec#delay-targets): one row for each request,
// with the delay as target and the queue state at the last step that had started as features.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Alpha returns the request rows of one target (spec#delay-targets). Every request of the run is
// kept or dropped for one reason. The space's version must be the one given to Rebuild.
func (s *Steps) Alpha(sp *features.Space, o Options) (*Table, error) {
	o, err := o.resolve("alpha", DefaultAlphaTarget(s.Version),
		coeff.Overhead, coeff.Admission, coeff.Egress, coeff.Queue)
	if err != nil {
		return nil, err
	}
	b := newAlphaBuilder(s, sp, o)
	for i := range s.Run.Requests {
		if !s.Run.AsksFor(&s.Run.Requests[i]) {
			continue
		}
		b.t.Read++
		if why := b.addRequest(i); why != "" {
			b.t.countDrop(why, 1)
		}
	}
	if o.Target != coeff.Egress && len(s.Run.Requests) == 0 {
		b.addObserved()
	}
	b.sortByTime()
	b.addFindings()
	b.t.checkColumns()
	return b.t, nil
}

// alphaBuilder makes the table of one target.
type alphaBuilder struct {
	s     *Steps
	sp    *features.Space
	o     Options
	t     *Table
	ema   averages // preemption average after each recorded step
	parts []Part   // phases, with the time that divides training from hold-out
	warm  warmUp
	hits  map[string]prefixHits // by core id (a request in the engine); nil without prefix caching
	blind int                   // rows of requests without a snapshot although caching is on
	bound []trace.OverheadBound // overhead: by request of Run.Requests, or of Run.Observed where there are none
	burst []bool                // overhead: by request of Run.Requests, whether it follows others of its burst (followBurst)
	ends  map[string]lastEnd    // egress: last sample by API span
	other variants              // of other smoothing factors

	// The row that is being made.
	x  []float64
	in features.QueueInput // the inputs of x
	k  int                 // index of the recorded step that it joins
}

// lastEnd is, of the samples (core requests) of one API request, the one that finished last.
type lastEnd struct {
	ns  int64 // when it finished
	row int   // its index in Run.Requests
}

// newAlphaBuilder returns a builder with what all rows have in common: preemption averages, parts,
// warm-up, and for overhead and egress the bounds and the last samples.
func newAlphaBuilder(s *Steps, sp *features.Space, o Options) *alphaBuilder {
	p := len(sp.AlphaFeatures())
	b := &alphaBuilder{
		s:     s,
		sp:    sp,
		o:     o,
		ema:   s.preemptionAverages(o.Gamma),
		parts: s.parts(o.Split),
		warm:  s.newWarmUp(),
		x:     make([]float64, p),
		t: &Table{
			Run:    s.Run.ID,
			Config: s.Config,
			Target: o.Target,
			Gamma:  o.Gamma,
			P:      p,
			Hits:   make([]int, p),
			Min:    repeated(p, math.Inf(1)),
			Max:    repeated(p, math.Inf(-1)),
		},
	}
	n := Expected(len(s.Run.Requests), o.Stride)
	b.t.reserveRows(n, false)
	b.t.ID = make([]string, 0, n)
	b.other = s.newVariants(b.t, otherGammas(o.Gammas, o.Gamma))
	if s.Dep.Engine.PrefixCaching {
		b.hits = s.seen.hits
	}
	switch o.Target {
	case coeff.Overhead:
		b.bound = s.boundOverheads()
		b.burst = followBurst(s.Run.Requests)
		if len(s.Run.Requests) == 0 {
			b.bound = s.boundStatedOverheads()
		}
	case coeff.Egress:
		b.ends = lastEnds(s.Run.Requests)
	}
	return b
}

// boundOverheads returns the bounds of the overhead of every request, from the stamps of the
// requests and of the steps around it.
func (s *Steps) boundOverheads() []trace.OverheadBound {
	requests := s.Run.Requests
	marks := func(yield func(trace.StepMark) bool) {
		for k := range s.Run.Steps {
			if !yield(s.Run.Steps[k].Mark()) {
				return
			}
		}
	}
	stamps := func(i int) trace.OverheadStamps { return requests[i].Stamps() }
	return trace.BoundOverheads(len(requests), stamps, marks, s.hasAllJourneys())
}

// boundStatedOverheads returns the bounds of the overhead of every request of the clients whose queueing delay the
// server stated. The engine takes requests up between steps, so the time before its queue contains a wait for the
// step that runs, which a simulator makes by itself. The start of that step is not known as precisely as a step is
// long, because its clock is that of a log; but the wait is no longer than the longest step around it.
func (s *Steps) boundStatedOverheads() []trace.OverheadBound {
	seen := s.Run.Observed
	areAllStated := true
	for i := range seen {
		areAllStated = areAllStated && seen[i].QueueUs.OK
	}
	steps := s.Run.Steps
	marks := func(yield func(trace.StepMark) bool) {
		for k := range steps {
			if !yield(steps[k].Mark()) {
				return
			}
		}
	}
	stamps := func(i int) trace.OverheadStamps {
		r := &seen[i]
		queued, ok := r.QueuedAtNs()
		return trace.OverheadStamps{
			ArrivedNs:  trace.Some(r.SentNs()),
			QueuedNs:   trace.Opt[int64]{V: queued, OK: ok},
			FinishedNs: r.LastChunkNs,
		}
	}
	bounds := trace.BoundOverheads(len(seen), stamps, marks, areAllStated)
	for i := range bounds {
		b := &bounds[i]
		if !b.OK || b.Exact {
			continue
		}
		// The longest of the steps k-1, k and k+1, where k is the last one that started before QUEUED.
		k := lastStart(steps, stamps(i).QueuedNs.V)
		longestNs := int64(0)
		for j := max(1, k); j <= min(k+2, len(steps)-1); j++ {
			longestNs = max(longestNs, steps[j].TsStartNs-steps[j-1].TsStartNs)
		}
		b.LoUs = max(0, b.HiUs-float64(longestNs)/1e3)
	}
	return bounds
}

// hasAllJourneys reports whether no request is known to lack a journey: none was sampled out, and
// every API span has its core span.
func (s *Steps) hasAllJourneys() bool {
	if s.Dep.Tracing.JourneySampleRate.Or(1) < 1 || s.seen.unknown > 0 {
		return false
	}
	for i := range s.Run.Requests {
		if r := &s.Run.Requests[i]; r.Source == trace.SourceFork && !r.CoreID.OK {
			return false
		}
	}
	return true
}

// lastEnds returns the sample that finished last of each API request. The API answers when its last
// sample is done, so only that one has an egress time.
func lastEnds(requests []trace.Request) map[string]lastEnd {
	ends := make(map[string]lastEnd)
	for i := range requests {
		r := &requests[i]
		if !r.APISpanID.OK || !r.FinishedNs.OK {
			continue
		}
		if e, seen := ends[r.APISpanID.V]; !seen || r.FinishedNs.V > e.ns {
			ends[r.APISpanID.V] = lastEnd{ns: r.FinishedNs.V, row: i}
		}
	}
	return ends
}

// addObserved appends rows of requests whose queueing delay and TTFT from scheduling the server stated in its
// answers to clients (spec#server-metrics). These have no stamps of the server: the first chunk is that of the first
// token, with the delivery that the clients' clock includes, and the server's times lie before it. The client's TTFT
// less both is the upper bound of the overhead, which is front end and network. The client's own waits are in none of
// them.
func (b *alphaBuilder) addObserved() {
	for i := range b.s.Run.Observed {
		o := &b.s.Run.Observed[i]
		if !o.QueueUs.OK {
			continue
		}
		b.t.Read++
		if why := b.addStated(i); why != "" {
			b.t.countDrop(why, 1)
		}
	}
}

// addStated appends the row of the stated queueing delay of observed request i. It returns the reason when there is none.
func (b *alphaBuilder) addStated(i int) trace.Code {
	o := &b.s.Run.Observed[i]
	queued, ok := o.QueuedAtNs()
	if !ok || !o.PromptTokens.OK || !o.Success.Or(true) {
		return codeNoTarget
	}
	k := lastStart(b.s.Run.Steps, queued)
	if k < 0 {
		return codeNoTarget
	}
	step := &b.s.Run.Steps[k]
	switch {
	case b.warm.isWarmUp(queued, step.ID):
		return codeWarmUp
	case IsInside(b.o.Saturated, queued):
		return Saturated
	}
	// queue: as stated. admission: from the client's sending to scheduling, its TTFT less that of the server
	// from scheduling on. overhead: that less the queueing delay.
	target := alphaTarget{y: o.QueueUs.V, joinNs: queued}
	if b.o.Target != coeff.Queue {
		if !o.TTFTUs.OK {
			return codeNoTarget
		}
		target.y = o.TTFTUs.V - o.ServerTTFTUs.V
		if b.o.Target == coeff.Overhead {
			target.y -= o.QueueUs.V
		}
		if target.y < 0 {
			return codeNoTarget
		}
		target.lo = target.y
		target.hi = target.y
		if b.o.Target == coeff.Overhead {
			target.lo = min(b.bound[i].LoUs, target.y)
			target.exact = b.bound[i].Exact
		}
	}
	r := &trace.Request{CoreID: trace.Some(o.ID), QueuedNs: trace.Some(queued), PromptTokens: o.PromptTokens}
	if why := b.vector(r, k); why != "" {
		return why
	}
	return b.appendRow(r, step, queued, target)
}

// addRequest appends the row of request i. It returns the reason when the request has none.
func (b *alphaBuilder) addRequest(i int) trace.Code {
	r := &b.s.Run.Requests[i]
	if r.Source == trace.SourceStock { // spans of unmodified vLLM have durations, no stamps on the steps' clock
		return codeNoTarget
	}
	v, why := b.target(i)
	if why != "" {
		return why
	}
	k := lastStart(b.s.Run.Steps, v.joinNs)
	if k < 0 {
		return codeNoTarget
	}
	at := r.ArrivedNs.Or(r.QueuedNs.V)
	step := &b.s.Run.Steps[k]
	switch {
	case b.warm.isWarmUp(at, step.ID):
		return codeWarmUp
	case IsInside(b.o.Saturated, at):
		return Saturated
	}
	if why := b.vector(r, k); why != "" {
		return why
	}
	return b.appendRow(r, step, at, v)
}

// alphaTarget is the measured delay of one request, for overhead with the interval [lo, hi] it is
// known to lie in.
type alphaTarget struct {
	y, lo, hi float64 // us
	exact     bool
	joinNs    int64 // the row gets the queue state of the last step that had started then
}

// target returns the delay of request i. All targets are joined at QUEUED except egress, which is
// joined at FINISHED, and overhead in a burst, at ARRIVED (spec#join).
func (b *alphaBuilder) target(i int) (alphaTarget, trace.Code) {
	r := &b.s.Run.Requests[i]
	out := alphaTarget{joinNs: r.QueuedNs.V}
	var from, to trace.Opt[int64]
	switch b.o.Target {
	case coeff.Overhead:
		return b.overheadOf(i)
	case coeff.Admission:
		from, to = r.ArrivedNs, r.ScheduledNs
	case coeff.Queue:
		from, to = r.QueuedNs, r.ScheduledNs
	case coeff.Egress:
		from = r.FinishedNs
		to = r.DepartedNs
		out.joinNs = r.FinishedNs.V
	}
	if !from.OK || !to.OK || !r.QueuedNs.OK || !r.PromptTokens.OK {
		return out, codeNoTarget
	}
	if last, ok := b.ends[r.APISpanID.V]; ok && last.row != i { // egress of a sample that was not the last
		return out, codeNoTarget
	}
	if out.y = SpanUs(from.V, to.V); out.y < 0 {
		return out, codeNoTarget
	}
	return out, ""
}

// overheadOf returns the overhead of request i: its upper bound as y, and both bounds.
func (b *alphaBuilder) overheadOf(i int) (alphaTarget, trace.Code) {
	r := &b.s.Run.Requests[i]
	o := &b.bound[i]
	if !o.OK || !r.PromptTokens.OK || o.HiUs < 0 {
		return alphaTarget{}, codeNoTarget
	}
	joinNs := r.QueuedNs.V
	if b.burst[i] {
		joinNs = r.ArrivedNs.V
	}
	return alphaTarget{y: o.HiUs, lo: o.LoUs, hi: o.HiUs, exact: o.Exact, joinNs: joinNs}, ""
}

// burstNs is how far apart requests of one burst arrive at most.
const burstNs = 1_000_000

// followBurst reports for each request whether another one that arrived within burstNs of it was queued between its own
// ARRIVED and QUEUED. The state of the engine at QUEUED then contains requests of the same burst, which are not there
// when a simulator, at the arrival, asks for the overhead.
func followBurst(requests []trace.Request) []bool {
	var order []int // by QUEUED
	for i := range requests {
		if r := &requests[i]; r.ArrivedNs.OK && r.QueuedNs.OK {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(requests[a].QueuedNs.V, requests[b].QueuedNs.V) })
	follows := make([]bool, len(requests))
	for k, i := range order {
		r := &requests[i]
		for n := k - 1; n >= 0 && !follows[i]; n-- { // most often the one just before
			other := &requests[order[n]]
			if other.QueuedNs.V <= r.ArrivedNs.V {
				break
			}
			apartNs := other.ArrivedNs.V - r.ArrivedNs.V
			follows[i] = other.QueuedNs.V < r.QueuedNs.V && max(apartNs, -apartNs) <= burstNs
		}
	}
	return follows
}

// SpanUs returns the time between two stamps in us (spec#stamps).
func SpanUs(fromNs, toNs int64) float64 { return float64(toNs-fromNs) / 1000 }

// vector writes the features of request r, joined to recorded step k, into b.x. It returns the
// reason when they cannot be used.
func (b *alphaBuilder) vector(r *trace.Request, k int) trace.Code {
	b.in = b.input(r, k)
	b.k = k
	hits, err := b.sp.Alpha(&b.in, b.x)
	if err != nil {
		return codeOf(err)
	}
	if hits == 0 {
		return ""
	}
	for _, slot := range hits.Slots() {
		b.t.Hits[slot-1]++
	}
	return features.FeatureOutOfRange
}

// input returns the queue state at recorded step k with the prompt of request r
// (spec#queue-inputs).
func (b *alphaBuilder) input(r *trace.Request, k int) features.QueueInput {
	s := &b.s.Run.Steps[k]
	in := features.QueueInput{
		RunningDepth:  float64(s.RunningDepth),
		WaitingDepth:  float64(s.WaitingDepth),
		KVUsageRatio:  s.KVUsage,
		PromptTokens:  float64(r.PromptTokens.V),
		PreemptionEMA: b.ema.after(k),
	}
	if first, ok := b.hits[r.CoreID.V]; ok {
		in.PrefixHitRatio = first.v11
		if b.s.Version == features.V10 {
			in.PrefixHitRatio = first.v10
		}
	} else if b.s.Dep.Engine.PrefixCaching {
		b.blind++
	}
	if b.s.Version == features.V10 {
		in.KVFreeBytes = b.sp.KVFreeBytes(float64(s.BlocksTotal), s.KVUsage)
	} else {
		in.KVFreeBlocks = float64(s.BlocksFree)
	}
	return in
}

// appendRow appends the row of request r, joined to step s, or returns the code for which it is dropped.
// at is the time of the row, v its target; the features are in b.x. Rows that thinning removes still widen
// the range of the features.
func (b *alphaBuilder) appendRow(r *trace.Request, s *trace.Step, at int64, v alphaTarget) trace.Code {
	t := b.t
	phase, held := partOf(b.parts, at)
	if !held {
		t.widenRange(b.x)
	}
	if !survivesThinning(at, b.o.Stride) {
		return codeRowsThinned
	}
	regime := Idle
	if s.WaitingDepth > 0 {
		regime = Waiting
	}
	var set StressSet
	if s.KVUsage > fullCacheUsage {
		set = fullCache
	}
	t.X = append(t.X, b.x...)
	t.Y = append(t.Y, v.y)
	t.Steps = append(t.Steps, 1)
	t.Factor = append(t.Factor, 1)
	if t.Target == coeff.Overhead {
		t.Lo = append(t.Lo, v.lo)
		t.Hi = append(t.Hi, v.hi)
		t.Exact = append(t.Exact, v.exact)
	}
	t.Regime = append(t.Regime, regime)
	t.TimeNs = append(t.TimeNs, at)
	t.FirstStep = append(t.FirstStep, s.ID)
	t.LastStep = append(t.LastStep, s.ID)
	t.Tag = append(t.Tag, TagJourney)
	t.Phase = append(t.Phase, phase)
	t.HoldOut = append(t.HoldOut, held)
	t.Sets = append(t.Sets, set)
	t.FloorUs = append(t.FloorUs, 0) // of step times only
	t.Batch = append(t.Batch, float64(s.RunningDepth))
	t.Context = append(t.Context, float64(r.PromptTokens.V))
	t.ID = append(t.ID, r.CoreID.Or(r.APIID.V))
	t.Kept++
	b.other.appendRow(t, b.x, func(ema averages, x []float64) { b.vectorUnder(b.in, ema.after(b.k), x) })
	return ""
}

// addFindings adds warnings of inputs that were not recorded.
func (b *alphaBuilder) addFindings() {
	if b.blind > 0 {
		b.t.Findings = append(b.t.Findings, trace.Findingf(codeNotRecorded,
			"%s: %d of %d requests have no snapshot; their prefix hits count as 0", b.s.Run.ID, b.blind, b.t.Read))
	}
	if b.o.Target == coeff.Overhead && len(b.s.Run.Steps) == 0 {
		b.t.Findings = append(b.t.Findings, trace.Findingf(OverheadUnknown,
			"%s: no steps recorded: the overhead has no lower bound and no queue state to join", b.s.Run.ID))
	}
}

// sortByTime sorts rows by time, stably. Requests are ordered by arrival already, except those
// without one, whose row has the QUEUED stamp as its time.
func (b *alphaBuilder) sortByTime() {
	t := b.t
	if slices.IsSorted(t.TimeNs) {
		return
	}
	order := make([]int, t.Kept)
	for i := range order {
		order[i] = i
	}
	stat.SortStable(order, func(i, j int) int { return cmp.Compare(t.TimeNs[i], t.TimeNs[j]) })
	t.pickRows(order, false)
}
