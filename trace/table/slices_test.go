package table

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestSlicesReadTheirPart: a slice has the snapshots and KV events of its steps, wherever in
// their tables they stand, and of a table of many row groups it reads about those that hold them.
func TestSlicesReadTheirPart(t *testing.T) {
	dir, rng := RunDir(t.TempDir(), "long"), rand.New(rand.NewPCG(7, 8))
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
	err = EachSlice(dir, 8_000, 500, func(run *trace.Run) error {
		slices++
		from, to := run.Steps[0].ID, run.Steps[len(run.Steps)-1].ID
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
