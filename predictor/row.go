package predictor

// This file makes one row: the state of the engine as the router could see it.

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// makeRow returns the row of the i-th request with the engine's state at t (ns), or the reason why
// it has none.
func (b *rowBuilder) makeRow(i int, t int64) (Row, reason) {
	l := &b.lives[i]
	if reason := b.refusedReason(l); reason != "" {
		return Row{}, reason
	}
	r := Row{
		RequestID:        l.id,
		DecisionNs:       l.arrived.V,
		Phase:            l.phase,
		Stage:            b.stages[i],
		InputTokenLength: l.prompt.V,
		OutputTokens:     l.output,
		DepartedNs:       l.departed,
	}
	if reason := b.fillEngineState(&r, t); reason != "" {
		return Row{}, reason
	}
	if reason := b.fillPrefix(&r, i); reason != "" {
		return Row{}, reason
	}
	b.fillDerived(&r)
	b.fillTargets(&r, l)
	return r, ""
}

// refusedReason returns the first reason in a request's own record for which it is no row; "" if
// there is none.
func (b *rowBuilder) refusedReason(l *requestLife) reason {
	switch {
	case l.reason != "":
		return l.reason
	case b.isWarmUp(l):
		return warmUp
	case !b.o.KeepSaturated && rows.IsInside(b.src.Saturated, l.arrived.V):
		return saturated
	case !b.complete:
		return incompleteJourneys
	}
	return ""
}

// isWarmUp reports whether a request arrived in the warm-up.
func (b *rowBuilder) isWarmUp(l *requestLife) bool {
	if p := b.src.Deployment.PhaseAt(l.arrived.V); p != nil {
		return p.Name == deploy.WarmupPhase
	}
	return l.arrived.V < b.warmUpNs
}

// fillEngineState sets the columns of what the engine is doing at t (ns), from the journeys up to t (b.counts)
// and the last recorded step. With --state step, the numbers of waiting and running requests are those of
// that step. It returns a reason if a column is unknown, and counts how often steps and
// journeys agree.
func (b *rowBuilder) fillEngineState(r *Row, t int64) reason {
	c := b.counts
	st, stepIndex := b.steps.lastBy(t) // the last recorded step
	if st != nil {
		r.StateAgeUs = trace.Some(float64(r.DecisionNs-st.TsStartNs) / 1000)
	}
	fresh := st != nil && b.steps.isFresh(st, t)
	r.State = stateJourney
	r.NumRequestWaiting = c.inStatus[waiting]
	r.RunningEngine = c.inStatus[running]
	if b.o.State == stateStep {
		switch {
		case st == nil:
			return noState
		case !fresh:
			return staleState
		}
		r.State = stateStep
		r.NumRequestWaiting = int64(st.WaitingDepth)
		r.RunningEngine = int64(st.RunningDepth)
	}
	if fresh && b.steps.complete {
		b.compareStates(st, t)
	}
	tokens, ok := c.decodeTokens(t)
	if !ok {
		return noPace
	}
	r.DecodeBatch = c.decodes
	r.DecodeTokensResident = int64(tokens)
	if c.decodes > 0 {
		r.MeanContext = tokens / float64(c.decodes)
	}
	if reason := b.fillKV(r, st, tokens); reason != "" {
		return reason
	}
	p := c.prefillNow(stepIndex, b.src.Deployment.Engine.MaxNumBatchedTokens)
	r.StepPrefillTokens = p.now
	r.StepPrefillRequests = p.ending
	r.NextPrefillTokens = p.next
	r.NextPrefillRequests = p.nextEnding
	r.TokensWaitingAhead = c.ahead + p.left
	r.RequestsAhead = c.aheadRequests + p.leftRequests
	if b.steps.complete { // the last recorded step is the one that runs
		r.SinceStepUs = r.StateAgeUs
	}
	r.RunningInflight = c.inflight
	r.PrefillTokensInFlight = c.noFirst
	r.RecentTokensPerS, r.RecentPromptsPerS = c.recentArrivalRates(t)
	r.MeanOutputTokens = c.meanOutput()
	return ""
}

// fillKV sets the columns of the KV cache's use: that of the last step if every step is recorded or
// with --state step, otherwise (and before the first step) an estimate from resident tokens.
func (b *rowBuilder) fillKV(r *Row, st *trace.Step, decodeTokens float64) reason {
	if st != nil && (b.o.State == stateStep || b.steps.complete) {
		r.KVCachePercentage = st.KVUsage
		r.FreeBlocks = st.BlocksFree
		return ""
	}
	if b.blocks == 0 {
		return noKVState
	}
	r.FreeBlocks = max(0, b.blocks-b.residentBlocks(decodeTokens))
	r.KVCachePercentage = 1 - float64(r.FreeBlocks)/float64(b.blocks)
	return ""
}

