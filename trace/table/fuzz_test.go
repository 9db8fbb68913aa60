package table

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/blis-train/blis-train/trace"
)

// longestRead is how long a small table may take: a damaged page that loops
// takes for ever.
const longestRead = 5 * time.Second

// FuzzTable: no file panics a reader, holds it up, or makes it take memory out
// of proportion to its bytes.
func FuzzTable(f *testing.F) {
	for _, format := range []Format{Parquet, Arrow} {
		dir := f.TempDir()
		seedRows(f, dir, format)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds: %v", err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, format == Arrow)
		}
	}
	for _, name := range []string{"duckdb/steps", "int32/snapshots", "pyarrow-plain/snapshots", "pyarrow-plain/journey_events",
		"polars/kv_events"} { // packed another way, or not
		data, err := os.ReadFile(filepath.Join("testdata", "rewritten", name+".parquet"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, isArrow bool) {
		format := Parquet
		if isArrow {
			format = Arrow
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			readAll[trace.Step](t, data, format)
			readAll[trace.KVEvent](t, data, format)
			readAll[trace.ObservedRequest](t, data, format)
			readAll[trace.Snapshot](t, data, format)
			readAll[trace.JourneyEvent](t, data, format)
		}()
		select {
		case <-done:
		case <-time.After(longestRead):
			buf := make([]byte, 1<<16)
			t.Fatalf("a table of %d bytes takes more than %v:\n%s", len(data), longestRead, buf[:runtime.Stack(buf, true)])
		}
	})
}

// maxRowsOf is far more than a table of these bytes was written with.
const maxRowsOf = 1 << 22

func readAll[T any](t *testing.T, data []byte, format Format) {
	c := &Cursor[T]{path: "fuzz"}
	if err := c.open(bytes.NewReader(data), int64(len(data)), format); err != nil {
		return
	}
	for n := 0; c.Next() && n < maxRowsOf; n++ {
		if c.Row() == nil {
			t.Error("got no row")
		}
	}
}

// seedRows writes one small table of each shape.
func seedRows(f *testing.F, dir string, format Format) {
	steps := make([]trace.Step, 70)
	kv := make([]trace.KVEvent, 40)
	seen := make([]trace.ObservedRequest, 9)
	snaps := make([]trace.Snapshot, 30)
	for i := range steps {
		steps[i] = trace.Step{ID: int64(i), TsStartNs: int64(i) * 17, KVUsage: float64(i) / 70, BlocksTotal: 5}
	}
	for i := range kv {
		kv[i] = trace.KVEvent{WallS: float64(i), Kind: "BlockStored", Hashes: []string{"1", "22"}[:i%3],
			Success: trace.Opt[bool]{V: i%2 == 0, OK: i%3 == 0}, Line: int64(i)}
	}
	for i := range seen {
		seen[i] = trace.ObservedRequest{ID: "a", Source: "client", SendNs: trace.Some(int64(i)), ChunkGapsUs: []float64{1, 2, 3}[:i%4]}
	}
	for i := range snaps {
		snaps[i] = trace.Snapshot{StepID: int64(i / 4), CoreID: "cmpl-x"[:i%6], Phase: "DECODE", Orphan: i%7 == 0}
	}
	for _, err := range []error{Write(dir, Steps, format, steps), Write(dir, KVEvents, format, kv), Write(dir, ObservedRequests, format, seen),
		Write(dir, Snapshots, format, snaps)} {
		if err != nil {
			f.Fatal(err)
		}
	}
}
