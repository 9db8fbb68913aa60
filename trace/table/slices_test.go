package table

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// TestSlicesReadTheirPart: a slice has the snapshots and KV events of its steps, wherever in
// their tables they stand, and of a table of many row groups it reads about those that hold them.
func TestSlicesReadTheirPart(t *testing.T) {
	dir := RunDir(t.TempDir(), "long")
	rng := rand.New(rand.NewPCG(7, 8))
	const n = 30_000
	var steps []trace.Step
	var snaps []trace.Snapshot
	var events []trace.KVEvent
	for id := int64(1); id <= n; id++ {
		steps = append(steps, trace.Step{ID: id, TsStartNs: 100 * id})
		for range 5 {
			snaps = append(snaps, trace.Snapshot{StepID: id, CoreID: "a", Phase: "DECODE"})
		}
		event := trace.KVEvent{Kind: "BlockStored", Step: trace.Some(max(1, id-rng.Int64N(20)))}
		if id%7 == 0 {
			event.Step = trace.Opt[int64]{}
		}
		events = append(events, event)
	}
	events[n-1].Step = trace.Some[int64](5) // far from its like
	err := errors.Join(Write(dir, Steps, Parquet, steps), Write(dir, Snapshots, Parquet, snaps), Write(dir, KVEvents, Parquet, events))
	if err != nil {
		t.Fatal(err)
	}
	slices, read := 0, 0
	err = EachSlice(dir, 8_000, 500, 1, func(_ int, run *trace.Run) error {
		slices++
		from := run.Steps[0].ID
		to := run.Steps[len(run.Steps)-1].ID
		within := func(id int64) bool { return id >= from && id <= to }
		want := 0
		for i := range events {
			if e := &events[i]; e.Step.OK && within(e.Step.V) {
				if want >= len(run.KVEvents) || run.KVEvents[want].Step != e.Step {
					t.Fatalf("slice %d: event %d is not that of row %d", slices, want, i)
				}
				want++
			}
		}
		if want != len(run.KVEvents) {
			t.Errorf("slice %d: got %d KV events, want %d", slices, len(run.KVEvents), want)
		}
		stored, err := run.Stored()
		if err != nil {
			return err
		}
		defer stored.Close()
		rows, groups := int64(0), stored.(*someSnapshots).rows.(*parquetRows[trace.Snapshot])
		skip := groups.skip
		groups.skip = func(i int) bool {
			out := skip(i)
			if !out {
				read++
			}
			return out
		}
		for stored.Next() {
			if !within(stored.Row().StepID) {
				t.Fatalf("slice %d of steps %d to %d: got a snapshot of step %d", slices, from, to, stored.Row().StepID)
			}
			rows++
		}
		if want := 5 * (to - from + 1); rows != want {
			t.Errorf("slice %d: got %d snapshots, want %d", slices, rows, want)
		}
		return stored.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	spans, err := groupSpans(dir, Snapshots, func(r *trace.Snapshot) trace.Opt[int64] { return trace.Some(r.StepID) })
	if err != nil || len(spans) < slices || slices < 3 {
		t.Fatalf("got %d row groups, %d slices, %v, want more", len(spans), slices, err)
	}
	if most := len(spans) + 2*slices; read > most {
		t.Errorf("got %d row groups read, want at most %d: each once, and those at the borders again", read, most)
	}
}

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
			data := repo.Read(f, name)
			f.Add(data, format == Arrow)
		}
	}
	for _, name := range []string{"duckdb/steps", "int32/snapshots", "pyarrow-plain/snapshots", "pyarrow-plain/journey_events",
		"polars/kv_events"} { // packed another way, or not
		data := repo.Read(f, "testdata", "rewritten", name+".parquet")
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
	if err := c.openRows(bytes.NewReader(data), int64(len(data)), format); err != nil {
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

// Column is a column of a table, for tests outside the package.
type Column = column

// Columns lists the columns of the table whose rows are of type T.
func Columns[T any]() []Column { return columnsOf(reflect.TypeFor[T]()) }

// firstLook opens the page: what most readers came for.
const firstLook = "Read one table at a time: each has its own columns, and `run` comes from the folder's name.\n\n```python\n" +
	`import pandas as pd
steps = pd.read_parquet("out/tables/run=b200-llama-3.1-8b-tp1/steps.parquet")
print(steps[["prefill_tokens", "decode_tokens"]].describe())

import duckdb
print(duckdb.sql("""SELECT run, count(*) AS requests, median(first_token_ns - arrived_ns) / 1e6 AS ttft_ms
                    FROM read_parquet('out/tables/*/requests.parquet', hive_partitioning = true) GROUP BY run"""))

import polars as pl
requests = pl.scan_parquet("out/tables/*/requests.parquet", hive_partitioning=True)
print(requests.group_by("run").agg(pl.len(), pl.col("prompt_tokens").mean()).collect())
` + "```\n\n"

// Markdown renders docs/tables.md from the struct tags.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Tables\n\nFor those who read what `extract` writes with pandas, DuckDB or Polars: every table and column. Generated from the struct tags of package `trace` (`go generate ./trace/table`); do not edit.\n\n")
	b.WriteString(firstLook)
	fmt.Fprintf(&b, "`extract` writes one folder `tables/run=<id>/` per engine run, one file per table (`<table>.parquet`, or `.arrow` "+
		"with `--format arrow`); a table without rows is not written. Schema version %s. "+
		"Columns marked *null* may be unknown. Stamps are int64 nanoseconds of the producer's monotonic clock unless the name says `wall`.\n",
		SchemaVersion)
	for _, t := range Tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| column | type | unit | null | meaning |\n|---|---|---|---|---|\n", t.Name, t.Doc)
		for _, c := range columnsOf(t.row) {
			null := ""
			if c.Nullable {
				null = "null"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Type, c.Unit, null, c.Doc)
		}
	}
	b.WriteString("\nRead next: [what each recording fills](recording.md), [Python](../python/README.md).\n")
	return b.String()
}

// TestSlicesAtOnce: slices in use at the same time have the steps that they have one by one, and the error of the first
// slice that failed is returned, whichever failed first.
func TestSlicesAtOnce(t *testing.T) {
	dir := t.TempDir()
	steps := make([]trace.Step, 5000)
	for i := range steps {
		steps[i] = trace.Step{ID: int64(i), TsStartNs: int64(i) * 1000}
	}
	err := errors.Join(Write(dir, Steps, Parquet, steps), Write(dir, Requests, Parquet, []trace.Request{}))
	if err != nil {
		t.Fatal(err)
	}
	idsBy := func(atOnce int) [][]int64 {
		ids := make([][]int64, 8)
		var both sync.WaitGroup // the first two slices are in use together
		both.Add(min(atOnce, 2))
		err := EachSlice(dir, 700, 40, atOnce, func(k int, run *trace.Run) error {
			if k < atOnce && k < 2 {
				both.Done()
				both.Wait()
			}
			for i := range run.Steps {
				ids[k] = append(ids[k], run.Steps[i].ID)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if one, three := idsBy(1), idsBy(3); !reflect.DeepEqual(one, three) || len(one[1]) != 780 || one[7][len(one[7])-1] != 4999 {
		t.Errorf("got %v at once, %v one by one", three, one)
	}
	second := make(chan bool)
	err = EachSlice(dir, 700, 40, 2, func(k int, _ *trace.Run) error {
		if k == 0 {
			<-second
			return errors.New("first")
		}
		defer close(second)
		return errors.New("second")
	})
	if err == nil || err.Error() != "first" {
		t.Errorf("got %v, want first", err)
	}
}
