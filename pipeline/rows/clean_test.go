package rows

import (
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
	if CleanTo([]*Table{a, other}, limits, Relative); a.Kept != 1 || other.Kept != 1 {
		t.Errorf("kept %d and %d, want 1 and 1", a.Kept, other.Kept)
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
