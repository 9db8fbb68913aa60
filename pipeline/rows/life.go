package rows

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// life is one core request as the engine's steps saw it (spec#journeys):
//
//	s .. t            prompt chunks; the step t produces the first token
//	t+1 .. sure       one decode a step, context p+1, p+2, ...
//	sure+1 .. tail    decodes that ran although no token of theirs was counted:
//	                  the wasted one after EOS under asynchronous scheduling, and
//	                  those in flight when an abort arrived
//
// A broken life is unknown in all its steps from .. to.
type life struct {
	id        string
	prompt    int64 // p, tokens
	cached    int64 // a, tokens; unknown when negative
	s, t      int64
	sure      int64
	tail      int64
	upTo      []int64 // prompt tokens that ran in step s, in s and s+1, ... up to t; nil until planned
	noPrefill Reason  // set: steps s..t are unknown
	broken    Reason  // set: steps from..to are unknown
	from, to  int64
	guess     bool // aborted before its first token: counts only where a summary confirms it
}

// last is the last step the life may touch.
func (l *life) last() int64 {
	if l.broken != "" {
		return l.to
	}
	return l.tail
}

// first is the first step the life may touch.
func (l *life) first() int64 {
	if l.broken != "" {
		return l.from
	}
	return l.s
}

// chunk returns the state of the life in step u, and whether it runs there.
// The prefill of a life whose prefill is unknown is left out.
func (l *life) chunk(u int64) (trace.Chunk, bool) {
	switch {
	case l.broken != "" || u < l.s || u > l.tail:
		return trace.Chunk{}, false
	case u > l.t:
		return trace.Chunk{Computed: l.prompt + u - l.t - 1, Prompt: l.prompt, New: 1}, true
	case l.noPrefill != "" || l.upTo == nil:
		return trace.Chunk{}, false
	}
	before := l.ran(u - 1)
	c := trace.Chunk{Computed: l.cached + before, Prompt: l.prompt, New: l.ran(u) - before}
	return c, c.New > 0
}

// ran are the planned prompt tokens of steps s..u.
func (l *life) ran(u int64) int64 {
	if u < l.s {
		return 0
	}
	return l.upTo[u-l.s]
}

// lifeReader makes the lives of a run from its requests, in scheduling order.
type lifeReader struct {
	async   bool
	caching bool
	last    int64                // last step of the run
	seen    map[string]firstSeen // first snapshot with scheduled tokens
}

func (b *lifeReader) lives(requests []trace.Request) []life {
	type ordered struct {
		life
		ns int64
	}
	all := make([]ordered, 0, len(requests))
	for i := range requests {
		if l, ok := b.life(&requests[i]); ok {
			all = append(all, ordered{l, requests[i].ScheduledNs.Or(0)})
		}
	}
	slices.SortStableFunc(all, func(a, c ordered) int {
		return cmp.Or(cmp.Compare(a.first(), c.first()), cmp.Compare(a.ns, c.ns))
	})
	return stat.Map(all, func(o ordered) life { return o.life })
}

// life reads one request. It returns false for a request that never ran.
func (b *lifeReader) life(r *trace.Request) (life, bool) {
	if !r.CoreID.OK {
		return life{}, false
	}
	l := life{id: r.CoreID.V, prompt: r.PromptTokens.V, s: r.ScheduledStep.V, t: r.FirstTokenStep.V}
	switch {
	case !isPlausible(r):
		l.broken, l.to = inconsistentRequest, b.last
		return l, true
	case !r.ScheduledStep.OK && !r.FirstTokenStep.OK && r.FinishedStep.OK && r.DroppedEvents == 0:
		return life{}, false // ended while waiting
	case r.Preemptions.Or(0) > 0:
		return b.unknownLife(l, r, preemptedRequest), true
	case r.DroppedEvents > 0 || !r.ScheduledStep.OK || !r.FinishedStep.OK || !r.PromptTokens.OK || l.prompt < 1:
		return b.unknownLife(l, r, inconsistentRequest), true
	case !r.FirstTokenStep.OK:
		return b.withoutFirstToken(l, r), true
	}
	l.cached = b.cachedTokens(&l)
	return b.withFirstToken(l, r), true
}

// isPlausible refuses numbers only a damaged record holds, so that sums and
// loops over steps stay bounded.
func isPlausible(r *trace.Request) bool {
	for _, v := range []trace.Opt[int64]{r.QueuedStep, r.ScheduledStep, r.FirstTokenStep, r.FinishedStep, r.PromptTokens, r.OutputTokens} {
		if v.OK && (v.V < 0 || v.V > 1<<40) {
			return false
		}
	}
	return r.FirstTokenStep.V-r.ScheduledStep.V < maxStepRange && r.FinishedStep.V-r.ScheduledStep.V < maxStepRange
}

// unknownLife makes every step of the request unknown. Without a FINISHED event
// nobody knows when it ended: up to the end of the run.
func (b *lifeReader) unknownLife(l life, r *trace.Request, why Reason) life {
	l.broken = why
	l.from = r.ScheduledStep.Or(r.FirstTokenStep.Or(r.QueuedStep.Or(0)))
	l.to = max(l.from, r.FinishedStep.Or(b.last))
	if b.async {
		l.to++
	}
	return l
}

// withoutFirstToken is a request that ended before its first token. An abort may come at
// any time; anything else is a lost event.
func (b *lifeReader) withoutFirstToken(l life, r *trace.Request) life {
	if !isAborted(r) || r.FinishedStep.V < l.s {
		return b.unknownLife(l, r, inconsistentRequest)
	}
	l.t = r.FinishedStep.V
	l.sure = r.FinishedStep.V
	l.tail = r.FinishedStep.V
	l.cached, l.guess = b.cachedTokens(&l), true
	return l
}

// withFirstToken is a request with one: e = t + o - 1 is required, except
// that an abort carries the current step counter, at which the request was
// still scheduled (spec#wasted-decodes).
func (b *lifeReader) withFirstToken(l life, r *trace.Request) life {
	e := r.FinishedStep.V
	l.sure = l.t + r.OutputTokens.V - 1
	l.tail = l.sure
	switch {
	case !r.OutputTokens.OK || r.OutputTokens.V < 1 || l.t < l.s:
		return b.unknownLife(l, r, inconsistentRequest)
	case isAborted(r) && e >= l.sure && e <= l.sure+b.inFlight():
		l.tail = e
	case e != l.sure:
		return b.unknownLife(l, r, inconsistentRequest)
	case b.async && r.FinishStatus.Or("") == trace.FinishStopped:
		l.tail++
	}
	return l
}

// inFlight is how many steps of a request may be scheduled and not yet counted
// when an abort is stamped.
func (b *lifeReader) inFlight() int64 {
	if b.async {
		return 2
	}
	return 1
}

func isAborted(r *trace.Request) bool {
	s := r.FinishStatus.Or("")
	return s == trace.FinishAborted || s == trace.FinishError
}

// cachedTokens is what one request tells of its cached tokens: from its first
// snapshot, else 0 with prefix caching off, else unknown (-1).
func (b *lifeReader) cachedTokens(l *life) int64 {
	f, ok := b.seen[l.id]
	switch {
	case ok && f.step == l.s:
		return f.computed
	case ok && f.hit.OK:
		return f.hit.V
	case !b.caching:
		return 0
	}
	return -1
}
