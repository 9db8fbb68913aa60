package rows

// This file treats all columns of a table alike: allocating, appending, reordering and filtering rows.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// eachColumn calls f for every per-row column, with its width in values, in a fixed order that does not
// depend on the table.
func (t *Table) eachColumn(f func(c column)) {
	f(typedColumn[float64]{&t.X, t.P})
	for _, s := range []*[]float64{&t.Y, &t.Lo, &t.Hi, &t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		f(typedColumn[float64]{s, 1})
	}
	for _, s := range []*[]bool{&t.Exact, &t.HoldOut} {
		f(typedColumn[bool]{s, 1})
	}
	for _, s := range []*[]int64{&t.TimeNs, &t.FirstStep, &t.LastStep} {
		f(typedColumn[int64]{s, 1})
	}
	f(typedColumn[Regime]{&t.Regime, 1})
	f(typedColumn[Tag]{&t.Tag, 1})
	f(typedColumn[int32]{&t.Phase, 1})
	f(typedColumn[StressSet]{&t.Sets, 1})
	f(typedColumn[string]{&t.ID, 1})
	for v := range t.Variants {
		for k := range t.Variants[v].Values {
			f(typedColumn[float64]{&t.Variants[v].Values[k], 1})
		}
	}
}

// reserveRows allocates columns for n rows.
func (t *Table) reserveRows(n int, slim bool) {
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

// Reserve grows the columns to the capacity of n rows, for a table that others will be joined to.
func (t *Table) Reserve(n int) { t.eachColumn(func(c column) { c.reserve(n) }) }

// column is one per-row column of a table, for code that treats all columns alike; a nil column
// stays nil.
type column interface {
	// permute replaces the column by one with the value of row order[i] in row i. It makes a new column or, with inPlace,
	// reuses the memory of the old one, for which order must ascend.
	permute(order []int, inPlace bool)
	// appendColumn appends the values of another column of the same type.
	appendColumn(other column)
	// reserve grows the column to the capacity of n rows.
	reserve(n int)
	// truncate removes all rows after the first n.
	truncate(n int)
}

// typedColumn is a column s of w values of type T per row.
type typedColumn[T any] struct {
	s *[]T
	w int
}

// appendColumn appends the values of another table's column.
func (c typedColumn[T]) appendColumn(other column) {
	*c.s = append(*c.s, *other.(typedColumn[T]).s...)
}

// reserve grows the column, unless it has no values at all.
func (c typedColumn[T]) reserve(n int) {
	if more := n*c.w - len(*c.s); *c.s != nil && more > 0 {
		*c.s = slices.Grow(*c.s, more)
	}
}

// truncate shortens the column.
func (c typedColumn[T]) truncate(n int) {
	if *c.s != nil {
		*c.s = (*c.s)[:n*c.w]
	}
}

// copyOf returns a table whose columns may be replaced without changing t; their values are shared.
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

// permute reorders the column: row k becomes what was row order[k].
func (c typedColumn[T]) permute(order []int, inPlace bool) {
	if *c.s == nil {
		return
	}
	out := (*c.s)[:0]
	if !inPlace {
		out = make([]T, 0, len(order)*c.w)
	}
	for _, i := range order {
		out = append(out, (*c.s)[i*c.w:(i+1)*c.w]...)
	}
	*c.s = out
}

// Filter removes the rows for which keep is false, and counts them as dropped for code. The order
// of the others stays. Tables that share columns with t do not change.
func (t *Table) Filter(code trace.Code, keep func(i int) bool) {
	t.filter(code, keep, false)
}

// filter does what Filter does. With inPlace, tables that share columns with t are no longer valid.
func (t *Table) filter(code trace.Code, keep func(i int) bool, inPlace bool) {
	chosen := t.rowsWhere(keep)
	if gone := t.Kept - len(chosen); gone > 0 {
		t.countDrop(code, gone)
		t.pickRows(chosen, inPlace)
	}
}

// Select returns a new table with the rows for which keep is true and without drop counts; t does
// not change.
func (t *Table) Select(keep func(i int) bool) *Table {
	c := t.copyOf()
	c.pickRows(t.rowsWhere(keep), false)
	c.Read, c.Dropped = c.Kept, nil
	return c
}

// rowsWhere returns the indices of the rows for which keep is true.
func (t *Table) rowsWhere(keep func(i int) bool) []int {
	out := make([]int, 0, t.Kept)
	for i := range t.Kept {
		if keep(i) {
			out = append(out, i)
		}
	}
	return out
}

// pickRows replaces the rows by those of the given indices. It makes new columns or, with inPlace, reuses the old ones, for
// which the indices must ascend.
func (t *Table) pickRows(order []int, inPlace bool) {
	t.eachColumn(func(c column) { c.permute(order, inPlace) })
	t.Kept = len(order)
}

// Truncate removes all rows after the first n, and forgets the drop counts.
func (t *Table) Truncate(n int) {
	t.eachColumn(func(c column) { c.truncate(n) })
	t.Kept = n
	t.Read = n
	t.Dropped = nil
}

// checkColumns panics when rows read differ from rows kept and dropped, or the lengths of X and Y from the
// rows kept: a bug of this package.
func (t *Table) checkColumns() {
	n := t.Kept
	for _, c := range t.Dropped {
		n += c.N
	}
	if n != t.Read || len(t.Y) != t.Kept || len(t.X) != t.Kept*t.P {
		panic("rows: rows read differ from rows kept + dropped")
	}
}
