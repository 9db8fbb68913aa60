package rows

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

func yTable(config string, regime Regime, ys ...float64) *Table {
	t := &Table{Config: config, Target: coeff.Cadence, Read: len(ys), Kept: len(ys), Y: ys}
	for i := range ys {
		t.Steps, t.Regime, t.FirstStep = append(t.Steps, 1), append(t.Regime, regime), append(t.FirstStep, int64(i))
	}
	return t
}

// TestOutliers: strict, per step, per cell in the relative recipe and per
// configuration in the frozen one, pooled over runs.
func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		recipe Recipe
		want   [3]int
	}{{Relative, [3]int{4, 2, 3}}, {Frozen, [3]int{5, 0, 3}}} {
		a := yTable("A", Decode, 10, 10, 10, 50, 51)
		b := yTable("A", Prefill, 1000, 1100)
		other := yTable("B", Decode, 1000, 1000, 1000)
		findings := Clean([]*Table{a, b, other}, c.recipe)
		if got := [3]int{a.Kept, b.Kept, other.Kept}; got != c.want {
			t.Errorf("%s: kept %v, want %v", c.recipe, got, c.want)
		}
		if a.DroppedFor(codeOutlier) != 5-c.want[0] || b.DroppedFor(codeOutlier) != 2-c.want[1] {
			t.Errorf("%s: %v", c.recipe, a.Dropped)
		}
		if many := slices.ContainsFunc(findings, func(f trace.Finding) bool { return f.Code == codeManyOutliers }); many != (c.recipe == Frozen) {
			t.Errorf("%s: findings %v", c.recipe, findings)
		}
	}
}

// Limits of other tables hold, and say nothing of cells that those did not have.
func TestLimitsOfOthers(t *testing.T) {
	limits := LimitsOf([]*Table{yTable("A", Decode, 10, 10, 10)}, Relative)
	a, other := yTable("A", Decode, 50, 51), yTable("B", Decode, 51)
	if CleanTo([]*Table{a, other}, limits, Relative, false); a.Kept != 1 || other.Kept != 1 {
		t.Errorf("kept %d and %d, want 1 and 1", a.Kept, other.Kept)
	}
}

// What judges stays, marked: the hold-out of a training run, every row of another.
func TestOutliersOfTheHoldOutStay(t *testing.T) {
	a, test := yTable("A", Decode, 10, 10, 10, 60, 61), yTable("A", Decode, 10, 62)
	a.HoldOut = []bool{4: true}
	limits := LimitsOf([]*Table{a}, Relative)
	CleanTo([]*Table{a}, limits, Relative, false)
	CleanTo([]*Table{test}, limits, Relative, true)
	if want := []StressSet{0, 0, 0, Outlier}; a.DroppedFor(codeOutlier) != 1 || !slices.Equal(a.Sets, want) {
		t.Errorf("training run: dropped %d, sets %v, want 1 and %v", a.DroppedFor(codeOutlier), a.Sets, want)
	}
	if want := []StressSet{0, Outlier}; !slices.Equal(test.Sets, want) {
		t.Errorf("test run: sets %v, want %v", test.Sets, want)
	}
}

// TestComparesTimePerStep: a row of several steps is not an outlier for it.
func TestComparesTimePerStep(t *testing.T) {
	a := yTable("A", Decode, 10, 11, 12, 110)
	a.Steps[3] = 10
	Clean([]*Table{a}, Relative)
	if a.Kept != 4 {
		t.Errorf("kept %d", a.Kept)
	}
}

// TestOverheadIsNotCleaned.
func TestOverheadIsNotCleaned(t *testing.T) {
	a := yTable("A", Idle, 1, 1, 1, 1000)
	a.Target = coeff.Overhead
	if Clean([]*Table{a}, Relative); a.Kept != 4 {
		t.Errorf("kept %d", a.Kept)
	}
}

