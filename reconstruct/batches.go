package reconstruct

// This file rebuilds the batch of each step from the journeys of requests.

import (
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// maxChunks is the largest number of steps that a prompt may run in. A million tokens in chunks of
// 512 take half of that.
const maxChunks = 1 << 12

// MaxMembers is the largest number of requests, summed over all steps of a run, that is
// reconstructed: 1,000 in each of a million steps.
const MaxMembers = 1 << 30

// CountMembers returns the sum of the requests over the steps first..last. Requests whose steps are
// unknown are not counted. The caller rejects a run with more than MaxMembers before reconstructing
// it.
func CountMembers(lives []Life, first, last int64) (n int64) {
	for i := range lives {
		if l := &lives[i]; l.unknown == Known {
			n += max(0, min(last, l.lastRun)-max(first, l.scheduled)+1)
		}
	}
	return n
}

// StepRange is a range of step ids, half open.
type StepRange struct{ From, To int64 }

// Recording is what is known of a run besides the lives of its requests.
type Recording struct {
	Engine      *vllm.Engine
	First, Last int64        // the steps to reconstruct, by id
	Summaries   []trace.Step // with ids in First..Last, ascending
	// Lost are the steps in which a request without a journey may have run. The batch of such a
	// step counts as known only if a summary confirms it.
	Lost []StepRange
}

// Batches are the batches of the steps of a run, as far as journeys and summaries give them
// (spec#journeys). Slices are indexed by step id - first.
type Batches struct {
	lives   []Life
	first   int64
	n       int64 // steps
	working *working

	// uncountedDidNotRun marks the steps whose summary shows that the uncounted decodes
	// (Life.lastRun) were not in the batch.
	uncountedDidNotRun []bool
}

// working is the state of the reconstruction that the finished batches do not need. Slices are
// indexed by step id - first.
type working struct {
	engine      *vllm.Engine
	isAsync     bool
	summaryList []trace.Step
	summary     []int32 // index of the step's summary; -1 without one

	decodes      []int32 // decodes of known lives whose token was counted
	uncounted    []int32 // decodes whose token was not counted (Life.lastRun)
	firstDecodes []int32 // decodes in the step after the first token: see Counts.FirstDecodes
	prefills     []int32 // lives whose prompt runs in the step, whether its chunks are known or not
	chunks       []int32 // those whose chunks are known
	promptTokens []int64 // of the known chunks

	unknown      []Reason
	needsSummary []bool // the batch of the step counts as known only if a summary confirms it

	withoutReason, withoutNeed unsetIndices // indices not yet set in unknown and in needsSummary
}

// FromJourneys reconstructs the batches of a run from its journeys (spec#journeys). lives are what
// Lives returns.
func FromJourneys(lives []Life, r Recording) *Batches {
	n := r.Last - r.First + 1 // steps
	w := &working{
		engine:        r.Engine,
		isAsync:       r.Engine.IsAsync(),
		summaryList:   r.Summaries,
		summary:       make([]int32, n),
		decodes:       make([]int32, n),
		uncounted:     make([]int32, n),
		firstDecodes:  make([]int32, n),
		prefills:      make([]int32, n),
		chunks:        make([]int32, n),
		promptTokens:  make([]int64, n),
		unknown:       make([]Reason, n),
		needsSummary:  make([]bool, n),
		withoutReason: newUnsetIndices(n),
		withoutNeed:   newUnsetIndices(n),
	}
	b := &Batches{lives: lives, first: r.First, n: n, working: w, uncountedDidNotRun: make([]bool, n)}
	for i := range w.summary {
		w.summary[i] = -1
	}
	for i := range r.Summaries {
		w.summary[r.Summaries[i].ID-r.First] = int32(i)
	}
	// Count what each step certainly ran, then share its remaining tokens out to the prompts.
	b.countLives()
	for _, lost := range r.Lost { // journeys were lost here, so a summary must confirm the batch
		b.requireSummary(lost.From, lost.To-1)
	}
	b.countCachedTokens()
	b.cutPrompts()
	b.dropUncertainChunks()
	return b
}

// HasLives reports whether any journey was recorded.
func (b *Batches) HasLives() bool { return len(b.lives) > 0 }

// Len returns the number of steps.
func (b *Batches) Len() int { return int(b.n) }

// Summary returns the index of the summary of the k-th step; -1 without one. It may not be called after
// Release.
func (b *Batches) Summary(k int) int32 { return b.working.summary[k] }

// Release frees the memory that only the reconstruction needed. A Walk remains possible.
func (b *Batches) Release() { b.working = nil }

// indices clips a range of step ids to the run and returns slice indices [lo, hi).
func (b *Batches) indices(first, last int64) (lo, hi int64) {
	lo = min(b.n, max(0, first-b.first))
	hi = min(b.n, last-b.first+1)
	return lo, max(lo, hi)
}

// countLives fills the counts that do not depend on the sizes of chunks: which lives decode in each step,
// and whose prompts run in it.
func (b *Batches) countLives() {
	w := b.working
	for i := range b.lives {
		l := &b.lives[i]
		if l.unknown != Known {
			b.markUnknown(l.from, l.to, l.unknown)
			continue
		}
		b.countIn(w.decodes, l.firstToken+1, l.lastCounted)
		b.countIn(w.uncounted, l.lastCounted+1, l.lastRun)
		b.countIn(w.firstDecodes, l.firstToken+1, min(l.firstToken+1, l.lastRun))
		b.countIn(w.prefills, l.scheduled, l.firstToken)
		if l.needsSummary {
			b.requireSummary(l.scheduled, l.lastRun)
		}
	}
}

// countIn adds one request to counts for each of the steps first..last.
func (b *Batches) countIn(counts []int32, first, last int64) {
	lo, hi := b.indices(first, last)
	for k := lo; k < hi; k++ {
		counts[k]++
	}
}

// requireSummary marks the steps first..last as unknown unless a summary confirms them.
func (b *Batches) requireSummary(first, last int64) {
	lo, hi := b.indices(first, last)
	b.working.withoutNeed.set(lo, hi, func(k int64) { b.working.needsSummary[k] = true })
}

// markUnknown makes the steps first..last unknown. A step keeps its first reason.
func (b *Batches) markUnknown(first, last int64, why Reason) {
	lo, hi := b.indices(first, last)
	b.working.withoutReason.set(lo, hi, func(k int64) { b.working.unknown[k] = why })
}

// countCachedTokens derives cached tokens that are not recorded: if every step of a prompt has a
// summary and no other prompt runs in these steps, the cached tokens are the prompt less the prompt
// tokens that ran (spec#counted-hits).
func (b *Batches) countCachedTokens() {
	for i := range b.lives {
		l := &b.lives[i]
		if l.unknown != Known || l.cached.OK {
			continue
		}
		ran, ok := b.promptTokensOf(l)
		if ok && ran >= 1 && ran <= l.prompt {
			l.cached = trace.Some(l.prompt - ran)
			continue
		}
		l.unknownPrompt = CachedUnknown
	}
}

// promptTokensOf returns how many prompt tokens of a request ran, from the summaries of its steps;
// false if that is unknown: a step lies outside of the run, has no summary or an unknown batch, or has
// another prompt too. It subtracts the decodes from all scheduled tokens instead of reading
// the prefill tokens, because the summaries label first decodes as prefills under asynchronous
// scheduling (Counts.FirstDecodes).
func (b *Batches) promptTokensOf(l *Life) (int64, bool) {
	w := b.working
	lo, hi := b.indices(l.scheduled, l.firstToken)
	if hi-lo != l.firstToken-l.scheduled+1 { // indices has cut the range
		return 0, false
	}
	var ran int64
	for k := lo; k < hi; k++ {
		if w.summary[k] < 0 || w.prefills[k] != 1 || w.unknown[k] != Known {
			return 0, false
		}
		ran += int64(w.summaryList[w.summary[k]].ScheduledTokens) - int64(w.decodes[k]+w.uncounted[k])
	}
	return ran, true
}

// cutPrompts divides every prompt into chunks, in the order in which requests were scheduled, as vLLM's
// scheduler does (vllm/v1/core/sched/scheduler.py: schedule()). The chunks of a prompt that does not end
// exactly in its FIRST_TOKEN step stay unknown.
func (b *Batches) cutPrompts() {
	var waiting []*Life // not yet scheduled at the step, in order (Lives sorts them)
	var active []*Life  // with tokens left to compute
	for i := range b.lives {
		switch l := &b.lives[i]; {
		case l.unknown != Known || l.unknownPrompt != Known:
		case l.firstToken-l.scheduled >= maxChunks:
			l.unknownPrompt = PrefillUnknown
		default:
			waiting = append(waiting, l)
		}
	}
	// Step by step. Steps without an active prompt are skipped.
	for step := int64(0); len(waiting)+len(active) > 0; step++ {
		if len(active) == 0 {
			step = waiting[0].scheduled
		}
		for len(waiting) > 0 && waiting[0].scheduled == step {
			active = append(active, waiting[0])
			waiting = waiting[1:]
		}
		active = b.cutStep(active, step)
	}
}

// cutStep gives the active prompts their chunks of one step, as far as the step's token budget
// goes, and returns the prompts that continue in the next step.
func (b *Batches) cutStep(active []*Life, step int64) []*Life {
	w := b.working
	decodes := int64(0)
	if k := step - b.first; k >= 0 && k < b.n {
		decodes = int64(w.decodes[k] + w.uncounted[k])
	}
	budget := budgetOf(w.engine, decodes)
	unfinished := active[:0]
	for _, l := range active {
		computed := l.computedBy(step - 1)
		remaining := l.prompt - l.cached.V - computed
		n := budget.Chunk(remaining)
		budget.Left -= n
		l.computed = append(l.computed, computed+n)
		endsEarly := n == remaining && step < l.firstToken
		endsLate := n < remaining && step == l.firstToken && !l.needsSummary // an aborted prompt need not end
		switch {
		case n < 1, // although the prompt runs in this step
			endsEarly && !b.endsBeforeAbort(l, step),
			endsLate:
			l.unknownPrompt = PrefillUnknown
			l.computed = nil
		case step < l.firstToken:
			unfinished = append(unfinished, l)
		}
	}
	return unfinished
}

// endsBeforeAbort reports whether a prompt that ends in a step ended one step before the request was
// aborted, without a first token. Under asynchronous scheduling its first decode was then already
// scheduled; if so, it corrects the life and the counts: the last step ran a decode and no prompt.
func (b *Batches) endsBeforeAbort(l *Life, step int64) bool {
	w := b.working
	if !l.needsSummary || !w.isAsync || step != l.firstToken-1 {
		return false
	}
	if k := l.firstToken - b.first; k >= 0 && k < b.n {
		w.prefills[k]--
		w.uncounted[k]++
		w.firstDecodes[k]++
	}
	l.firstToken = step
	l.lastCounted = step
	return true
}

// unsetIndices are the indices of a slice that are not yet set, as a disjoint-set forest: entry i
// is i if index i is unset, else a later index from which to search on. Setting many overlapping
// ranges visits each index about once.
type unsetIndices []int32

// newUnsetIndices returns n indices, all of them unset.
func newUnsetIndices(n int64) unsetIndices {
	u := make(unsetIndices, n+1)
	for i := range u {
		u[i] = int32(i)
	}
	return u
}

// firstFrom returns the first unset index at or after i; the length of the slice if there is none.
func (u unsetIndices) firstFrom(i int64) int64 {
	for int64(u[i]) != i {
		u[i] = u[u[i]]
		i = int64(u[i])
	}
	return i
}

// set calls use with each unset index of [lo, hi) and sets it.
func (u unsetIndices) set(lo, hi int64, use func(i int64)) {
	for i := u.firstFrom(lo); i < hi; i = u.firstFrom(i) {
		use(i)
		u[i]++
	}
}
