package reconstruct

// This file lists the requests of each rebuilt batch.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Walk visits the steps of a run in ascending order and lists the requests of each batch.
type Walk struct {
	batches *Batches
	next    int   // the first life that has not started
	active  []int // lives that may run in the current step, in scheduling order
}

// Walk returns a walk that starts before the first step.
func (b *Batches) Walk() *Walk { return &Walk{batches: b} }

// AppendMembers returns the list with the requests of a step and their chunks appended. Calls have
// to be in ascending order of steps. Requests whose chunk is unknown are missing, so the batch is
// complete only if Reasons has none for the step.
func (w *Walk) AppendMembers(to []trace.Member, step int64) []trace.Member {
	lives := w.batches.lives
	for ; w.next < len(lives) && lives[w.next].FirstStep() <= step; w.next++ {
		if lives[w.next].unknown == Known {
			w.active = append(w.active, w.next)
		}
	}
	w.active = slices.DeleteFunc(w.active, func(i int) bool { return lives[i].lastRun < step })
	for _, i := range w.active {
		l := &lives[i]
		isUncounted := step > l.lastCounted && step > l.firstToken
		if isUncounted && w.batches.uncountedDidNotRun[step-w.batches.first] {
			continue
		}
		if c, ok := l.chunkAt(step); ok {
			to = append(to, trace.Member{CoreID: l.id, Chunk: c})
		}
	}
	return to
}
