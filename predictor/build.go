package predictor

// This file makes the rows of one run: one for each request, at the moment a router decides about it.

import (
	"math"
	"path"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// source is one recorded run with its deployment.
type source struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
	Saturated  []rows.Span // requests that arrived inside are dropped as saturated
}

// Result has the rows of a run and the account of the requests that became none.
type Result struct {
	Rows      []Row
	Requests  int            // rows + sum of drops
	Dropped   map[reason]int // by reason
	Agreement stateAgreement // waiting and running by steps and by journeys
	Warnings  []trace.Finding
}

// Build returns the rows of a run.
func Build(src source, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b := newRowBuilder(src, o)
	b.scorePrefixes()
	b.visitDecisions()
	return b.out, nil
}

// rowBuilder builds the rows of one run.
type rowBuilder struct {
	src      source
	o        Options
	lives    []requestLife      // in the order of arrival
	complete bool               // no request that was in the engine is missing from lives
	steps    *recordedSteps     // the state by step summaries
	counts   *queueState        // the state by journeys, at the decision that visitDecisions has reached
	events   []event            // of all lives, in the order of time
	warmUpNs int64              // arrivals before this stamp are warm-up
	blocks   int64              // KV blocks of the engine; 0: unknown
	stages   []trace.Opt[int64] // load stage of each of lives
	out      *Result
}

// newRowBuilder reads the requests, steps and events of a run.
func newRowBuilder(src source, o Options) *rowBuilder {
	d := src.Deployment
	b := &rowBuilder{src: src, o: o, out: &Result{Dropped: map[reason]int{}}}
	journeyRate := d.Tracing.JourneySampleRate.Or(1)
	b.lives, b.complete, b.out.Warnings = livesOf(src.Run, journeyRate, o.Target == TargetE2E)
	stepRate := d.Tracing.StepSampleRate.Or(1)
	b.steps = newRecordedSteps(src.Run, stepRate, int64(rows.AssumedLag(src.Run, d)))
	b.counts = newQueueState(b.lives, b.steps)
	b.events = eventsOf(b.lives)
	b.out.Requests = len(b.lives)
	b.blocks, _, _ = d.KVBlocks()
	b.stages = stagesOf(b.lives, d)
	b.warmUpNs = math.MinInt64
	// If run.yaml has no warm-up phase, the first recorded steps are the warm-up.
	if n := len(src.Run.Steps); n > 0 && len(openPhases(d)) == len(d.Phases) {
		b.warmUpNs = src.Run.Steps[min(rows.WarmUpSteps, n-1)].TsStartNs
	}
	return b
}

// scorePrefixes sets for every request the share of its prompt that is expected in the prefix
// cache, and the number of prompt tokens left to compute. That is at least 1, because vLLM always
// computes the last token of a prompt.
func (b *rowBuilder) scorePrefixes() {
	d := b.src.Deployment
	if d.Engine.PrefixCaching && b.applySharedPrefixes() {
		b.replayIndex()
	}
	for i := range b.lives {
		l := &b.lives[i]
		l.actual = actualScore(l, d.Engine.BlockSize, d.Engine.PrefixCaching)
		if !d.Engine.PrefixCaching {
			l.index = trace.Some(0.0)
		}
		l.score = l.index
		if b.o.PrefixScore == prefixActual {
			l.score = l.actual
		}
		if l.prompt.OK {
			b.counts.uncached[i] = max(1, l.prompt.V-int64(math.Round(l.score.V*float64(l.prompt.V))))
		}
	}
}

// replayIndex sets the index score of every request: the share of its prompt that an index of
// cached blocks has at its decision. The blocks come from the requests scheduled before.
func (b *rowBuilder) replayIndex() {
	x := newBlockIndex(b.src.Deployment)
	at := 0 // first event that x has not seen
	for i := range b.lives {
		l := &b.lives[i]
		until := l.arrived.V - b.o.StalenessUs*1000 // ns
		for ; at < len(b.events) && b.events[at].at <= until; at++ {
			if e := b.events[at]; e.kind == evScheduled && b.lives[e.life].prompt.OK {
				x.insertPrompt(int(e.life), &b.lives[e.life], b.lives[e.life].cached)
			}
		}
		if l.arrived.OK && l.prompt.OK && l.prompt.V > 0 {
			l.index = trace.Some(x.cachedShare(i, l))
		}
	}
}

// applySharedPrefixes puts all requests into one prefix group of the length in
// --shared-prefix-tokens, unless the client's file has prefix groups. It returns false if neither
// is known.
func (b *rowBuilder) applySharedPrefixes() bool {
	for i := range b.lives {
		if b.lives[i].group != "" {
			return true // a file with prefix groups has them for every request that shares a prefix
		}
	}
	for _, text := range b.o.Shared {
		runs, tokens, err := parseShare(text)
		if ok, _ := path.Match(runs, b.src.Run.ID); err != nil || !ok {
			continue
		}
		for i := range b.lives {
			b.lives[i].group = "shared"
			b.lives[i].groupTokens = trace.Some(tokens)
		}
		return true
	}
	return false
}

// visitDecisions makes the row of every request, or counts the reason why it cannot. It visits the
// decisions in the order of time and applies the events that are observable at each.
func (b *rowBuilder) visitDecisions() {
	at := 0 // first event that is not applied yet
	for i := range b.lives {
		l := &b.lives[i]
		t := l.arrived.V - b.o.StalenessUs*1000 // ns
		for ; at < len(b.events) && isObservable(b.events[at], t, l.arrived.V); at++ {
			b.counts.applyEvent(b.events[at])
		}
		row, reason := b.makeRow(i, t)
		if reason != "" {
			b.out.Dropped[reason]++
			continue
		}
		b.out.Rows = append(b.out.Rows, row)
	}
}

// isObservable reports whether an event is part of the state at t: its stamp is not later than t,
// and that of an arrival is also earlier than the decision. All three are in ns.
func isObservable(e event, t, decision int64) bool {
	return e.at < t || e.at == t && (e.kind != evArrived || t < decision)
}
