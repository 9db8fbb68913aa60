package predictor

// This file reads when each request was sent, queued, scheduled and answered.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// requestLife has what spans or client rows recorded of one request. Stamps are ns of one clock.
type requestLife struct {
	id string

	arrived   trace.Opt[int64]
	queued    trace.Opt[int64]
	scheduled trace.Opt[int64]
	first     trace.Opt[int64] // first token
	finished  trace.Opt[int64]
	departed  trace.Opt[int64]
	pauses    []pause

	scheduledStep trace.Opt[int64]
	firstStep     trace.Opt[int64] // that gave the first token

	prompt trace.Opt[int64] // tokens
	cached trace.Opt[int64] // prompt tokens found in the prefix cache at first admission
	output trace.Opt[int64] // tokens

	priority    int64
	group       string           // requests of a group share a prefix
	groupTokens trace.Opt[int64] // length of that prefix
	phase       trace.Opt[string]
	reason      reason // why it cannot be a row, empty when it may

	index  trace.Opt[float64] // prefix score of the block index at the decision
	actual trace.Opt[float64] // prefix score measured at first admission
	score  trace.Opt[float64] // the one of the two that --prefix-score selects
}

// pause is a preemption and its end.
type pause struct{ from, to trace.Opt[int64] }

// livesOf returns the requests of a run in the order of arrival: those that spans recorded (core and
// API spans, or those of an unmodified engine) or, without any, the client rows with engine stamps.
// complete is true if no request that was in the engine is missing.
func livesOf(run *trace.Run, journeyRate float64, endToEnd bool) (lives []requestLife, complete bool,
	findings []trace.Finding) {
	complete = true
	if len(run.Requests) == 0 {
		lives, findings = observedLives(run, endToEnd)
	} else {
		pauses := pausesOf(run.Events)
		clients := clientsOf(run.Observed)
		stock := 0
		for i := range run.Requests {
			r := &run.Requests[i]
			l := lifeOfRequest(r, endToEnd)
			l.pauses = pauses[l.id]
			if c := clients[l.id]; c != nil {
				l.group = c.PrefixGroup.V
				l.groupTokens = c.PrefixTokens
				l.priority = c.Priority.V
			}
			if r.Source == trace.SourceStock {
				stock++
			}
			hasEngineStamps := r.CoreID.OK || r.Source == trace.SourceStock
			// A request that succeeded was in the engine, even if only its API span was recorded.
			if r.DroppedEvents > 0 || !hasEngineStamps && r.Success.V {
				complete = false
			}
			lives = append(lives, l)
		}
		// The rate is that of the tracing fork's journeys; spans of stock engines are not sampled by it.
		complete = complete && (journeyRate == 1 || stock == len(lives))
	}
	stat.SortStable(lives, func(a, b requestLife) int {
		return cmp.Or(
			cmp.Compare(a.arrived.V, b.arrived.V),
			cmp.Compare(a.queued.V, b.queued.V),
			cmp.Compare(a.id, b.id))
	})
	return lives, complete, findings
}

// clientsOf returns the client rows by the id of the core span to which they were joined.
func clientsOf(observed []trace.ObservedRequest) map[string]*trace.ObservedRequest {
	out := map[string]*trace.ObservedRequest{}
	for i := range observed {
		if o := &observed[i]; o.CoreID.OK {
			out[o.CoreID.V] = o
		}
	}
	return out
}

// lifeOfRequest returns the life of a request as its spans recorded it. A request counts as failed
// unless they state that it succeeded: one that had not ended when the recording did is no row.
func lifeOfRequest(r *trace.Request, endToEnd bool) requestLife {
	l := requestLife{
		id:     r.CoreID.Or(r.APIID.V),
		prompt: r.PromptTokens,
		cached: r.CachedTokens,
		output: r.OutputTokens,
		phase:  r.Phase,
	}
	if r.Source == trace.SourceStock {
		l.stockStamps(r)
	} else {
		l.arrived = r.ArrivedNs
		l.queued = r.QueuedNs
		l.scheduled = r.ScheduledNs
		l.first = r.FirstTokenNs
		l.finished = r.FinishedNs
		l.scheduledStep = r.ScheduledStep
		l.firstStep = r.FirstTokenStep
		l.departed = firstKnown(r.DepartedNs, r.AbortedNs, r.FinishedNs)
	}
	wasInEngine := r.Source == trace.SourceStock || r.CoreID.OK
	hasFailed := !r.Success.V
	l.setReason(wasInEngine, r.AbortedNs.OK && hasFailed, hasFailed, endToEnd)
	return l
}

