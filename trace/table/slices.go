package table

// This file reads a long run in parts.

import (
	"cmp"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/trace"
)

// EachSlice reads a long run of journeys and steps in slices of so many steps and calls use with
// each and its number, from 0. A slice also has margin steps before and after it, further steps until
// its requests have ended (at most as many as in a slice), and all requests that may run in any of
// these steps. If fewer than margin steps remain, they belong to the last slice. A slice is valid until
// use returns. It has no tables of other kinds of recordings. Up to atOnce slices are in use at the same
// time, which begin in order. After an error no further slice is read, and that of the smallest number
// is returned.
func EachSlice(dir string, steps, margin, atOnce int, use func(k int, run *trace.Run) error) (err error) {
	s := &slicer{dir: dir, size: steps, margin: margin, first: math.MinInt64}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(); err != nil {
		return err
	}
	shared := sharedSlicer{slicer: s, failedAt: math.MaxInt}
	workers := max(1, atOnce)
	par.Each(workers, workers, func(int, int) {
		var buf []trace.Step // for the steps of the slices that this worker uses
		for k, run := shared.take(buf); run != nil; k, run = shared.take(buf) {
			buf = run.Steps
			if err := use(k, run); err != nil {
				shared.fail(k, err)
			}
		}
	})
	return shared.failure
}

// sharedSlicer gives the slices of a run to several workers.
type sharedSlicer struct {
	mu       sync.Mutex // guards the fields below
	slicer   *slicer
	taken    int  // slices
	ended    bool // no slice is left, or one has failed
	failedAt int  // smallest number of a slice with an error; the largest int: none
	failure  error
}

// take returns the next slice and its number; nil if no further slice is to be used. buf as in
// slicer.next.
func (s *sharedSlicer) take(buf []trace.Step) (k int, run *trace.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, nil
	}
	k = s.taken
	s.taken++
	run, isLast, err := s.slicer.next(buf)
	if err != nil {
		s.noteFailure(k, err)
		return 0, nil
	}
	s.ended = isLast
	return k, run
}

// fail notes the error of a slice in use.
func (s *sharedSlicer) fail(k int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteFailure(k, err)
}

// noteFailure does what fail does; s.mu is locked.
func (s *sharedSlicer) noteFailure(k int, err error) {
	s.ended = true
	if k < s.failedAt {
		s.failedAt = k
		s.failure = err
	}
}

// slicer reads a run in slices for EachSlice.
type slicer struct {
	dir          string              // of the run
	size, margin int                 // steps of a slice, and before and after it
	extent       trace.Slice         // of the run: FirstNs and LastNs alone
	steps        *Cursor[trace.Step] // after those of buf
	buf          []trace.Step        // steps from the margin before the slice on; another slice may be using them
	at           int                 // place in buf of the first step of the slice
	end          int                 // place in buf of the step after the slice; 0 before the first slice
	first        int64               // start of the slice, ns; MinInt64 for the first one
	requests     [3]stream           // by arrival, by queueing, and without either, as they are in their table
	snaps, kv    []stepSpan          // of the row groups of these tables
}

// stepSpan has the lowest and the highest step id in a row group.
type stepSpan struct{ from, to int64 }

