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

// Share is part of whole, nil for nothing of nothing.
func Share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

// TextOrNull is a text that may not be.
func TextOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
