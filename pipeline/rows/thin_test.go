package rows

import (
	"math"
	"slices"
	"testing"
)

// ticks is a table of n rows whose times are step ns apart, with features packed.
func ticks(from, n, step int64) *Table {
	t := &Table{Run: "r", P: 1, Min: []float64{0}, Max: []float64{0}, Hits: []int{0}, Variants: []Variant{{Gamma: 0.1}}}
	t.reserve(int(n), true)
	for i := range n {
		t.TimeNs, t.Y = append(t.TimeNs, from+i*step), append(t.Y, float64(i))
		t.Packed.Append([]float64{float64(from + i*step)})
	}
	t.Packed.Seal()
	t.Read, t.Kept = int(n)+3, int(n)
	t.drop(codeWarmUp, 3)
	for _, s := range []*[]float64{&t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		*s = make([]float64, n)
	}
	t.Regime, t.Tag, t.Phase = make([]Regime, n), make([]Tag, n), make([]int32, n)
	t.HoldOut, t.Sets = make([]bool, n), make([]StressSet, n)
	return t
}

// TestThinIsEven: whatever the steps between rows, the share that stays is that of the stride to within five
// standard deviations, and so it is in every tenth of the run and among every second, third and seventh row.
func TestThinIsEven(t *testing.T) {
	const n = 100_000
	for _, step := range []int64{1, 1000, 1 << 20, 25_000_000, 1e9} {
		for _, stride := range []int{2, 3, 10, 64} {
			table := ticks(1_700_000_000e9, n, step)
			table.Thin(stride)
			if table.Read != n+3 || table.Kept+table.DroppedFor(codeRowsThinned) != n || table.DroppedFor(codeWarmUp) != 3 {
				t.Fatalf("got %d of %d, dropped %v", table.Kept, table.Read, table.Dropped)
			}
			share := func(what string, of int, in func(i int64) bool) {
				got := 0
				for r, i := table.Reader(), 0; i < table.Kept; i++ {
					if at := (table.TimeNs[i] - 1_700_000_000e9) / step; in(at) {
						got++
					}
					if r.Row(i)[0] != float64(table.TimeNs[i]) {
						t.Fatalf("row %d has the features of another", i)
					}
				}
				p := 1 / float64(stride)
				if want, sd := float64(of)*p, math.Sqrt(float64(of)*p*(1-p)); math.Abs(float64(got)-want) > 5*sd {
					t.Errorf("step %d ns, stride %d, %s: got %d rows, want %.0f +- %.0f", step, stride, what, got, want, sd)
				}
			}
			share("all", n, func(int64) bool { return true })
			for k := range int64(10) {
				share("a tenth", n/10, func(i int64) bool { return i*10/n == k })
			}
			for _, every := range []int64{2, 3, 7} {
				share("every so many", n/int(every), func(i int64) bool { return i%every == 0 })
			}
		}
	}
}

// TestThinKnowsNoSlices: slices that are thinned and joined are the whole that is thinned, the rows of a longer
// stride are among those of a shorter, and stride 1 changes nothing.
func TestThinKnowsNoSlices(t *testing.T) {
	whole, joined := ticks(0, 9000, 7), ticks(0, 4000, 7)
	next := ticks(4000*7, 5000, 7)
	for _, table := range []*Table{whole, joined, next} {
		table.Thin(5)
	}
	joined.Join(next)
	if !slices.Equal(joined.TimeNs, whole.TimeNs) || joined.DroppedFor(codeRowsThinned) != whole.DroppedFor(codeRowsThinned) {
		t.Errorf("got %d rows, want the %d of the whole", joined.Kept, whole.Kept)
	}
	longer := ticks(0, 9000, 7)
	longer.Thin(11)
	if len(longer.TimeNs) == 0 || slices.ContainsFunc(longer.TimeNs, func(ns int64) bool { return !slices.Contains(whole.TimeNs, ns) }) {
		t.Errorf("stride 11 keeps rows that stride 5 drops")
	}
	same := ticks(0, 100, 7)
	same.Thin(1)
	if same.Kept != 100 || len(same.Dropped) != 1 {
		t.Errorf("stride 1: got %d rows, dropped %v", same.Kept, same.Dropped)
	}
}

// TestStrides: what the configurations with few rows leave is shared by the others, and the sum is kept.
func TestStrides(t *testing.T) {
	most, configs := []int64{10_000, 8000, 500, 4600}, []string{"a", "a", "b", "c"}
	for _, c := range []struct {
		max  int
		want []int
	}{{0, []int{1, 1, 1, 1}}, {23_100, []int{1, 1, 1, 1}}, {10_000, []int{4, 4, 1, 1}}, {5000, []int{8, 8, 1, 3}},
		{1000, []int{54, 54, 2, 14}}} {
		got, found := Strides(most, configs, c.max)
		if !slices.Equal(got, c.want) || len(found) == 0 != (got[0] == 1) {
			t.Errorf("at most %d: got %v, %v, want %v", c.max, got, found, c.want)
		}
	}
	if got, _ := Strides([]int64{1e10, 0}, []string{"a", "a"}, DefaultMaxRows); got[0] != 20_000 || got[1] != 20_000 {
		t.Errorf("1e10 rows: got %v, want 20000", got)
	}
	for n, fine := range map[int]bool{0: true, 1000: true, 999: false, -1: false} {
		if err := CheckMaxRows(n); (err == nil) != fine {
			t.Errorf("--max-rows %d: got %v", n, err)
		}
	}
}
