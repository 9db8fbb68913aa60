package reconstruct

// This file drops what the step summaries contradict, and gives the reason for each step that stays
// unknown.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// uncertainty is, for each step, the smallest index of a life whose chunk of a prompt is unknown in
// the step; math.MaxInt32 if there is none. Lives are in scheduling order. Only later lives are
// affected, because their chunks depend on how much of the budget the unknown chunk used.
type uncertainty []int32

// dropUncertainChunks drops the chunks of prompts that depend on uncertain steps. The chunks of a
// prompt that runs in several steps are certain only if each of its steps is. Dropping one makes
// its steps unknown, which can make others uncertain, so it repeats until nothing changes. It ends,
// because every round drops at least one prompt.
func (b *Batches) dropUncertainChunks() {
	u := make(uncertainty, b.n)
	for k := range u {
		u[k] = math.MaxInt32
	}
	for i := range b.lives {
		l := &b.lives[i]
		switch {
		case l.unknown != Known:
		case l.unknownPrompt != Known:
			b.markUnknown(l.scheduled, l.firstToken, l.unknownPrompt)
			b.markUncertain(u, i)
		default:
			b.addChunks(l, 1)
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range b.lives {
			l := &b.lives[i]
			runsInSeveralSteps := l.computed != nil && l.firstToken > l.scheduled
			if runsInSeveralSteps && b.isUncertain(i, u) {
				b.dropChunks(i, u)
				changed = true
			}
		}
	}
}

// addChunks adds the known chunks of a life to the counts of its steps (sign 1), or subtracts them
// (sign -1).
func (b *Batches) addChunks(l *Life, sign int64) {
	lo, hi := b.indices(l.scheduled, l.firstToken)
	for k := lo; k < hi; k++ {
		step := k + b.first
		b.working.promptTokens[k] += sign * (l.computedBy(step) - l.computedBy(step-1))
		b.working.chunks[k] += int32(sign)
	}
}

// markUncertain records that the chunks of a life are unknown in its prompt steps.
func (b *Batches) markUncertain(u uncertainty, life int) {
	lo, hi := b.indices(b.lives[life].scheduled, b.lives[life].firstToken)
	for k := lo; k < hi; k++ {
		u[k] = min(u[k], int32(life))
	}
}

// dropChunks makes the chunks of a life's prompt unknown, and the batches of the steps it runs in.
func (b *Batches) dropChunks(life int, u uncertainty) {
	l := &b.lives[life]
	b.addChunks(l, -1)
	l.unknownPrompt = PrefillUnknown
	l.computed = nil
	b.markUnknown(l.scheduled, l.firstToken, PrefillUnknown)
	b.markUncertain(u, life)
}

// isUncertain reports whether the chunks of a life depend on a step in which others may have used
// the budget in an unknown way: a request whose steps are unknown may have run there, a prompt that
// was scheduled earlier has unknown chunks there, or the summary contradicts the batch. The first
// two do not count for the final step of a prompt, which computes the rest of it in any case. The
// chunks are also uncertain if a step lacks a summary that it needs, or lies outside the recording.
func (b *Batches) isUncertain(life int, u uncertainty) bool {
	w := b.working
	l := &b.lives[life]
	lo, hi := b.indices(l.scheduled, l.firstToken)
	if hi-lo != l.firstToken-l.scheduled+1 {
		return true
	}
	for k := lo; k < hi; k++ {
		isLast := k == hi-1
		othersUnknown := w.unknown[k] == PreemptedRequest || w.unknown[k] == InconsistentRequest || u[k] < int32(life)
		hasSummary := w.summary[k] >= 0
		switch {
		case !isLast && othersUnknown:
			return true
		case !hasSummary && w.needsSummary[k]:
			return true
		case hasSummary && w.unknown[k] == Known && !b.agreesWithSummary(k):
			return true
		}
	}
	return false
}

// agreesWithSummary reports whether the batch of the k-th step fits its summary, with or without
// the uncounted decodes. If only without, it records that these did not run.
func (b *Batches) agreesWithSummary(k int64) bool {
	w := b.working
	summary := &w.summaryList[w.summary[k]]
	decodes := int64(w.decodes[k])
	if w.fitsSummary(k, summary, decodes+int64(w.uncounted[k])) {
		b.uncountedDidNotRun[k] = false
		return true
	}
	b.uncountedDidNotRun[k] = w.uncounted[k] > 0 && w.fitsSummary(k, summary, decodes)
	return b.uncountedDidNotRun[k]
}

// fitsSummary reports whether the totals of the k-th step fit its summary, given its number of
// decodes. The summary may count as many decodes as prefills of one token as there are first
// decodes (Counts.FirstDecodes).
func (w *working) fitsSummary(k int64, s *trace.Step, decodes int64) bool {
	relabelled := int64(s.NumPrefillReqs) - int64(w.chunks[k]) // decodes that the summary counts as prefills
	return int64(s.ScheduledTokens) == decodes+w.promptTokens[k] &&
		int64(s.NumPrefillReqs)+int64(s.NumDecodeReqs) == decodes+int64(w.chunks[k]) &&
		relabelled >= 0 && relabelled <= int64(w.firstDecodes[k]) &&
		int64(s.PrefillTokens)-w.promptTokens[k] == relabelled
}

// Reasons returns, for each step, why its batch is unknown; Known if it is not. A batch that its summary
// contradicts is Contradicted, unless requests are known to be missing there: then it is Unconfirmed. It must
// not be called after Release.
func (b *Batches) Reasons() []Reason {
	w := b.working
	why := make([]Reason, b.n)
	copy(why, w.unknown)
	for k := range why {
		if why[k] != Known {
			continue
		}
		hasSummary := w.summary[k] >= 0
		switch {
		case !hasSummary && w.needsSummary[k]:
			why[k] = Unconfirmed
		case hasSummary && !b.agreesWithSummary(int64(k)) && w.needsSummary[k]:
			why[k] = Unconfirmed
		case hasSummary && !b.agreesWithSummary(int64(k)):
			why[k] = Contradicted
		}
	}
	w.spreadContradictions(why)
	return why
}

// spreadContradictions makes the steps between a contradicted step and the next one with a summary
// unknown, in both directions: a request that is missing from the journeys probably ran in them
// too.
func (w *working) spreadContradictions(why []Reason) {
	contradicted := false
	visit := func(k int) {
		if w.summary[k] >= 0 {
			contradicted = why[k] == Contradicted
		} else if contradicted && why[k] == Known {
			why[k] = Unconfirmed
		}
	}
	for k := range why {
		visit(k)
	}
	contradicted = false
	for k := len(why) - 1; k >= 0; k-- {
		visit(k)
	}
}
