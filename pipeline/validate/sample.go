package validate

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// Stats describes a non-empty sample.
func Stats(s []float64) result.SampleStats {
	o := stat.Sorted(s)
	return result.SampleStats{
		P50: stat.Quantile(o, 0.5), P90: stat.Quantile(o, 0.9), P99: stat.Quantile(o, 0.99),
		Mean: stat.Mean(s),
	}
}