// TestFilterMovesEveryColumn: each column of a kept row stays with it.
func TestFilterMovesEveryColumn(t *testing.T) {
	y, _ := play(1, false, true)
	d := toyDeployment(y)
	whole := alphaOf(t, y.run, d, Options{})
	odd := func(i int) bool { return i%2 == 1 }
	half := whole.Select(odd)
	if half.Kept != whole.Kept/2 || half.Kept < 5 {
		t.Fatalf("%d of %d", half.Kept, whole.Kept)
	}
	for i := range half.Kept {
		if half.dumpRow(i, nil, nil, nil).Request != whole.dumpRow(2*i+1, nil, nil, nil).Request ||
			!slices.Equal(half.Row(i), whole.Row(2*i+1)) || half.Lo[i] != whole.Lo[2*i+1] ||
			half.Exact[i] != whole.Exact[2*i+1] || half.Sets[i] != whole.Sets[2*i+1] ||
			half.Phase[i] != whole.Phase[2*i+1] {
			t.Errorf("row %d", i)
		}
	}
}

// TestDumpRows: what `fit --dump-rows` writes reads back, every row of every
// table.
func TestDumpRows(t *testing.T) {
	y, _ := play(1, false, true)
	d := toyDeployment(y)
	d.Phases = []deploy.Phase{{Name: "open", StartNs: 0, EndNs: 1 << 40}}
	beta, alpha := betaOf(t, y.run, d, Options{}), alphaOf(t, y.run, d, Options{})
	dir := t.TempDir()
	names := func(t *Table) []string {
		if t.ID == nil {
			return features.Names(features.BetaFeatures(features.V11))
		}
		return features.Names(features.AlphaFeatures(features.V11))
	}
	if err := WriteParquet(dir, []*Table{beta, alpha}, names, func(string) []deploy.Phase { return d.Phases }); err != nil {
		t.Fatal(err)
	}
	c, err := table.Open[DumpRow](dir, tableName)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var rows []DumpRow
	for c.Next() {
		rows = append(rows, *c.Row())
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	if len(rows) != beta.Kept+alpha.Kept {
		t.Fatalf("%d rows, want %d + %d", len(rows), beta.Kept, alpha.Kept)
	}
	for i, r := range rows {
		from, k := beta, i
		if i >= beta.Kept {
			from, k = alpha, i-beta.Kept
		}
		if r.YUs != from.Y[k] || !slices.Equal(r.X, from.Row(k)) || len(r.Names) != len(r.X) || r.Phase.V != "open" || r.Target != from.Target ||
			r.Exact.OK != (from == alpha) {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}

// TestCoverage counts every busy step once per histogram and names what is
// missing.
func TestCoverage(t *testing.T) {
	s := mustRebuild(t, decodeRun(100), testDeployment(), features.V11)
	c := s.Coverage()
	if c.DecodeBatch.Rows != 100 || c.Context.Rows != 100 || c.KVUsage.Rows != 100 || c.PrefillTokens.Rows != 0 {
		t.Errorf("%+v", c)
	}
	if c.KVUsage.Counts[5] != 100 || c.DecodeBatch.Counts[1] != 100 {
		t.Errorf("%+v", c)
	}
	if len(c.Findings) != 3 || c.Findings[0].Code != codeRegimeAbsent {
		t.Errorf("findings %v", c.Findings)
	}
}

// TestAudit: cadence and duration medians and the pick-up quantiles.
func TestAudit(t *testing.T) {
	run, d := decodeRun(40), testDeployment()
	run.Requests = []trace.Request{request("a", 150*ms, 200*ms), request("b", 241*ms, 300*ms)}
	s := mustRebuild(t, run, d, features.V11)
	a := s.Audit(testSpace(t, d, features.V11))
	if *a.CadenceUsP50 != 10000 || *a.DurationUsP50 != 120 || a.BelowFloor() || *a.QueuedToScheduledUs.P50 != 200 ||
		*a.ArrivedToQueuedUs.P90 != 2000 {
		t.Errorf("%+v", a)
	}
	slow := *d
	slow.Hardware.BwPeakTBs = 0.1
	if a := s.Audit(testSpace(t, &slow, features.V11)); !a.BelowFloor() {
		t.Errorf("%+v", a)
	}
}

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
