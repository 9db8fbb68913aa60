package rows

// This file tracks the range of each feature over the training rows (spec#training-range).

import (
	"math"
)

// widenRange extends the range of each feature by x.
func (t *Table) widenRange(x []float64) {
	for j, v := range x {
		t.Min[j] = math.Min(t.Min[j], v)
		t.Max[j] = math.Max(t.Max[j], v)
	}
}

// Ranges returns the smallest and largest per-step value of every feature over the training rows of
// the tables (spec#training-range); 0, 0 for a slot without any.
func Ranges(tables []*Table) (lo, hi []float64) {
	if len(tables) == 0 {
		return nil, nil
	}
	p := tables[0].P
	lo = repeated(p, math.Inf(1))
	hi = repeated(p, math.Inf(-1))
	for _, t := range tables {
		for j := range p {
			lo[j] = math.Min(lo[j], t.Min[j])
			hi[j] = math.Max(hi[j], t.Max[j])
		}
	}
	for j := range p {
		if lo[j] > hi[j] {
			lo[j], hi[j] = 0, 0
		}
	}
	return lo, hi
}
