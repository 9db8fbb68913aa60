package reconstruct

// This file reads which steps a request ran in, and what each computed of it.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// MaxStepRange is the widest range of step ids of one request and of one run that is accepted. A
// wider one is damage (spec#cost-limits).
const MaxStepRange = 1 << 23

// Life is one request of the engine core, in engine steps, as its journey records it (spec#journeys):
//
//	scheduled .. firstToken      chunks of the prompt; the step firstToken produces the first token
//	firstToken+1 .. lastCounted  one decode a step, over contexts of prompt+1, prompt+2, ... tokens
//	lastCounted+1 .. lastRun     decodes that ran although their token was never counted: the one
//	                             after EOS under asynchronous scheduling, and those in flight when
//	                             an abort arrived
type Life struct {
	id     string
	prompt int64            // tokens
	cached trace.Opt[int64] // prompt tokens found in the prefix cache

	scheduled, firstToken, lastCounted, lastRun int64 // steps

	// computed[k] is how many prompt tokens ran in the steps scheduled .. scheduled+k; nil while
	// the chunks of the prompt are not known.
	computed []int64

	unknownPrompt Reason // if set, the batches of the steps scheduled .. firstToken are unknown
	unknown       Reason // if set, the batches of the steps from .. to are unknown
	from, to      int64

	// needsSummary is set for a request that was aborted before its first token: when it stopped
	// running is not recorded, so its steps count only where a step summary confirms them.
	needsSummary bool
}

// FirstStep returns the first step that the request may have run in.
func (l *Life) FirstStep() int64 {
	if l.unknown != Known {
		return l.from
	}
	return l.scheduled
}

// LastStep returns the last step that the request may have run in.
func (l *Life) LastStep() int64 {
	if l.unknown != Known {
		return l.to
	}
	return l.lastRun
}

// chunkAt returns what the request computes in a step, and false where it does not run or its
// chunk of the prompt is unknown.
func (l *Life) chunkAt(step int64) (trace.Chunk, bool) {
	switch {
	case l.unknown != Known || step < l.scheduled || step > l.lastRun:
		return trace.Chunk{}, false
	case step > l.firstToken:
		return trace.Chunk{Computed: l.prompt + step - l.firstToken - 1, Prompt: l.prompt, New: 1}, true
	case l.unknownPrompt != Known || l.computed == nil:
		return trace.Chunk{}, false
	}
	before := l.computedBy(step - 1)
	c := trace.Chunk{Computed: l.cached.V + before, Prompt: l.prompt, New: l.computedBy(step) - before}
	return c, c.New > 0
}

// computedBy returns how many prompt tokens ran in the steps up to and including the given one.
func (l *Life) computedBy(step int64) int64 {
	if step < l.scheduled {
		return 0
	}
	return l.computed[step-l.scheduled]
}

// Lives returns the requests of a run as lives (the steps in which each was scheduled), in the
// order in which they were scheduled: by step, then by the stamp of SCHEDULED. Requests that never ran are
// omitted. lastStep is the last recorded step of the run.
func Lives(requests []trace.Request, e *vllm.Engine, lastStep int64) []Life {
	r := lifeReader{isAsync: e.IsAsync(), prefixCaching: e.PrefixCaching, lastStep: lastStep}
	type scheduledLife struct {
		Life
		ns int64 // stamp of SCHEDULED; 0 without one
	}
	var all []scheduledLife
	for i := range requests {
		if l, ok := r.readLife(&requests[i]); ok {
			all = append(all, scheduledLife{Life: l, ns: requests[i].ScheduledNs.Or(0)})
		}
	}
	stat.SortStable(all, func(a, b scheduledLife) int {
		return cmp.Or(cmp.Compare(a.FirstStep(), b.FirstStep()), cmp.Compare(a.ns, b.ns))
	})
	out := make([]Life, len(all))
	for i := range all {
		out[i] = all[i].Life
	}
	return out
}

// lifeReader turns the journeys of one run into lives.
type lifeReader struct {
	isAsync       bool
	prefixCaching bool
	lastStep      int64 // of the run
}

