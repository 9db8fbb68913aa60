package rows

import (
	"cmp"
	"slices"
)

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
	t.each(func(c column) { c.permute(order) })
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
