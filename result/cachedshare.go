package result

import (
	"fmt"

	"github.com/blis-train/blis-train/trace"
)

// CachedShare is an estimate of the share of prompt tokens that came from the prefix cache, where nothing
// states it (spec#cached-share).
type CachedShare struct {
	Share    float64 `json:"share"` // that the fit assumes of each prompt
	Low      float64 `json:"low"`   // 95 % interval
	High     float64 `json:"high"`
	Requests int     `json:"requests"` // of which nothing is stated; load levels of a fit from points
}

// IsSmall reports whether the interval excludes a share that would matter.
func (c *CachedShare) IsSmall() bool { return c != nil && c.High <= trace.MostGuessed }

// String describes the estimate by its interval.
func (c *CachedShare) String() string {
	return fmt.Sprintf("cached share %.2g to %.2g %%, estimated from TTFT", 100*c.Low, 100*c.High)
}
