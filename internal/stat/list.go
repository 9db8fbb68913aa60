package stat

import (
	"slices"
	"sort"
)

// Map is f of every element, in order; nil for none.
func Map[T, U any](list []T, f func(T) U) (out []U) {
	out = slices.Grow(out, len(list))
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// Filter is the elements that keep takes, in order; nil for none.
func Filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// Count is how many elements is takes.
func Count[T any](list []T, is func(T) bool) (n int) {
	for _, v := range list {
		if is(v) {
			n++
		}
	}
	return n
}

// AppendNew appends to list those of more that it does not hold, each once.
func AppendNew[T comparable](list []T, more ...T) []T {
	for _, v := range more {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// SortStable is slices.SortStableFunc for short lists: the sorting itself stands once in the program, not once for each type.
func SortStable[T any](list []T, cmp func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return cmp(list[i], list[j]) < 0 })
}

// Keyed is a map of the list's elements, each as of says; of equal keys the last counts.
func Keyed[T, V any, K comparable](list []T, of func(T) (K, V)) map[K]V {
	out := make(map[K]V, len(list))
	for _, x := range list {
		k, v := of(x)
		out[k] = v
	}
	return out
}

// Sum adds up f of every element, in order; the conversion keeps a product in f from being fused with the addition.
func Sum[T any, N int | int64 | float64](list []T, f func(T) N) (sum N) {
	for _, v := range list {
		sum += N(f(v))
	}
	return sum
}
