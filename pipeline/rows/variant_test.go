package rows

import (
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// TestVariantsAreTheTablesOfTheirFactors: one table with other smoothing factors
// beside its own holds what a table of each of them holds, before and after rows
// are dropped.
func TestVariantsAreTheTablesOfTheirFactors(t *testing.T) {
	differ := 0
	for seed := range uint64(12) {
		y, _ := play(seed, seed%2 == 1, true)
		for i := range y.run.Steps {
			if s := &y.run.Steps[i]; i%7 == int(seed%7) && s.RunningDepth > 0 && seed > 1 {
				s.NumPreempted = 1 + int64(i%2)
			}
		}
		d := toyDeployment(y)
		s, sp := mustRebuild(t, y.run, d, features.V11), testSpace(t, d, features.V11)
		for _, thin := range []bool{false, true} {
			beta := func(o Options) *Table {
				table, err := s.Beta(sp, o)
				if err != nil {
					t.Fatal(err)
				}
				if thin {
					table.Filter("thin", func(i int) bool { return i%3 != 1 })
				}
				return table
			}
			alpha := func(o Options) *Table {
				o.Target = coeff.Queue
				table, err := s.Alpha(sp, o)
				if err != nil {
					t.Fatal(err)
				}
				return table.Select(func(i int) bool { return !thin || i%3 != 1 })
			}
			all, queue := beta(Options{Gammas: features.Gammas()}), alpha(Options{Gammas: features.Gammas()})
			for _, g := range features.Gammas() {
				for _, pair := range [][2]*Table{{all.At(g), beta(Options{Gamma: g})}, {queue.At(g), alpha(Options{Gamma: g})}} {
					got, want := pair[0], pair[1]
					if !slices.Equal(got.X, want.X) || !reflect.DeepEqual(got.Y, want.Y) || got.Gamma != g {
						t.Errorf("seed %d, %s, factor %g: other rows", seed, got.Target, g)
					}
					for j := range got.P {
						if !slices.Equal(all.Column(g, j), all.At(g).column(j, all.Kept)) {
							t.Errorf("seed %d, factor %g: column %d differs", seed, g, j)
						}
					}
				}
			}
			for _, v := range append(all.Variants, queue.Variants...) {
				differ += len(v.Cols)
			}
		}
	}
	if differ == 0 {
		t.Error("no column differs: the test shows nothing")
	}
}