// readLife returns the life of one request; false if the request never ran. The cases come in this order
// because each needs values that the ones before have checked.
func (r *lifeReader) readLife(q *trace.Request) (Life, bool) {
	if !q.CoreID.OK {
		return Life{}, false
	}
	l := Life{
		id:         q.CoreID.V,
		prompt:     q.PromptTokens.V,
		cached:     CachedTokens(q.CachedTokens, r.prefixCaching),
		scheduled:  q.ScheduledStep.V,
		firstToken: q.FirstTokenStep.V,
	}
	if l.cached.V < 0 {
		l.cached = trace.Opt[int64]{} // a damaged record
	}
	switch {
	case !isPlausible(q): // it may have run in any step
		l.unknown = InconsistentRequest
		l.to = r.lastStep
		return l, true
	case !q.ScheduledStep.OK && !q.FirstTokenStep.OK && q.FinishedStep.OK && q.DroppedEvents == 0:
		return Life{}, false // it ended while it was waiting
	case q.Preemptions.Or(0) > 0:
		return r.unknownLife(l, q, PreemptedRequest), true
	case q.DroppedEvents > 0 || !q.ScheduledStep.OK || !q.FinishedStep.OK || !q.PromptTokens.OK || l.prompt < 1:
		return r.unknownLife(l, q, InconsistentRequest), true
	case !q.FirstTokenStep.OK:
		return r.withoutFirstToken(l, q), true
	}
	return r.withFirstToken(l, q), true
}

// isPlausible reports whether the numbers of a request are in ranges that sums and loops over steps
// can handle. Only damaged records have others.
func isPlausible(q *trace.Request) bool {
	for _, v := range []trace.Opt[int64]{
		q.QueuedStep, q.ScheduledStep, q.FirstTokenStep, q.FinishedStep, q.PromptTokens, q.OutputTokens,
	} {
		if v.OK && (v.V < 0 || v.V > 1<<40) {
			return false
		}
	}
	return q.FirstTokenStep.V-q.ScheduledStep.V < MaxStepRange && q.FinishedStep.V-q.ScheduledStep.V < MaxStepRange
}

// unknownLife returns the life of a request that makes the batch of every step unknown in which the
// request may have run. Without a FINISHED event that is up to the end of the run.
func (r *lifeReader) unknownLife(l Life, q *trace.Request, why Reason) Life {
	l.unknown = why
	l.from = q.ScheduledStep.Or(q.FirstTokenStep.Or(q.QueuedStep.Or(0)))
	l.to = max(l.from, q.FinishedStep.Or(r.lastStep))
	if r.isAsync { // a step that was scheduled before the end was known
		l.to++
	}
	return l
}

// withoutFirstToken returns the completed life of a request that ended before its first token. If
// it was not aborted, an event is missing, and its steps are unknown.
func (r *lifeReader) withoutFirstToken(l Life, q *trace.Request) Life {
	if !isAborted(q) || q.FinishedStep.V < l.scheduled {
		return r.unknownLife(l, q, InconsistentRequest)
	}
	l.firstToken = q.FinishedStep.V
	l.lastCounted = q.FinishedStep.V
	l.lastRun = q.FinishedStep.V
	l.needsSummary = true
	return l
}

// withFirstToken returns the completed life of a request that produced tokens: with one token a
// step, finished = firstToken + output - 1. The step stamped at an abort is the current one of the
// engine, for which the request may already have been scheduled (spec#wasted-decodes).
func (r *lifeReader) withFirstToken(l Life, q *trace.Request) Life {
	finished := q.FinishedStep.V
	l.lastCounted = l.firstToken + q.OutputTokens.V - 1
	l.lastRun = l.lastCounted
	switch {
	case !q.OutputTokens.OK || q.OutputTokens.V < 1 || l.firstToken < l.scheduled:
		return r.unknownLife(l, q, InconsistentRequest)
	case isAborted(q) && finished >= l.lastCounted && finished <= l.lastCounted+r.maxUncounted(): // in flight at the abort
		l.lastRun = finished
	case finished != l.lastCounted:
		return r.unknownLife(l, q, InconsistentRequest)
	case r.isAsync && q.FinishStatus.Or("") == trace.FinishStopped:
		l.lastRun++ // the step after EOS was scheduled before the EOS was known
	}
	return l
}

// maxUncounted returns how many steps of a request can be scheduled but not yet counted at the
// moment of an abort: the current one, and under asynchronous scheduling the next.
func (r *lifeReader) maxUncounted() int64 {
	if r.isAsync {
		return 2
	}
	return 1
}

// isAborted reports whether a request ended by an abort or an error.
func isAborted(q *trace.Request) bool {
	status := q.FinishStatus.Or("")
	return status == trace.FinishAborted || status == trace.FinishError
}
