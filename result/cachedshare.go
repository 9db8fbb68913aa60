package result

// This file has the estimate of how many prompt tokens came from the prefix cache.

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

// IsSmall reports whether the interval excludes a share that would matter (trace.MostGuessed).
func (c *CachedShare) IsSmall() bool { return c != nil && c.High <= trace.MostGuessed }

// String returns the interval as text.
func (c *CachedShare) String() string {
	high := fmt.Sprintf("%.0f", 100*c.High)
	if c.High < 0.1 {
		high = fmt.Sprintf("%.1f", 100*c.High)
	}
	return fmt.Sprintf("cached share %.0f to %s %%, estimated from TTFT", 100*c.Low, high)
}
