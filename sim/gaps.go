package sim

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// gapQuantiles are the median and the 99th percentile of the request's token
// gaps (nearest rank), unknown without gaps.
func (e *engine) gapQuantiles(s *seq) (p50, p99 trace.Opt[float64]) {
	n := len(s.gaps)
	if n == 0 {
		return p50, p99
	}
	slices.Sort(s.gaps)
	return trace.Some(float64(s.gaps[(n-1)/2]) + e.cfg.TokenUs), trace.Some(float64(s.gaps[(n*99+99)/100-1]) + e.cfg.TokenUs)
}
