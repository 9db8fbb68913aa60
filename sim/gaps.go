package sim

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// gap counts a gap between two tokens; equal neighbours are counted together.
func (e *Engine) gap(s *seq, us int64) {
	if us != e.gapUs {
		e.flushGaps()
		e.gapUs = us
	}
	e.gapN++
	s.gaps = append(s.gaps, int32(us))
}

func (e *Engine) flushGaps() {
	if e.gapN > 0 {
		e.out.Gaps.Add(float64(e.gapUs)+e.cfg.TokenUs, e.gapN)
		e.gapN = 0
	}
}

// forgetGaps takes the gaps of a request that does not finish out of those of all.
func (e *Engine) forgetGaps(s *seq) {
	if !e.cfg.TokenGaps {
		return // a copy of an engine that runs ahead: the histogram is not its own
	}
	for _, us := range s.gaps {
		e.out.Gaps.Add(float64(us)+e.cfg.TokenUs, -1)
	}
}

// gapQuantiles are the median and the 99th percentile of the request's token
// gaps (nearest rank), ms, unknown without gaps.
func (e *Engine) gapQuantiles(s *seq) (p50, p99 trace.Opt[float64]) {
	n := len(s.gaps)
	if n == 0 {
		return p50, p99
	}
	a, b := (n-1)/2, (n*99+99)/100-1
	nth(s.gaps, a)
	high := slices.Max(s.gaps[a:])
	if b < n-1 {
		nth(s.gaps[a:], b-a)
		high = s.gaps[b]
	}
	return trace.Some((float64(s.gaps[a]) + e.cfg.TokenUs) / 1e3), trace.Some((float64(high) + e.cfg.TokenUs) / 1e3)
}

// nth reorders v so that v[k] is what it would be in order, nothing before it is
// larger and nothing behind it smaller (Hoare's selection, middle of three,
// Lomuto's partition, which needs no branch on the data).
func nth(v []int32, k int) {
	for len(v) > 1 {
		a := v[0]
		b := v[len(v)/2]
		c := v[len(v)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		less := below(v, int64(pivot))
		switch {
		case k < less:
			v = v[:less]
			continue
		case less == 0: // the pivot is the smallest
			if less = below(v, int64(pivot)+1); k < less {
				return
			}
		}
		v, k = v[less:], k-less
	}
}

// below moves what is smaller than the limit to the front and counts it.
func below(v []int32, limit int64) int {
	n := 0
	for i, x := range v {
		v[i] = v[n]
		v[n] = x
		n += int(uint64(int64(x)-limit) >> 63) // 1 if below, without a branch
	}
	return n
}