// setReason sets why a request cannot be a row: a missing value, how it ended, or stamps in the
// wrong order. For end-to-end latency it needs a departure in place of a first token.
func (l *requestLife) setReason(wasInEngine, wasAborted, hasFailed, endToEnd bool) {
	switch {
	case !l.arrived.OK:
		l.reason = noArrival
	case !wasInEngine:
		l.reason = noEngineStamps
	case !l.prompt.OK || l.prompt.V < 1:
		l.reason = noPromptLength
	case wasAborted:
		l.reason = aborted
	case hasFailed:
		l.reason = failed
	case !l.scheduled.OK:
		l.reason = noEngineStamps
	case endToEnd && !l.departed.OK:
		l.reason = noDeparture
	case !endToEnd && !l.first.OK:
		l.reason = noFirstToken
	case l.first.OK && l.first.V < l.arrived.V || endToEnd && l.departed.V < l.arrived.V:
		l.reason = negativeLatency
	}
}

// stockStamps sets the stamps from the span of an unmodified engine, which has only the lengths of
// consecutive intervals: overhead before the queue (TTFT - queue - prefill), queue, prefill,
// decode.
func (l *requestLife) stockStamps(r *trace.Request) {
	l.arrived = r.StartWallNs
	at := func(known bool, us float64) trace.Opt[int64] {
		return trace.Opt[int64]{V: l.arrived.V + trace.Ns(us), OK: known && l.arrived.OK}
	}
	ttft := r.StockTTFTUs
	queue := r.StockQueueUs
	prefill := r.StockPrefillUs
	if ttft.OK && queue.OK && prefill.OK {
		l.queued = at(true, ttft.V-queue.V-prefill.V)
		l.scheduled = at(true, ttft.V-prefill.V)
	}
	l.first = at(ttft.OK, ttft.V)
	l.finished = at(ttft.OK && r.StockDecodeUs.OK, ttft.V+r.StockDecodeUs.V)
	l.departed = firstKnown(at(r.StockE2EUs.OK, r.StockE2EUs.V), r.EndWallNs, l.finished)
}

// firstKnown returns the first of the stamps that is known.
func firstKnown(stamps ...trace.Opt[int64]) trace.Opt[int64] {
	for _, s := range stamps {
		if s.OK {
			return s
		}
	}
	return trace.Opt[int64]{}
}

// pausesOf returns the preemptions of every request, by core id: from PREEMPTED to the next
// SCHEDULED.
func pausesOf(events []trace.JourneyEvent) map[string][]pause {
	out := map[string][]pause{}
	for i := range events {
		e := &events[i]
		list := out[e.CoreID]
		switch {
		case e.Kind == "PREEMPTED":
			out[e.CoreID] = append(list, pause{from: e.TsNs})
		case e.Kind == "SCHEDULED" && len(list) > 0 && !list[len(list)-1].to.OK:
			list[len(list)-1].to = e.TsNs
		}
	}
	return out
}

// observedLives returns the requests of a client file with engine stamps. If its arrivals are on
// another clock than the stamps, the clocks are aligned so that the smallest time from arrival to
// the engine's queue is 0.
func observedLives(run *trace.Run, endToEnd bool) ([]requestLife, []trace.Finding) {
	offset := int64(0) // ns, from the clients' clock to the engine's
	found := false     // a row that has both clocks
	for i := range run.Observed {
		c := &run.Observed[i]
		if at, wall := arrivalOf(c); wall && c.QueuedNs.OK {
			if d := c.QueuedNs.V - at.V; !found || d < offset {
				offset = d
				found = true
			}
		}
	}
	var lives []requestLife
	for i := range run.Observed {
		c := &run.Observed[i]
		at, wall := arrivalOf(c)
		if wall {
			at.V += offset
		}
		l := requestLife{
			id:          c.ID,
			arrived:     at,
			queued:      c.QueuedNs,
			scheduled:   c.ScheduledNs,
			first:       c.EngineFirstNs,
			finished:    c.EngineLastNs,
			departed:    c.EngineLastNs,
			prompt:      c.PromptTokens,
			output:      c.OutputTokens,
			phase:       c.Phase,
			priority:    c.Priority.V,
			group:       c.PrefixGroup.V,
			groupTokens: c.PrefixTokens,
		}
		l.setReason(true, c.Aborted.V, c.Success.OK && !c.Success.V, endToEnd)
		lives = append(lives, l)
	}
	if !found {
		return lives, nil
	}
	return lives, []trace.Finding{trace.Findingf(codeTwoClocks,
		"run %s: arrivals and engine stamps are on two clocks; the smallest pick-up wait was taken as 0", run.ID)}
}

// arrivalOf returns the arrival of a client row, ns. wall is true if it is on the wall clock.
func arrivalOf(c *trace.ObservedRequest) (at trace.Opt[int64], wall bool) {
	if c.SendNs.OK {
		return c.SendNs, false
	}
	return c.SendWallNs, c.SendWallNs.OK
}
