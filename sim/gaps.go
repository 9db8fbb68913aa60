package sim

// This file records the gaps between the tokens of requests, from which ITL is computed.

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// gapLog records the gaps between the tokens of each request, and a histogram of the gaps of all
// requests that finish. It is nil without Config.TokenGaps.
type gapLog struct {
	histogram *stat.Histogram // us, tokenUs included
	tokenUs   float64         // Config.TokenUs
	runUs     int64           // the gap of a series of equal gaps not yet in the histogram
	runLength int64           // the length of that series
	spare     [][]int32       // memory of requests that have left, for reuse
}

// add records a gap of us microseconds between two tokens of s. A series of equal gaps, of which each
// step of decodes gives one, is added to the histogram at once.
func (g *gapLog) add(s *seq, us int64) {
	if us != g.runUs {
		g.flush()
		g.runUs = us
	}
	g.runLength++
	s.gaps = append(s.gaps, int32(us))
}

// flush adds the pending series to the histogram.
func (g *gapLog) flush() {
	if g.runLength > 0 {
		g.histogram.Add(float64(g.runUs)+g.tokenUs, g.runLength)
		g.runLength = 0
	}
}

// begin gives request s memory for its gaps.
func (g *gapLog) begin(s *seq) {
	if n := len(g.spare); n > 0 {
		s.gaps = g.spare[n-1]
		g.spare = g.spare[:n-1]
	}
}

// forget removes the gaps of request s, which does not finish, from the histogram.
func (g *gapLog) forget(s *seq) {
	for _, us := range s.gaps {
		g.histogram.Add(float64(us)+g.tokenUs, -1)
	}
}

// release takes the memory for gaps back from request s, which has left.
func (g *gapLog) release(s *seq) {
	if s.gaps != nil {
		g.spare = append(g.spare, s.gaps[:0])
		s.gaps = nil
	}
}

// quantiles returns the median and the 99th percentile of the gaps of s by nearest rank, ms;
// unknown without gaps. It reorders the gaps.
func (g *gapLog) quantiles(s *seq) (p50, p99 trace.Opt[float64]) {
	n := len(s.gaps)
	if n == 0 {
		return p50, p99
	}
	median := (n - 1) / 2     // the ranks of the two quantiles, from 0
	high := (n*99+99)/100 - 1 // ceil(0.99 n) - 1
	selectNth(s.gaps, median) // the larger gaps are after it now
	highUs := slices.Max(s.gaps[median:])
	if high < n-1 {
		selectNth(s.gaps[median:], high-median)
		highUs = s.gaps[high]
	}
	ms := func(us int32) trace.Opt[float64] { return trace.Some((float64(us) + g.tokenUs) / 1e3) }
	return ms(s.gaps[median]), ms(highUs)
}

// selectNth reorders v so that v[k] has the value that it would have if v were sorted, smaller
// values come before it, and larger ones after it. It is Hoare's selection with the middle of three
// as the pivot and Lomuto's partition, written without branches on the data.
func selectNth(v []int32, k int) {
	for len(v) > 1 {
		a := v[0]
		b := v[len(v)/2]
		c := v[len(v)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		less := partitionBelow(v, int64(pivot))
		switch {
		case k < less:
			v = v[:less]
			continue
		case less == 0: // the pivot is the smallest value, so all equal to it go to the front
			if less = partitionBelow(v, int64(pivot)+1); k < less {
				return
			}
		}
		v = v[less:]
		k -= less
	}
}

// partitionBelow moves the values below the limit to the front and returns their number.
func partitionBelow(v []int32, limit int64) int {
	n := 0
	for i, x := range v {
		v[i] = v[n]
		v[n] = x
		n += int(uint64(int64(x)-limit) >> 63) // 1 if below, without a branch
	}
	return n
}