// groupSpans returns the span of step ids in each row group of a Parquet table; nil for Arrow IPC.
// T is a row type with the column of the step id alone, and step returns it.
func groupSpans[T any](dir, name string, step func(*T) trace.Opt[int64]) (spans []stepSpan, err error) {
	c, err := Open[T](dir, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for c.Next() {
		p, ok := c.rows.(*parquetRows[T])
		if !ok {
			return nil, nil
		}
		for len(spans) < p.group { // a group without ids keeps a span that no step is in
			spans = append(spans, stepSpan{from: math.MaxInt64, to: math.MinInt64})
		}
		if id := step(c.Row()); id.OK {
			s := &spans[p.group-1] // p.group is the next group, that of the row the one before
			s.from = min(s.from, id.V)
			s.to = max(s.to, id.V)
		}
	}
	return spans, c.Err()
}

// openSteps returns a cursor over a table, which skips the row groups that have no row of the steps
// from..to.
func openSteps[T any](dir, name string, spans []stepSpan, from, to int64) (*Cursor[T], error) {
	c, err := Open[T](dir, name)
	if err != nil {
		return nil, err
	}
	if p, ok := c.rows.(*parquetRows[T]); ok {
		p.skip = func(i int) bool { return i < len(spans) && (spans[i].to < from || spans[i].from > to) }
	}
	return c, nil
}

// stream is a part of the requests of a run that is sorted by CameNs.
type stream struct {
	of    *Cursor[trace.Request]
	mine  func(*trace.Request) bool // reports the requests of this part
	ahead *trace.Request            // was read, and came later than readUntil asked for; nil for none
	live  []trace.Request           // those that were read and may run in the steps of the slice
}

// leftNs returns the stamp (ns) at which the request has certainly left the engine; the largest
// int64 if it is unknown.
func leftNs(r *trace.Request) int64 {
	if r.CoreID.OK && !r.FinishedNs.OK {
		return math.MaxInt64
	}
	return cmp.Or(max(r.FinishedNs.V, r.DepartedNs.V, r.AbortedNs.V), math.MaxInt64)
}

// open opens the tables, reads the requests without a stamp, and finds the end of the run and the
// spans of the row groups.
func (s *slicer) open() (err error) {
	for i, mine := range []func(*trace.Request) bool{
		func(r *trace.Request) bool { return r.ArrivedNs.OK },
		func(r *trace.Request) bool { return !r.ArrivedNs.OK && r.QueuedNs.OK },
		func(r *trace.Request) bool { return !r.ArrivedNs.OK && !r.QueuedNs.OK },
	} {
		s.requests[i].mine = mine
		if s.requests[i].of, err = Open[trace.Request](s.dir, Requests); err != nil {
			return err
		}
	}
	// Requests without a stamp are in every slice, because it is not known when they ran.
	if err := s.requests[2].readUntil(math.MaxInt64); err != nil {
		return err
	}
	// The run ends with its last step, which is in the last row group.
	end, err := Open[trace.Step](s.dir, Steps)
	if err != nil {
		return err
	}
	defer end.Close()
	if p, ok := end.rows.(*parquetRows[trace.Step]); ok {
		p.group = max(0, len(p.meta.RowGroups)-1)
	}
	for end.Next() {
		s.extent.LastNs = end.Row().TsStartNs
	}
	if s.steps, err = Open[trace.Step](s.dir, Steps); err != nil {
		return err
	}
	type snapshot struct {
		Step int64 `col:"step_id"`
	}
	type event struct {
		Step trace.Opt[int64] `col:"step"`
	}
	if s.snaps, err = groupSpans(s.dir, Snapshots,
		func(r *snapshot) trace.Opt[int64] { return trace.Some(r.Step) }); err != nil {
		return err
	}
	if s.kv, err = groupSpans(s.dir, KVEvents, func(r *event) trace.Opt[int64] { return r.Step }); err != nil {
		return err
	}
	return end.Err()
}

// close closes the tables.
func (s *slicer) close() error {
	errs := []error{}
	if s.steps != nil {
		errs = append(errs, s.steps.Close())
	}
	for i := range s.requests {
		if c := s.requests[i].of; c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// grow reads further steps into s.buf while more returns true. It returns false if the run has no
// more steps.
func (s *slicer) grow(more func() bool) bool {
	for more() {
		if !s.steps.Next() {
			return false
		}
		s.buf = append(s.buf, *s.steps.Row())
	}
	return true
}

// readUntil appends to q.live the requests of this slice that had arrived by the stamp ns.
func (q *stream) readUntil(ns int64) error {
	for {
		if q.ahead == nil {
			if !q.of.Next() {
				return q.of.Err()
			}
			if !q.mine(q.of.Row()) {
				continue
			}
			q.ahead = q.of.Row()
		}
		if q.ahead.CameNs() > ns {
			return nil
		}
		q.live = append(q.live, *q.ahead)
		q.ahead = nil
	}
}

// next returns the next slice, and whether it is the last one. The slice's steps are in buf, if it has
// room for them.
func (s *slicer) next(buf []trace.Step) (run *trace.Run, last bool, err error) {
	if buf == nil { // room for both margins, and for the steps until the requests have ended
		buf = make([]trace.Step, 0, s.size+s.size/64+2*s.margin)
	}
	s.advance(buf)
	// The steps of the slice and its margin.
	end := s.at + s.size
	s.end = end
	last = !s.grow(func() bool { return len(s.buf) < end+s.margin })
	if s.first == math.MinInt64 && len(s.buf) > 0 {
		s.extent.FirstNs = s.buf[0].TsStartNs
	}
	slice := s.extent
	slice.FromNs = s.first
	slice.ToNs = math.MaxInt64
	if !last {
		slice.ToNs = s.buf[end].TsStartNs
	}
	run = &trace.Run{ID: strings.TrimPrefix(filepath.Base(s.dir), runPrefix), Slice: &slice}
	// The requests that may run in these steps, then more steps until the last of the slice's own has ended.
	lastStart := int64(math.MaxInt64 - 2) // of the last slice: all requests with a stamp
	if !last {
		lastStart = s.buf[len(s.buf)-1].TsStartNs
	}
	lastFinished := int64(math.MinInt64) // of the requests that came in the slice
	for i := range s.requests {
		if err := s.requests[i].readUntil(lastStart); err != nil {
			return nil, false, err
		}
		for _, r := range s.requests[i].live {
			if run.AsksFor(&r) {
				lastFinished = max(lastFinished, r.FinishedNs.V)
			}
		}
		run.Requests = append(run.Requests, s.requests[i].live...)
	}
	s.grow(func() bool { return len(s.buf) < end+s.size && s.buf[len(s.buf)-1].TsStartNs < lastFinished })
	run.Steps = s.buf
	return run, last, errors.Join(s.steps.Err(), s.addTables(run))
}

// addTables adds the KV events of the run's steps to run, and a way to read their snapshots.
func (s *slicer) addTables(run *trace.Run) error {
	if len(run.Steps) == 0 {
		return nil
	}
	from := run.Steps[0].ID
	to := run.Steps[len(run.Steps)-1].ID
	run.Stored = func() (trace.SnapshotCursor, error) {
		c, err := openSteps[trace.Snapshot](s.dir, Snapshots, s.snaps, from, to)
		return &someSnapshots{Cursor: c, from: from, to: to}, err
	}
	c, err := openSteps[trace.KVEvent](s.dir, KVEvents, s.kv, from, to)
	if err != nil {
		return err
	}
	defer c.Close()
	for c.Next() {
		if e := c.Row(); e.Step.OK && e.Step.V >= from && e.Step.V <= to {
			run.KVEvents = append(run.KVEvents, *e)
		}
	}
	return c.Err()
}

// advance moves to the next slice, whose steps will be in buf, and drops the steps and requests that it
// does not need.
func (s *slicer) advance(buf []trace.Step) {
	if s.end == 0 { // the first slice
		s.buf = buf[:0]
		return
	}
	s.first = s.buf[s.end].TsStartNs
	from := max(0, s.end-s.margin)
	s.buf = append(buf[:0], s.buf[from:]...)
	s.at = s.end - from
	for i := range s.requests[:2] { // those without a stamp stay
		q := &s.requests[i]
		q.live = slices.DeleteFunc(q.live, func(r trace.Request) bool { return leftNs(&r) < s.buf[0].TsStartNs })
	}
}

// someSnapshots is a cursor over the snapshots of the steps from..to, both included.
type someSnapshots struct {
	*Cursor[trace.Snapshot]
	from, to int64
}

// Next goes to the next snapshot of these steps. It returns false at the end.
func (c *someSnapshots) Next() bool {
	for c.Cursor.Next() {
		if id := c.Row().StepID; id >= c.from {
			return id <= c.to
		}
	}
	return false
}
