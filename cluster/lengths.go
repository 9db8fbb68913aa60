package cluster

import (
	"slices"
)

// ageSteps is how finely the ages of answers are known, in steps: an answer grows by a
// token a step.
const ageSteps = 16

// ages is when the answers that are under way on an instance began.
type ages struct {
	steps  int64   // that showed a token
	born   []int64 // answers under way by the step of their first token / AgeSteps
	eldest int     // born is 0 before it
}

// lengths are those of answers that have ended, and the rates at which answers end that
// follow from them: a life table, in which answers under way count as far as they are.
type lengths struct {
	ended   []int64   // by output tokens / AgeSteps
	n, next int64     // of them; when rates are due again
	ends    []float64 // share that ends of answers of that age, within AgeSteps steps
}

func (k *lengths) addFinished(outputs int64) {
	b := int(outputs / ageSteps)
	k.ended = append(k.ended, make([]int64, max(0, b+1-len(k.ended)))...)
	k.ended[b]++
	k.n++
}

// updateShares renews ends once some more answers have ended.
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

// shareAtAge is the share at an age in ageSteps. A request older than all finished ones counts as the oldest of
// these.
func (k *lengths) shareAtAge(age float64) float64 {
	age = max(0, age)
	b := int(age)
	last := len(k.ends) - 1
	part := age - float64(b)
	return k.ends[min(b, last)]*(1-part) + k.ends[min(b+1, last)]*part
}

// leavingWindows is how many windows of AgeSteps steps ends are expected for.
const leavingWindows = 6

// Leaving is the share of the answers under way on instance i that is expected to end,
// per answer and step, in windows of AgeSteps steps to come; nil where no answer has ended
// or none is under way. The next call reuses it.
func (l *ledger) Leaving(i int) []float64 {
	a := &l.Of[i].ages
	l.lengths.updateShares(l.Of)
	if l.lengths.n == 0 || l.Of[i].Decodes == 0 {
		return nil
	}
	now := float64(a.steps)/ageSteps - 0.5
	var left, gone [leavingWindows]float64
	for b := a.eldest; b < len(a.born); b++ {
		x := float64(a.born[b])
		for w := range leavingWindows {
			share := l.lengths.shareAtAge(now - float64(b-w))
			left[w] += x
			gone[w] += x * share
			x -= x * share
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
