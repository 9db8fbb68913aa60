package reconstruct

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// uncertainty is, by step, the smallest index of a life whose chunk of a prompt is unknown there;
// math.MaxInt32 without one. Lives are in scheduling order, so only later ones are affected: their
// chunks depend on what the unknown one left of the budget.
type uncertainty []int32

// dropUncertainChunks adds up the known chunks and drops those that rest on uncertain steps: the chunks
// of a prompt that runs in several steps are certain only if every step is. Dropping one makes its
// steps unknown, which may make others uncertain, so it goes round until nothing changes; each round
// that changes something leaves fewer known prompts.
func (b *Batches) dropUncertainChunks() {
	u := make(uncertainty, b.n)
	for k := range u {
		u[k] = math.MaxInt32
	}
	for i := range b.lives {
		l := &b.lives[i]
		switch {
		case l.unknown != "":
		case l.unknownPrompt != "":
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

// addChunks adds the known chunks of a life to the counts of its steps (sign 1), or takes them off (-1).
func (b *Batches) addChunks(l *Life, sign int64) {
	lo, hi := b.indices(l.scheduled, l.firstToken)
	for k := lo; k < hi; k++ {
		step := k + b.first
		b.working.promptTokens[k] += sign * (l.computedBy(step) - l.computedBy(step-1))
		b.working.chunks[k] += int32(sign)
	}
}

func (b *Batches) markUncertain(u uncertainty, life int) {
	lo, hi := b.indices(b.lives[life].scheduled, b.lives[life].firstToken)
	for k := lo; k < hi; k++ {
		u[k] = min(u[k], int32(life))
	}
}

// dropChunks makes the prompt of a life unknown, and with it the steps it runs in.
func (b *Batches) dropChunks(life int, u uncertainty) {
	l := &b.lives[life]
	b.addChunks(l, -1)
	l.unknownPrompt = PrefillUnknown
	l.computed = nil
	b.markUnknown(l.scheduled, l.firstToken, PrefillUnknown)
	b.markUncertain(u, life)
}

// isUncertain reports whether the chunks of a life rest on a step whose budget others may have used in
// an unknown way: a request of unknown steps ran there, a prompt of unknown chunks that was scheduled
// before, or the summary contradicts the batch. The last step is exempt from the first two, because it
// takes what is left of the prompt whatever the others did.
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
		case hasSummary && w.unknown[k] == "" && !b.agreesWithSummary(k):
			return true
		}
	}
	return false
}

// agreesWithSummary compares the batch of the k-th step with its summary. Where it fits only without
// the uncounted decodes, these did not run.
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

// fitsSummary compares the totals of the k-th step, if it ran so many decodes, with its summary. The
// summary may count as many decodes as prefills of one token as there are first decodes
// (Counts.FirstDecodes).
func (w *working) fitsSummary(k int64, s *trace.Step, decodes int64) bool {
	relabelled := s.NumPrefillReqs - int64(w.chunks[k])
	return s.ScheduledTokens == decodes+w.promptTokens[k] &&
		s.NumPrefillReqs+s.NumDecodeReqs == decodes+int64(w.chunks[k]) &&
		relabelled >= 0 && relabelled <= int64(w.firstDecodes[k]) &&
		s.PrefillTokens-w.promptTokens[k] == relabelled
}

// Reasons are, by step, why its batch is unknown; empty where it is known. It may not be called after
// Release.
func (b *Batches) Reasons() []Reason {
	w := b.working
	why := make([]Reason, b.n)
	copy(why, w.unknown)
	for k := range why {
		if why[k] != "" {
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

// spreadContradictions makes the steps without a summary next to a contradicted one unknown: a request
// that is missing from the journeys there is probably missing in its neighbours too.
func (w *working) spreadContradictions(why []Reason) {
	contradicted := false
	visit := func(k int) {
		if w.summary[k] >= 0 {
			contradicted = why[k] == Contradicted
		} else if contradicted && why[k] == "" {
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
