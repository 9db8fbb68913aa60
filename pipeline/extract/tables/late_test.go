package tables

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/account"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/spool"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// stepSpans makes n spans of ten steps each; the last step of every other span has its
// snapshots spread over this span and the next.
func stepSpans(n int) []*otlp.StepRows {
	spans := make([]*otlp.StepRows, n+1)
	for i := range spans {
		spans[i] = &otlp.StepRows{}
	}
	for id := int64(1); id <= int64(10*n); id++ {
		at := int(id-1) / 10
		spans[at].Steps = append(spans[at].Steps, trace.Step{ID: id, TsStartNs: 100 * id, RunningDepth: 3})
		for r := range 3 {
			if id%20 == 0 && r == 2 {
				at++
			}
			spans[at].Snaps = append(spans[at].Snaps, trace.Snapshot{StepID: id, CoreID: fmt.Sprint("request-", r+int(id)/7), ScheduledTokens: 1,
				ComputedTokens: id})
		}
	}
	return spans
}

// writeSpans writes spans as the tables of one engine.
func writeSpans(t *testing.T, format table.Format, spans []*otlp.StepRows) (map[string][]byte, *stepTables) {
	t.Helper()
	dir := t.TempDir()
	mem := &spool.Memory{Dir: t.TempDir(), Limit: 4096}
	defer mem.Close()
	m, err := newStepTables(dir, format, account.New(nil), account.Place{}, mem)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spans {
		if err := m.add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	return tableFiles(t, dir), m
}

// tableFiles reads the files of a folder.
func tableFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestLateStepSpans: spans that were exported after those of later steps, as
// retries are, end up where they belong: same bytes, same figures as in order,
// in both formats.
func TestLateStepSpans(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		want, ordered := writeSpans(t, format, stepSpans(40))
		if len(want) != 2 || ordered.late.rows != 0 {
			t.Fatalf("%s: got %d files and %d late rows, want 2 and none", format, len(want), ordered.late.rows)
		}
		spans := stepSpans(40)
		late := append(append(append([]*otlp.StepRows{}, spans[:5]...), spans[7:]...), spans[5:7]...)
		got, m := writeSpans(t, format, late)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: the tables differ", format)
		}
		if m.late.rows == 0 || !reflect.DeepEqual(m.out, ordered.out) || !reflect.DeepEqual(m.owners, ordered.owners) ||
			m.acc.Kept != ordered.acc.Kept {
			t.Errorf("%s: got %d late rows, %+v, want the figures of the ordered spans %+v", format, m.late.rows, m.out.steps, ordered.out.steps)
		}
	}
}

// TestRepeatedStepRows: of a step or snapshot recorded twice the first stays,
// the other is a counted drop, in time or late.
func TestRepeatedStepRows(t *testing.T) {
	spans := stepSpans(3)
	again := stepSpans(3)
	_, m := writeSpans(t, table.Parquet, []*otlp.StepRows{spans[0], again[0], spans[1], spans[2], spans[3], again[1]})
	// 10 steps and 29 snapshots of the first span, all of the second
	if got, want := m.acc.Dropped[account.CodeRepeatedEvent], int64(10+29+10+30); got != want {
		t.Errorf("dropped: got %d, want %d", got, want)
	}
	if got, want := m.acc.Kept, int64(30+90); got != want {
		t.Errorf("kept: got %d, want %d", got, want)
	}
}
