package cluster

// This file estimates how many running answers will end soon, from the lengths of those that have
// finished: a life table, as in survival analysis. The age of an answer is its number of output
// tokens so far, counted in units of ageSteps steps.

import (
	"slices"
)

// ageSteps is the resolution of the ages of answers, in steps. An answer grows by one token a step.
const ageSteps = 16

// ages is when the unfinished answers of an instance began, in steps of the instance.
type ages struct {
	steps  int64   // number of steps in which a token was observed
	born   []int64 // number of unfinished answers by the step of their first token / ageSteps
	eldest int     // born is 0 below this index
}

// lengths is a life table of answers: from the lengths of finished answers, and the ages of unfinished
// ones, it estimates the share of answers of each age that end next.
type lengths struct {
	ended   []int64   // number of finished answers by output tokens / ageSteps
	n, next int64     // number of finished answers, and that at which ends is computed again
	ends    []float64 // for each age, the share of answers that end within ageSteps steps
}

// addFinished counts a finished answer with a number of output tokens.
func (k *lengths) addFinished(outputs int64) {
	b := int(outputs / ageSteps)
	k.ended = append(k.ended, make([]int64, max(0, b+1-len(k.ended)))...)
	k.ended[b]++
	k.n++
}

// updateShares computes k.ends again if at least 1/32 more answers have finished since the last
// time. The share at an age is: ended at that age / (older ones + ended + half of those still
// running at that age).
func (k *lengths) updateShares(of []account) {
	if k.n < k.next {
		return
	}
	k.next = k.n + 1 + k.n/32
	last := len(k.ended)
	running := make([]int64, last+1)
	for i := range of {
		a := &of[i].ages
		for b := a.eldest; b < len(a.born); b++ {
			running[min(last, int(a.steps/ageSteps)-b)] += a.born[b]
		}
	}
	k.ends = append(k.ends[:0], make([]float64, last)...)
	older := running[last]
	for b, n := range slices.Backward(k.ended) {
		if n > 0 {
			k.ends[b] = float64(n) / (float64(older+n) + float64(running[b])/2)
		}
		older += n + running[b]
	}
}

// shareAtAge returns the share of answers of an age that end within the next ageSteps steps,
// interpolated between ages. age is in units of ageSteps. An answer older than all finished ones
// counts as the oldest of these.
func (k *lengths) shareAtAge(age float64) float64 {
	age = max(0, age)
	b := int(age)
	last := len(k.ends) - 1
	part := age - float64(b)
	return k.ends[min(b, last)]*(1-part) + k.ends[min(b+1, last)]*part
}

// leavingWindows is the number of windows of ageSteps steps for which Leaving returns shares.
const leavingWindows = 6

// Leaving returns the expected share of the running answers of instance i that end per step, for
// each of the next leavingWindows windows of ageSteps steps. It returns nil if no answer has
// finished yet or none is running. The next call overwrites the returned slice.
func (l *ledger) Leaving(i int) []float64 {
	a := &l.Of[i].ages
	l.lengths.updateShares(l.Of)
	if l.lengths.n == 0 || l.Of[i].Decodes == 0 {
		return nil
	}
	// An answer of index b began on average in the middle of the ageSteps steps of b, so it is
	// now - b old, in units of ageSteps.
	now := float64(a.steps)/ageSteps - 0.5
	var left, gone [leavingWindows]float64 // by window: answers at its start, and those that end in it
	// Answers that began in the same step age together: of those still running a share ends in each
	// window.
	for b := a.eldest; b < len(a.born); b++ {
		running := float64(a.born[b])
		for w := range leavingWindows {
			ending := l.lengths.shareAtAge(now - float64(b-w))
			left[w] += running
			gone[w] += running * ending
			running -= running * ending
		}
	}
	for w := range leavingWindows {
		if left[w] > 0 {
			gone[w] /= left[w] * ageSteps
		}
	}
	l.leaving = gone
	return l.leaving[:]
}
