package result

import "math"

// OrNull is a number of a document: nil, which is written as null, for what is
// unknown (NaN) or infinite.
func OrNull(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
