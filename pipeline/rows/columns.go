package rows

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// each calls f for every per-row column, with its width in values.
func (t *Table) each(f func(c column)) {
	f(col[float64]{&t.X, t.P})
	for _, s := range []*[]float64{&t.Y, &t.Lo, &t.Hi, &t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		f(col[float64]{s, 1})
	}
	for _, s := range []*[]bool{&t.Exact, &t.HoldOut} {
		f(col[bool]{s, 1})
	}
	for _, s := range []*[]int64{&t.TimeNs, &t.FirstStep, &t.LastStep} {
		f(col[int64]{s, 1})
	}
	f(col[Regime]{&t.Regime, 1})
	f(col[Tag]{&t.Tag, 1})
	f(col[int32]{&t.Phase, 1})
	f(col[StressSet]{&t.Sets, 1})
	f(col[string]{&t.ID, 1})
	for v := range t.Variants {
		for k := range t.Variants[v].Values {
			f(col[float64]{&t.Variants[v].Values[k], 1})
		}
	}
}

// reserve allocates columns for n rows.
func (t *Table) reserve(n int, slim bool) {
	t.X = make([]float64, 0, n*t.P)
	for _, s := range []*[]float64{&t.Y, &t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		*s = make([]float64, 0, n)
	}
	t.TimeNs = make([]int64, 0, n)
	if !slim {
		t.FirstStep = make([]int64, 0, n)
		t.LastStep = make([]int64, 0, n)
	}
	t.Regime = make([]Regime, 0, n)
	t.Tag = make([]Tag, 0, n)
	t.Phase = make([]int32, 0, n)
	t.HoldOut = make([]bool, 0, n)
	t.Sets = make([]StressSet, 0, n)
}

// column is one per-row column of a table; a nil column stays nil.
type column interface {
	permute(order []int) // the rows of order, in a new column
	join(behind column)  // of the same kind
}

type col[T any] struct {
	s *[]T
	w int
}

func (c col[T]) join(behind column) { *c.s = append(*c.s, *behind.(col[T]).s...) }

// copyOf is a table whose columns may be replaced; their values are shared.
func (t *Table) copyOf() *Table {
	c := *t
	c.Dropped, c.Hits = slices.Clone(t.Dropped), slices.Clone(t.Hits)
	c.Min, c.Max, c.Findings = slices.Clone(t.Min), slices.Clone(t.Max), slices.Clone(t.Findings)
	c.Variants = slices.Clone(t.Variants)
	for v := range c.Variants {
		c.Variants[v].Values = slices.Clone(t.Variants[v].Values)
	}
	return &c
}

// permute puts value order[i] at place i.
func (c col[T]) permute(order []int) {
	if *c.s == nil {
		return
	}
	out := make([]T, 0, len(order)*c.w)
	for _, i := range order {
		out = append(out, (*c.s)[i*c.w:(i+1)*c.w]...)
	}
	*c.s = out
}

// Filter keeps the rows for which keep is true and counts the others under
// code. Order is preserved.
func (t *Table) Filter(code trace.Code, keep func(i int) bool) {
	chosen := t.chosen(keep)
	if gone := t.Kept - len(chosen); gone > 0 {
		t.drop(code, gone)
		t.pick(chosen)
	}
}

// Select returns a new table with the rows for which keep is true and no drop
// counts; the receiver is unchanged.
func (t *Table) Select(keep func(i int) bool) *Table {
	c := t.copyOf()
	c.pick(t.chosen(keep))
	c.Read, c.Dropped = c.Kept, nil
	return c
}

// chosen are the rows that keep says yes to.
func (t *Table) chosen(keep func(i int) bool) []int {
	var out []int
	for i := range t.Kept {
		if keep(i) {
			out = append(out, i)
		}
	}
	return out
}

// pick makes the table one of the rows of order, in new columns.
func (t *Table) pick(order []int) {
	t.each(func(c column) { c.permute(order) })
	t.Kept = len(order)
}

// check asserts the accounting; a failure is a bug of this package.
func (t *Table) check() {
	n := t.Kept + stat.Sum(t.Dropped, func(c codeCount) int { return c.N })
	if n != t.Read || len(t.Y) != t.Kept || len(t.X) != t.Kept*t.P {
		panic("rows: rows read differ from rows kept + dropped")
	}
}