// residentBlocks returns an estimate of the KV blocks of running requests: those of whole prompts
// while they are computed, because vLLM allocates them at once, and half a block more for each
// decode, whose last block is half full on average. Cached tokens do not count, because a shared
// prefix is in the cache once.
func (b *rowBuilder) residentBlocks(decodeTokens float64) int64 {
	size := float64(b.src.Deployment.Engine.BlockSize)
	c := b.counts
	blocks := math.Ceil((decodeTokens-float64(c.decodeCached))/size) + math.Floor(float64(c.decodes)/2)
	for _, i := range c.prefilling {
		blocks += math.Ceil(float64(c.lives[i].prompt.V-c.cachedTokensOf(int(i))) / size)
	}
	return int64(blocks)
}

// compareStates adds one row to the counts of how often the states by steps and by journeys agree.
func (b *rowBuilder) compareStates(st *trace.Step, t int64) {
	a := &b.out.Agreement
	a.Rows++
	switch {
	case int64(st.WaitingDepth) == b.counts.inStatus[waiting] && int64(st.RunningDepth) == b.counts.inStatus[running]:
		a.Equal++
	case t <= st.TsEndNs:
		a.Inside++
	case b.changedSince(st):
		a.Between++
	default:
		a.Other++
	}
}

// changedSince reports whether a request was queued or finished after the step was formed. Only the
// next step's summary can contain that.
func (b *rowBuilder) changedSince(st *trace.Step) bool {
	for i := range b.lives {
		l := &b.lives[i]
		hasQueued := b.counts.status[i] == waiting && l.queued.OK && l.queued.V > st.TsEndNs
		hasFinished := b.counts.status[i] == gone && l.finished.OK && l.finished.V > st.TsStartNs
		if hasQueued || hasFinished {
			return true
		}
	}
	return false
}

// fillPrefix sets the columns of the request's own prompt. It returns a reason if its cached share
// is unknown.
func (b *rowBuilder) fillPrefix(r *Row, i int) reason {
	l := &b.lives[i]
	r.PrefixScoreIndex = l.index
	r.PrefixScoreActual = l.actual
	switch {
	case !l.score.OK && b.o.PrefixScore == prefixActual:
		return noCachedTokens
	case !l.score.OK:
		return noBlockHashes
	}
	r.PrefixCacheScore = l.score.V
	r.OwnUncachedTokens = b.counts.uncached[i]
	for priority, tokens := range b.counts.byPriority {
		if priority < l.priority { // vLLM serves smaller numbers first
			r.BetterClassTokensAhead += tokens
		}
	}
	return ""
}

// fillDerived sets the columns of a row that are computed from its other columns.
func (b *rowBuilder) fillDerived(r *Row) {
	r.NumRequestRunning = r.RunningEngine
	r.DecodeTokensInFlight = r.DecodeTokensResident
	if b.o.Features == featuresLLMD {
		r.NumRequestRunning = r.RunningInflight
		r.DecodeTokensInFlight = 0
	}
	if r.NumRequestWaiting > 0 {
		r.IsQueued = 1
	}
	r.EffectiveInputTokens = (1 - r.PrefixCacheScore) * float64(r.InputTokenLength)
	r.PrefillScoreBucket = scoreBucket(r.PrefixCacheScore)
}

// scoreBucket returns min(3, floor(4 * score)) for a score in [0, 1].
func scoreBucket(score float64) int64 { return min(3, int64(4*score)) }

// fillTargets sets the measured latencies, and the state when the last token came.
func (b *rowBuilder) fillTargets(r *Row, l *requestLife) {
	ms := func(from, to trace.Opt[int64]) trace.Opt[float64] {
		return trace.Opt[float64]{V: float64(to.V-from.V) / 1e6, OK: from.OK && to.OK && to.V >= from.V}
	}
	r.TTFTMs = ms(l.arrived, l.first).V
	r.E2EMs = ms(l.arrived, l.departed)
	if n := l.output; n.OK && n.V > 1 {
		r.TPOTMs = ms(l.first, l.finished)
		r.TPOTMs.V /= float64(n.V - 1)
	}
	if !l.finished.OK {
		return
	}
	if st, _ := b.steps.lastBy(l.finished.V); st != nil {
		r.EndWaiting = trace.Some(int64(st.WaitingDepth))
		r.EndRunning = trace.Some(int64(st.RunningDepth))
		r.EndKV = trace.Some(st.KVUsage)
	}
}
