package rows

import (
	"cmp"
	"slices"
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
		t.FirstStep, t.LastStep = make([]int64, 0, n), make([]int64, 0, n)
	}
	t.Regime, t.Tag, t.Phase = make([]Regime, 0, n), make([]Tag, 0, n), make([]int32, 0, n)
	t.HoldOut, t.Sets = make([]bool, 0, n), make([]StressSet, 0, n)
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

// sortByTime brings rows into time order, ties as they came. Requests are
// ordered by arrival already, except those without one.
func (b *alphaBuilder) sortByTime() {
	t := b.t
	if slices.IsSorted(t.TimeNs) {
		return
	}
	order := make([]int, t.Kept)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(t.TimeNs[i], t.TimeNs[j]) })
	t.pick(order)
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
