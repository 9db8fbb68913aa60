package stat

import "math"

// Medians are those of groups of values that are passed again and again and never held or sorted:
// each calls see with every value, a number, and its group below n, in any order, the same in every
// pass. The results are exact, those of Median; NaN for an empty group. Memory: 16 kB a group.
func Medians(n int, each func(see func(group int, v float64))) []float64 {
	groups := make([]selection, n)
	for shift := 64 - digitBits; ; shift = max(0, shift-digitBits) {
		for g := range groups {
			groups[g].begin(shift)
		}
		each(func(g int, v float64) { groups[g].see(ordered(v)) })
		for g := range groups {
			groups[g].narrow()
		}
		if shift == 0 {
			break
		}
	}
	for g := range groups {
		groups[g].next = math.Inf(1)
	}
	each(func(g int, v float64) { groups[g].seeNext(v) })
	out := make([]float64, n)
	for g := range groups {
		out[g] = groups[g].median()
	}
	return out
}

// digitBits is how much of a value a pass tells.
const digitBits = 11

// selection finds the lower one of the two middle values of a group, digit by digit.
type selection struct {
	shift, width uint     // of the digit at hand, bits
	found        uint64   // the digits before it
	rank         int      // of the value looked for among those that begin so
	size         int      // of the group
	counts       []uint64 // by digit, of values that begin so
	notAbove     int      // values up to the one that was found
	next         float64  // the smallest above it
}

func (s *selection) begin(shift int) {
	if s.counts == nil {
		s.counts, s.width = make([]uint64, 1<<digitBits), digitBits
	} else {
		clear(s.counts)
		s.width = s.shift - uint(shift)
	}
	s.shift = uint(shift)
}

func (s *selection) see(u uint64) {
	if u >>= s.shift; u>>s.width == s.found {
		s.counts[u&(1<<s.width-1)]++
	}
}

// narrow finds the digit that was counted.
func (s *selection) narrow() {
	if s.found == 0 && s.size == 0 { // the first pass
		for _, c := range s.counts {
			s.size += int(c)
		}
		s.rank = (s.size - 1) / 2
	}
	digit := 0
	for ; digit < len(s.counts)-1 && s.rank >= int(s.counts[digit]); digit++ {
		s.rank -= int(s.counts[digit])
	}
	s.found = s.found<<s.width | uint64(digit)
}

func (s *selection) seeNext(v float64) {
	if lower := unordered(s.found); v <= lower {
		s.notAbove++
	} else {
		s.next = math.Min(s.next, v)
	}
}

func (s *selection) median() float64 {
	if s.size == 0 {
		return math.NaN()
	}
	lower := unordered(s.found)
	if s.size%2 == 1 || s.notAbove > s.size/2 {
		return lower
	}
	return Quantile([]float64{lower, s.next}, 0.5)
}

// ordered are the bits of a value so that larger values have larger ones.
func ordered(v float64) uint64 {
	u := math.Float64bits(v)
	if u>>63 == 0 {
		return u | 1<<63
	}
	return ^u
}

func unordered(u uint64) float64 {
	if u>>63 == 1 {
		return math.Float64frombits(u &^ (1 << 63))
	}
	return math.Float64frombits(^u)
}
