// Package sorting sorts lists of records that are not hot. slices.SortFunc is compiled
// again for every type of record, 6 to 13 kB each and as much again in line tables; here
// one sort of places serves all of them.
package sorting

import (
	"cmp"
	"slices"
)

// Records sorts rows by compare, equal ones in the order they came in. It takes room for one
// more copy of them.
func Records[T any](rows []T, compare func(a, b T) int) {
	places := make([]int, len(rows))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(i, j int) int { return cmp.Or(compare(rows[i], rows[j]), cmp.Compare(i, j)) })
	was := slices.Clone(rows)
	for at, i := range places {
		rows[at] = was[i]
	}
}
