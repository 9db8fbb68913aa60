// Package sorting sorts lists of records that are not hot. slices.SortFunc is compiled
// again for every type of record, 6 to 13 kB each and as much again in line tables;
// sort.SliceStable is there once (decision 0021).
package sorting

import "sort"

// Records sorts rows by compare, equal ones in the order they came in.
func Records[T any](rows []T, compare func(a, b T) int) {
	sort.SliceStable(rows, func(i, j int) bool { return compare(rows[i], rows[j]) < 0 })
}
