package rows

import (
	"slices"
)

// spikeHistory is how many rows a median needs before it may drop one.
const spikeHistory = 10

// runningMedian is the running median of the last spikeWindow values: a ring of them
// and the same values sorted.
type runningMedian struct {
	ring   []float64
	oldest int
	sorted []float64
}

// isSpike reports whether v exceeds 10 times the median of the previous 101
// values (of those there are, from 10 on), and remembers v. Spikes are
// remembered too, so that a lasting change of level stops being one.
func (m *runningMedian) isSpike(v float64) bool {
	n := len(m.sorted)
	spike := n >= spikeHistory && v > spikeFactor*(m.sorted[(n-1)/2]+m.sorted[n/2])/2
	m.push(v)
	return spike
}

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
