package rows

// This file makes the columns of other smoothing factors of the preemption average, from which a fit
// chooses one.

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
)

// Variant is the table under another smoothing factor of the preemption average: only the columns
// of X that differ in some row.
type Variant struct {
	Gamma  float64
	Cols   []int       // ascending
	Values [][]float64 // Values[k]: column Cols[k], one value per row
}

// variants computes the rows of the other smoothing factors while a table is made.
type variants struct {
	ema []averages // by factor; nil without preemptions, when all are equal
	x   []float64  // buffer of one row
}

// newVariants returns empty variants of t's features, one for each smoothing factor.
func (s *Steps) newVariants(t *Table, gammas []float64) variants {
	for _, g := range gammas {
		t.Variants = append(t.Variants, Variant{Gamma: g})
	}
	if !s.Preempts() {
		return variants{}
	}
	v := variants{x: make([]float64, t.P)}
	for _, g := range gammas {
		v.ema = append(v.ema, s.preemptionAverages(g))
	}
	return v
}

// Preempts reports whether some recorded step preempted a request.
func (s *Steps) Preempts() bool {
	for i := range s.Run.Steps {
		if s.Run.Steps[i].NumPreempted != 0 {
			return true
		}
	}
	return false
}

// appendRow appends the row that was last appended to t, whose features are own, to every variant.
// vectorWith writes the row's features under another average into x.
func (v *variants) appendRow(t *Table, own []float64, vectorWith func(ema averages, x []float64)) {
	for k, ema := range v.ema {
		vectorWith(ema, v.x)
		t.Variants[k].appendRow(t, own, v.x)
	}
}

// appendRow appends the row that was last appended to t: its features are own in t and x in the
// variant. When a column differs for the first time, the earlier rows are copied from t.
func (v *Variant) appendRow(t *Table, own, x []float64) {
	for j := range x {
		if x[j] == own[j] {
			continue
		}
		if k, known := slices.BinarySearch(v.Cols, j); !known {
			v.Cols = slices.Insert(v.Cols, k, j)
			v.Values = slices.Insert(v.Values, k, t.copyColumn(j, t.Kept-1))
		}
	}
	for k, j := range v.Cols {
		v.Values[k] = append(v.Values[k], x[j])
	}
}

// copyColumn returns a copy of column j of the first n rows.
func (t *Table) copyColumn(j, n int) []float64 {
	out := make([]float64, n, cap(t.Y))
	for i := range out {
		out[i] = t.Row(i)[j]
	}
	return out
}

// Column returns column j of all rows under a smoothing factor.
func (t *Table) Column(gamma float64, j int) []float64 {
	if v := t.variantOf(gamma); v != nil {
		if k, own := slices.BinarySearch(v.Cols, j); own {
			return v.Values[k]
		}
	}
	return t.copyColumn(j, t.Kept)
}

// variantOf returns the variant of a factor; nil for the table's own factor.
func (t *Table) variantOf(gamma float64) *Variant {
	for k := range t.Variants {
		if t.Variants[k].Gamma == gamma {
			return &t.Variants[k]
		}
	}
	return nil
}

// At returns the table with the smoothing factor of one of its variants, or with its own. The
// columns are shared with t, except X where it differs.
func (t *Table) At(gamma float64) *Table {
	out := *t
	out.Gamma = gamma
	out.Variants = nil
	v := t.variantOf(gamma)
	if v == nil || len(v.Cols) == 0 {
		return &out
	}
	out.X = slices.Clone(t.X)
	for c, j := range v.Cols {
		for i, x := range v.Values[c] {
			out.X[i*t.P+j] = x
		}
	}
	return &out
}

// otherGammas returns the factors without own.
func otherGammas(gammas []float64, own float64) []float64 {
	return slices.DeleteFunc(slices.Clone(gammas), func(g float64) bool { return g == own })
}

// vectorUnder writes the features of an interval with other preemption averages, one per recorded
// step, into x. It ignores feature bounds, which were tested for the row itself.
func (b *betaBuilder) vectorUnder(iv interval, ema averages, x []float64) {
	own := b.ema
	b.ema = ema
	clear(x)
	for u := iv.from; u <= iv.to; u++ {
		stepX, _, _ := b.step(u)
		for j, v := range stepX {
			x[j] += v
		}
	}
	b.ema = own
}

// vectorUnder writes into x the features of the queue state in, with its moving average of preemptions
// replaced by average.
func (b *alphaBuilder) vectorUnder(in features.QueueInput, average float64, x []float64) {
	in.PreemptionEMA = average
	_, _ = b.sp.Alpha(&in, x)
}
