package stat

import (
	"reflect"
	"testing"
)

// Documents tell an empty list from none: what nothing gave is nil.
func TestListsOfNothingAreNil(t *testing.T) {
	odd := func(n int) bool { return n%2 == 1 }
	if got := Map(nil, func(n int) string { return "" }); got != nil {
		t.Errorf("Map: got %v, want nil", got)
	}
	if got := Filter([]int{2, 4}, odd); got != nil {
		t.Errorf("Filter: got %v, want nil", got)
	}
	list := []int{3, 4, 5}
	if got, want := Map(list, func(n int) int64 { return int64(n * n) }), []int64{9, 16, 25}; !reflect.DeepEqual(got, want) {
		t.Errorf("Map: got %v, want %v", got, want)
	}
	if got, want := Filter(list, odd), []int{3, 5}; !reflect.DeepEqual(got, want) {
		t.Errorf("Filter: got %v, want %v", got, want)
	}
	if got := Count(list, odd); got != 2 {
		t.Errorf("Count: got %d, want 2", got)
	}
	if got := Sum(list, func(n int) float64 { return float64(n) / 2 }); got != 6 {
		t.Errorf("Sum: got %g, want 6", got)
	}
}
