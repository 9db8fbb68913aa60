package extract

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
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

// writeSpans writes spans as the tables of one engine, and reads what snapshots say of requests.
func writeSpans(t *testing.T, format table.Format, spans []*otlp.StepRows) (map[string][]byte, map[digest]sighting, *stepTables) {
	t.Helper()
	dir := t.TempDir()
	mem := &source.Memory{Dir: t.TempDir(), Limit: 4096}
	defer mem.Close()
	m, err := newStepTables(dir, format, source.New(nil), source.Place{}, mem)
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
	return tablesTableFiles(t, dir), sighted(t, m), m
}

// sighted are the first sightings of the requests.
func sighted(t *testing.T, m *stepTables) map[digest]sighting {
	t.Helper()
	out := map[digest]sighting{}
	err := m.sighted(func(_ int64, s *sighting) {
		if _, again := out[s.ID]; !again {
			out[s.ID] = *s
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tableFiles reads the files of a folder.
func tablesTableFiles(t *testing.T, dir string) map[string][]byte {
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
		want, requests, ordered := writeSpans(t, format, stepSpans(40))
		if len(want) != 2 || ordered.isLate {
			t.Fatalf("%s: got %d files and late rows, want 2 and none", format, len(want))
		}
		spans := stepSpans(40)
		behind := append(append(append([]*otlp.StepRows{}, spans[:5]...), spans[7:]...), spans[5:7]...)
		got, late, m := writeSpans(t, format, behind)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: the tables differ", format)
		}
		if !m.isLate || !reflect.DeepEqual(m.out, ordered.out) || len(late) == 0 || !reflect.DeepEqual(late, requests) ||
			m.acc.Kept != ordered.acc.Kept {
			t.Errorf("%s: late rows: %t, got %+v, want the figures of the ordered spans %+v", format, m.isLate, m.out.steps, ordered.out.steps)
		}
	}
}

// TestRepeatedStepRows: of a step or snapshot recorded twice the first stays,
// the other is a counted drop, in time or late.
func TestRepeatedStepRows(t *testing.T) {
	spans := stepSpans(3)
	again := stepSpans(3)
	_, _, m := writeSpans(t, table.Parquet, []*otlp.StepRows{spans[0], again[0], spans[1], spans[2], spans[3], again[1]})
	// 10 steps and 29 snapshots of the first span, all of the second
	if got, want := m.acc.Dropped[source.CodeDuplicate], int64(10+29+10+30); got != want {
		t.Errorf("dropped: got %d, want %d", got, want)
	}
	if got, want := m.acc.Kept, int64(30+90); got != want {
		t.Errorf("kept: got %d, want %d", got, want)
	}
}

// TestForgottenRequests: of requests not shown for long only a sighting is left, and who
// comes back is known by the first.
func TestForgottenRequests(t *testing.T) {
	span := &otlp.StepRows{}
	const n = 5 * forgetAfter
	for id := int64(1); id <= n; id++ {
		span.Steps = append(span.Steps, trace.Step{ID: id, TsStartNs: 100 * id})
		ids := []string{fmt.Sprint("request-", id/16)}
		if id == 3 || id == n {
			ids = append(ids, "back")
		}
		for _, name := range ids {
			span.Snaps = append(span.Snaps, trace.Snapshot{StepID: id, CoreID: name, ScheduledTokens: 1, ComputedTokens: id})
		}
	}
	held := 0
	m, err := newStepTables(t.TempDir(), table.Parquet, source.New(nil), source.Place{}, &source.Memory{Dir: t.TempDir(), Limit: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer m.mem.Close()
	for part := range slices.Chunk(span.Steps, forgetAfter/4) {
		rows := &otlp.StepRows{Steps: part}
		for _, s := range span.Snaps {
			if s.StepID >= part[0].ID && s.StepID <= part[len(part)-1].ID {
				rows.Snaps = append(rows.Snaps, s)
			}
		}
		if err := m.add(rows); err != nil {
			t.Fatal(err)
		}
		held = max(held, len(m.owners))
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if most := 2*forgetAfter/16 + 2; held > most {
		t.Errorf("got %d requests in memory, want at most %d", held, most)
	}
	seen := sighted(t, m)
	if got, want := len(seen), n/16+2; got != want {
		t.Errorf("got %d requests, want %d", got, want)
	}
	if got := seen[digestID("back")]; !got.IsSeen || got.Step != 3 || got.Computed != 3 {
		t.Errorf("got %+v of a request that came back, want its first step", got)
	}
}
