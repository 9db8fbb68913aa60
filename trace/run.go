package trace

// This file has the tables of one run.

import (
	"math"
)

// The struct tags of the row types are the schema of the tables: `col` is the column's name on disk,
// `unit` its unit (Arrow field metadata), `doc` its meaning; `place:"last"` puts it behind the others on disk.
// Package trace/table derives Arrow schemas, Parquet files and docs/tables.md from them.

// Run is everything recorded of one engine run, in memory. Slices are in the row order of the tables:
// requests by (arrived, queued, wall start, id), journey events by (core id, emission order), steps
// and snapshots by step id (snapshots: then file order), KV events in file order, observed requests by
// (send, id).
type Run struct {
	ID         string
	Requests   []Request
	Events     []JourneyEvent
	Steps      []Step
	Snapshots  []Snapshot
	KVEvents   []KVEvent
	Observed   []ObservedRequest
	Iterations []Iteration // passes logged by an unmodified engine, in its order
	Points     []LoadPoint // load levels printed by benchmarks, by file and line

	// Aggregate describes how Steps were made from Iterations; nil for recorded steps.
	Aggregate *Aggregate `json:"-"`

	// Stored begins a pass over snapshots that stay on disk, because they are most of a long recording.
	// It is nil if they are in Snapshots. OpenSnapshots works for both.
	Stored func() (SnapshotCursor, error) `json:"-"`

	// Slice is the part of a longer run that is to be evaluated. The rows of the run around it are
	// there for requests that cross its ends. It is nil if all of the run is to be evaluated.
	Slice *Slice `json:"-"`
}

// Slice is a part of a long run, and the extent of that run. All stamps are those of steps, ns.
type Slice struct {
	FromNs, ToNs    int64 // the slice is [FromNs, ToNs); MinInt64 and MaxInt64 at the ends of the run
	FirstNs, LastNs int64 // starts of the first and the last step of the whole run
}

// IsFirst reports whether the slice is the first one of the run, which includes everything earlier.
func (s *Slice) IsFirst() bool { return s.FromNs == math.MinInt64 }

// Asks reports whether what happens at ns is to be evaluated: it is in the run's slice, or the run
// is no slice.
func (r *Run) Asks(ns int64) bool { return r.Slice == nil || r.Slice.FromNs <= ns && ns < r.Slice.ToNs }

// AsksFor reports whether the request is to be evaluated: it came in the run's slice, or the run is
// no slice.
func (r *Run) AsksFor(q *Request) bool { return r.Asks(q.CameNs()) }
