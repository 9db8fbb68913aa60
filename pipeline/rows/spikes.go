package rows

// This file finds spikes: single step times far above those just before, such as a pause of the
// machine.

import (
	"slices"
)

// spikeHistory is how many earlier rows the running median needs before it may drop a row.
const spikeHistory = 10

// runningMedian has the last spikeWindow values, in a ring by age and sorted.
type runningMedian struct {
	ring   []float64
	oldest int
	sorted []float64
}

// isSpike reports whether v exceeds 10 times the median of the previous 101 values, or of those
// there are from the 10th on. It then adds v to them, spike or not, so that a lasting change of
// level is soon no spike any more.
func (m *runningMedian) isSpike(v float64) bool {
	n := len(m.sorted)
	spike := n >= spikeHistory && v > spikeFactor*(m.sorted[(n-1)/2]+m.sorted[n/2])/2
	m.push(v)
	return spike
}

// push adds a value and drops the oldest of a full ring.
func (m *runningMedian) push(v float64) {
	if len(m.ring) < spikeWindow {
		m.ring = append(m.ring, v)
	} else {
		old := m.ring[m.oldest]
		m.ring[m.oldest] = v
		m.oldest = (m.oldest + 1) % spikeWindow
		at, _ := slices.BinarySearch(m.sorted, old)
		m.sorted = slices.Delete(m.sorted, at, at+1)
	}
	at, _ := slices.BinarySearch(m.sorted, v)
	m.sorted = slices.Insert(m.sorted, at, v)
}
