package rows

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// handTable is a table of two features with n rows, whose values begin with v.
func handTable(n int, v float64) *Table {
	t := &Table{Run: "r", Target: "cadence", P: 2, Read: n + 2, Kept: n, Dropped: []codeCount{{"a", 2}}, Hits: []int{1, 2}, Min: []float64{v, -v}, Max: []float64{v + 10, 5 - v}, Findings: []trace.Finding{{Code: "f"}}}
	t.Variants = []Variant{{Gamma: 0.5, Cols: []int{1}, Values: [][]float64{{}}}}
	for i := range n {
		x := v + float64(i)
		t.X = append(t.X, x, 10*x)
		t.Y = append(t.Y, 100*x)
		t.Steps = append(t.Steps, x+0.5)
		t.Regime = append(t.Regime, Regime(i%2))
		t.TimeNs = append(t.TimeNs, int64(x)*1000)
		t.FirstStep = append(t.FirstStep, int64(x))
		t.LastStep = append(t.LastStep, int64(x)+1)
		t.Tag = append(t.Tag, Tag(i%2))
		t.Phase = append(t.Phase, int32(i)-1)
		t.Factor = append(t.Factor, 0.5)
		t.HoldOut = append(t.HoldOut, i == 1)
		t.Sets = append(t.Sets, StressSet(i))
		t.FloorUs = append(t.FloorUs, x/2)
		t.Batch = append(t.Batch, x/4)
		t.Context = append(t.Context, x/8)
		t.Variants[0].Values[0] = append(t.Variants[0].Values[0], 7*x)
	}
	return t
}

// TestJoinedSlices: every column of the rows of the next slice, their counts, ranges and findings. A variant's column that
// one slice has alone is that of the features in the other.
func TestJoinedSlices(t *testing.T) {
	a, b := handTable(2, 1), handTable(1, 50)
	b.Dropped = []codeCount{{"a", 1}, {"b", 1}}
	b.Variants[0].Cols, b.Variants[0].Values = []int{0}, [][]float64{{99}}
	a.Join(b)
	whole, second := handTable(2, 1), handTable(1, 50)
	if !reflect.DeepEqual(a.X, append(whole.X, second.X...)) || !reflect.DeepEqual(a.Y, append(whole.Y, second.Y...)) || !reflect.DeepEqual(a.Steps, append(whole.Steps, second.Steps...)) || !reflect.DeepEqual(a.Regime, append(whole.Regime, second.Regime...)) ||
		!reflect.DeepEqual(a.TimeNs, append(whole.TimeNs, second.TimeNs...)) || !reflect.DeepEqual(a.FirstStep, append(whole.FirstStep, second.FirstStep...)) || !reflect.DeepEqual(a.LastStep, append(whole.LastStep, second.LastStep...)) || !reflect.DeepEqual(a.Tag, append(whole.Tag, second.Tag...)) ||
		!reflect.DeepEqual(a.Phase, append(whole.Phase, second.Phase...)) || !reflect.DeepEqual(a.Factor, append(whole.Factor, second.Factor...)) || !reflect.DeepEqual(a.HoldOut, append(whole.HoldOut, second.HoldOut...)) || !reflect.DeepEqual(a.Sets, append(whole.Sets, second.Sets...)) ||
		!reflect.DeepEqual(a.FloorUs, append(whole.FloorUs, second.FloorUs...)) || !reflect.DeepEqual(a.Batch, append(whole.Batch, second.Batch...)) || !reflect.DeepEqual(a.Context, append(whole.Context, second.Context...)) {
		t.Errorf("got %+v", a)
	}
	if a.Read != 7 || a.Kept != 3 || !reflect.DeepEqual(a.Dropped, []codeCount{{"a", 3}, {"b", 1}}) || !reflect.DeepEqual(a.Hits, []int{2, 4}) || !reflect.DeepEqual(a.Min, []float64{1, -50}) || !reflect.DeepEqual(a.Max, []float64{60, 4}) || len(a.Findings) != 2 {
		t.Errorf("got %+v", a)
	}
	if want := []Variant{{Gamma: 0.5, Cols: []int{0, 1}, Values: [][]float64{{1, 2, 99}, {7, 14, 500}}}}; !reflect.DeepEqual(a.Variants, want) {
		t.Errorf("got %+v, want %+v", a.Variants, want)
	}
	blocks := []result.CrossBlocks{{Phase: "a", EmbargoNs: 5}, {Phase: "b", EmbargoNs: 5}}
	next := []result.CrossBlocks{{Phase: "b", EmbargoNs: 9}, {Phase: "c", EmbargoNs: 7}, {Phase: "a", EmbargoNs: 2}}
	if got := JoinBlocks(nil, next); !reflect.DeepEqual(got, next) {
		t.Errorf("the first slice: got %+v", got)
	}
	if got := JoinBlocks(blocks, next); len(got) != 2 || got[0].EmbargoNs != 5 || got[1].EmbargoNs != 9 {
		t.Errorf("got %+v", got)
	}
}

