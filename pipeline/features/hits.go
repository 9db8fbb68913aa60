package features

import "math/bits"

// Hits is the set of slots whose raw value exceeded its bound (spec#bound-hits): bit s-1 belongs to
// slot s.
type Hits uint32

// has reports whether the 1-based slot hit its bound.
func (h Hits) has(slot int) bool { return h>>(slot-1)&1 == 1 }

// count returns the number of slots that hit their bound.
func (h Hits) count() int { return bits.OnesCount32(uint32(h)) }

// Slots lists the 1-based slots that hit their bound, ascending.
func (h Hits) Slots() []int {
	slots := make([]int, 0, h.count())
	for s := 1; s <= 32; s++ {
		if h.has(s) {
			slots = append(slots, s)
		}
	}
	return slots
}
