package rows

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Variant is what another smoothing factor of the preemption average makes of a
// table: the columns of X that differ in some row.
type Variant struct {
	Gamma  float64
	Cols   []int       // ascending
	Values [][]float64 // Values[k]: column Cols[k], one value per row
}

// variants follows the other smoothing factors while a table is made.
type variants struct {
	ema [][]float64 // by factor, by recorded step; nil: nothing was preempted, all are equal
	x   []float64
}

func (s *Steps) newVariants(t *Table, gammas []float64) variants {
	for _, g := range gammas {
		t.Variants = append(t.Variants, Variant{Gamma: g})
	}
	if !s.Preempts() {
		return variants{}
	}
	return variants{x: make([]float64, t.P), ema: stat.Map(gammas, s.preemptionAverages)}
}

// Preempts reports whether some recorded step preempted a request.
func (s *Steps) Preempts() bool {
	return slices.ContainsFunc(s.Run.Steps, func(r trace.Step) bool { return r.NumPreempted != 0 })
}

// appendRow notes the row last added to t, whose features are own; at writes them under
// another average into x.
func (v *variants) appendRow(t *Table, own []float64, at func(ema, x []float64)) {
	for k, ema := range v.ema {
		at(ema, v.x)
		t.Variants[k].appendRow(t, own, v.x)
	}
}

// appendRow notes x for the last row of t, which is last.
func (v *Variant) appendRow(t *Table, last, x []float64) {
	for j := range x {
		if x[j] == last[j] {
			continue
		}
		if k, known := slices.BinarySearch(v.Cols, j); !known {
			v.Cols, v.Values = slices.Insert(v.Cols, k, j), slices.Insert(v.Values, k, t.copyColumn(j, t.Kept-1))
		}
	}
	for k, j := range v.Cols {
		v.Values[k] = append(v.Values[k], x[j])
	}
}

// copyColumn is column j of the first n rows.
func (t *Table) copyColumn(j, n int) []float64 {
	out := make([]float64, n, cap(t.Y))
	for i := range out {
		out[i] = t.Row(i)[j]
	}
	return out
}

// Column is column j of all rows under a smoothing factor.
func (t *Table) Column(gamma float64, j int) []float64 {
	if v := t.variantOf(gamma); v != nil {
		if k, own := slices.BinarySearch(v.Cols, j); own {
			return v.Values[k]
		}
	}
	return t.copyColumn(j, t.Kept)
}

// variantOf is nil for the table's own factor.
func (t *Table) variantOf(gamma float64) *Variant {
	for k := range t.Variants {
		if t.Variants[k].Gamma == gamma {
			return &t.Variants[k]
		}
	}
	return nil
}

// At is the table under one of its variants, or under its own factor; the rows
// are shared, a changed X is a copy.
func (t *Table) At(gamma float64) *Table {
	out := *t
	out.Gamma, out.Variants = gamma, nil
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

// otherGammas are the factors but one.
func otherGammas(gammas []float64, own float64) []float64 {
	return slices.DeleteFunc(slices.Clone(gammas), func(g float64) bool { return g == own })
}

// vectorUnder is vector with another average: bounds and refusals are those of
// the row itself.
func (b *betaBuilder) vectorUnder(iv interval, ema, x []float64) {
	own := b.ema
	b.ema = ema
	clear(x)
	for u := iv.from; u <= iv.to; u++ {
		one, _, _ := b.step(u)
		for j, v := range one {
			x[j] += v
		}
	}
	b.ema = own
}

// vectorUnder is the features of request r joined to recorded step k with another average.
func (b *alphaBuilder) vectorUnder(in features.QueueInput, average float64, x []float64) {
	in.PreemptionEMA = average
	_, _ = b.sp.Alpha(&in, x)
}