// TestTablesComeBack: tables of a file come back in their order; a file that is cut off is an error with its name.
func TestTablesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables")
	w, err := CreateTables(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []*Table{handTable(2, 1), handTable(3, 7)}
	for _, table := range want {
		if err := w.Encode(table); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []*Table
	n, err := RestoreTables(path, func(i int, table *Table) {
		if i != len(got) {
			t.Errorf("table %d comes as number %d", len(got), i)
		}
		got = append(got, table)
	})
	if err != nil || n != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d, %v, %+v", n, err, got)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut, whole := range map[int]int{len(text) - 1: 1, 4: 0, 8: 0} {
		if err := os.WriteFile(path, text[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		if n, err := RestoreTables(path, func(int, *Table) {}); err == nil || n != whole || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("cut after %d bytes: got %d, %v", cut, n, err)
		}
	}
	if _, err := RestoreTables(path+"x", func(int, *Table) {}); err == nil {
		t.Error("no file: got no error")
	}
	if _, err := CreateTables(filepath.Join(path, "x")); err == nil {
		t.Error("no folder: got no error")
	}
}

// TestTotalsOfPasses: the totals of a logged pass are a step's, or the reason why they are not.
func TestTotalsOfPasses(t *testing.T) {
	totals := []trace.StepTotals{{Known: true, NoStart: true}, {Known: true, Encoder: true}, {}}
	of := func(id int64, version features.Version) *Step {
		b := &batchSources{s: &Steps{Version: version, Run: &trace.Run{Aggregate: &trace.Aggregate{First: 10, Totals: totals}}}}
		st := &Step{ID: id}
		b.takeTotals(st)
		return st
	}
	for id, want := range map[int64]any{9: reconstruct.NoRequests, 11: reconstruct.EncoderRan, 12: reconstruct.RecomputedTotals, 13: reconstruct.NoRequests} {
		if got := of(id, features.V13); any(got.Reason) != want {
			t.Errorf("pass %d: got %v, want %v", id, got.Reason, want)
		}
	}
	if got := of(10, features.V13); got.Reason != reconstruct.Known || got.Tag != tagAggregate || !got.NoStart || !reflect.DeepEqual(got.In, features.FromTotals(&totals[0])) {
		t.Errorf("got %+v", got)
	}
	if got := of(10, features.V10); got.Reason != reconstruct.ChunkedNoSnapshots {
		t.Errorf("spec 1.0: got %+v", got)
	}
}

// TestRecentPreemptions: a preemption counts as long as the slowest average remembers it.
func TestRecentPreemptions(t *testing.T) {
	run := &trace.Run{}
	for id := range int64(features.MemorySteps + 5) {
		run.Steps = append(run.Steps, trace.Step{ID: id})
	}
	run.Steps[3].NumPreempted = 1
	b := &betaBuilder{}
	b.s = &Steps{Run: run}
	for k, want := range map[int]bool{2: false, 3: true, 4: true, 3 + features.MemorySteps - 1: true, 3 + features.MemorySteps: false} {
		if got := b.hasRecentPreemption(k); got != want {
			t.Errorf("step %d: got %v", k, got)
		}
	}
	run.Steps[3].NumPreempted, run.Steps[0].NumPreempted = 0, 1
	if !b.hasRecentPreemption(5) || !b.hasRecentPreemption(0) {
		t.Error("the first step is not looked at")
	}
}

// TestSentencesOfRows: which checks hit, and which stamps are the step time.
func TestSentencesOfRows(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	if got := HitText([]result.SaturationCheck{{Name: "a", Value: v(0.5), Threshold: 0.25, Hit: true}, {Name: "b"}, {Name: "c", Value: v(3), Threshold: 2, Hit: true}}); got != "a 0.50 > 0.25, c 3.00 > 2.00" {
		t.Errorf("got %q", got)
	}
	if got := HitText([]result.SaturationCheck{{Name: "b", Value: v(1)}}); got != "requests pile up in the system" {
		t.Errorf("got %q", got)
	}
	for want, a := range map[string]*result.TargetAudit{
		"no two adjacent busy steps are recorded: the step time can only come from intervals of several steps":                                                    {},
		"the target lies below the physical floor: the cadence (99 us) is shorter than reading the weights once (100 us); check the hardware figures of run.yaml": {CadenceUsP50: v(99), PhysicalFloorUs: v(100)},
		"cadence is the step time; step.duration_us is scheduler CPU time (49 % of the cadence)":                                                                  {CadenceUsP50: v(100), PhysicalFloorUs: v(100), DurationUsP50: v(49)},
		"cadence is the step time; step.duration_us comes close to it (50 %), which a GPU run should not show":                                                    {CadenceUsP50: v(100), PhysicalFloorUs: v(100), DurationUsP50: v(50)},
	} {
		if got := auditVerdict(a); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
