package table

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestFourBytes: counts of a step come back from both formats, the largest of four bytes too; a file's larger number becomes
// the largest. Row groups have as many steps as if all numbers took eight bytes.
func TestFourBytes(t *testing.T) {
	w, err := Create[trace.Step](t.TempDir(), Steps, Parquet)
	if err != nil || w.groupRows() != 5<<20/(19*8) {
		t.Fatalf("got groups of %d steps, %v", w.groupRows(), err)
	}
	w.Abort()
	want := []trace.Step{{ID: 1, RunningDepth: 5, NumSnapshots: 7, ScheduledTokens: 1<<31 - 1}, {ID: 2, WaitingDepth: -1 << 31, NumPreempted: 3}}
	type wide struct {
		ID      int64 `col:"step_id"`
		Running int64 `col:"running_depth"`
	}
	type narrow struct {
		ID      int64 `col:"step_id"`
		Running int32 `col:"running_depth"`
	}
	for _, format := range []Format{Parquet, Arrow} {
		dir := t.TempDir()
		if err := Write(dir, Steps, format, want); err != nil {
			t.Fatal(err)
		}
		run, err := Read(dir, Steps)
		if err != nil || !slices.Equal(run.Steps, want) {
			t.Errorf("%s: got %+v, %v", format, run, err)
		}
		if err := Write(dir, Steps, format, []wide{{1, 1 << 40}, {2, -1 << 40}, {3, 9}}); err != nil {
			t.Fatal(err)
		}
		c, err := Open[narrow](dir, Steps)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.All()
		if err != nil || !slices.Equal(got, []narrow{{1, 1<<31 - 1}, {2, -1 << 31}, {3, 9}}) {
			t.Errorf("%s: beyond four bytes: got %v, %v", format, got, err)
		}
	}
}
