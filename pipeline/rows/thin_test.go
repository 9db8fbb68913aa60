package rows

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// TestThinningIsEven: whatever the steps between rows, the share that stays is that of the stride to within five
// standard deviations, and so it is in every tenth of the run and among every second, third and seventh row.
func TestThinningIsEven(t *testing.T) {
	const n = 100_000
	for _, step := range []int64{1, 1000, 1 << 20, 25_000_000, 1e9} {
		for _, stride := range []int{2, 3, 10, 64} {
			share := func(what string, of int, in func(i int64) bool) {
				got := 0
				for i := range int64(n) {
					if in(i) && stays(1_700_000_000e9+i*step, stride) {
						got++
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

// TestThinnedTables: of tables that are thinned while they are built, the rows are those of the whole table that stay,
// with its range and its counts; those of a longer stride are among them, and stride 1 changes nothing.
func TestThinnedTables(t *testing.T) {
	y, _ := play(3, true, true)
	d := toyDeployment(y)
	s, sp := mustRebuild(t, y.run, d, features.V11), testSpace(t, d, features.V11)
	for _, make := range []func(o Options) (*Table, error){
		func(o Options) (*Table, error) { return s.Beta(sp, o) },
		func(o Options) (*Table, error) { o.Target = coeff.Queue; return s.Alpha(sp, o) },
	} {
		table := func(stride int) *Table {
			out, err := make(Options{Stride: stride, Gammas: features.Gammas()})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		whole := table(0)
		for _, stride := range []int{1, 3, 11} {
			got, want := table(stride), whole.Select(func(i int) bool { return stays(whole.TimeNs[i], stride) })
			if !slices.Equal(got.X, want.X) || !slices.Equal(got.TimeNs, want.TimeNs) || !slices.Equal(got.HoldOut, want.HoldOut) ||
				!slices.Equal(got.Min, whole.Min) || !slices.Equal(got.Max, whole.Max) || got.Read != whole.Read ||
				got.DroppedFor(codeRowsThinned) != whole.Kept-got.Kept || got.IsThinned() != (stride > 1) {
				t.Errorf("%s, stride %d: got %d rows of %d, want %d", got.Target, stride, got.Kept, got.Read, want.Kept)
			}
			for i, ns := range got.TimeNs {
				if stride == 11 && !stays(ns, 5) {
					t.Errorf("row %d: stride 11 keeps what stride 5 drops", i)
				}
			}
		}
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
