package extract

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file drops stray records: those whose stamps or step ids are so far from all others that they
// cannot belong to the run (spec#value-limits). Limits that do not depend on other records are checked
// where a record is read; strays are found once all records were read.

const (
	shortStepNs = 100_000 // the shortest possible step: bounds the number of steps between two stamps
	unstamped   = 4096    // steps by which an id may differ from the recorded ids where no stamp bounds it
)

// clock returns the stamps seen so far on one monotonic clock. The core spans of a process share one
// clock, and its API spans another.
func (c *collector) clock(resource uint64, class int) *source.Stamps {
	key := clockKey{resource, class}
	if c.clocks[key] == nil {
		c.clocks[key] = &source.Stamps{}
	}
	return c.clocks[key]
}

// clockKey identifies a monotonic clock by the resource (process) and the class of its spans.
type clockKey struct {
	resource uint64
	class    int // ofCores or ofAPIs
}

const (
	ofCores = iota
	ofAPIs
)

// dropStrayRows drops the summaries and snapshots of a step span whose stamps or ids cannot belong to
// the span. Summaries are compared with the middle one of the span, which is unlikely to be a stray
// itself, and snapshots with the summaries that are kept.
func (c *collector) dropStrayRows(s *otlp.Span) {
	rows := s.Rows.Steps
	if len(rows) < 3 { // of two that differ, nothing shows which is the stray
		return
	}
	middle := rows[len(rows)/2]
	distance := func(a, b int64) int64 { return max(a-b, b-a) }
	first, last := middle.ID, middle.ID // lowest and highest id of the rows that are kept
	s.Rows.Steps = slices.DeleteFunc(rows, func(row trace.Step) bool {
		why := ""
		switch {
		case distance(row.TsStartNs, middle.TsStartNs) > source.StrayNs || distance(row.WallNs, middle.WallNs) > source.StrayNs:
			why = fmt.Sprintf("step %d: got the stamps %d and %d ns (wall), want at most 24 h from the %d and %d "+
				"of step %d", row.ID, row.TsStartNs,
				row.WallNs, middle.TsStartNs, middle.WallNs, middle.ID)
		case distance(row.ID, middle.ID) > unstamped+distance(row.TsStartNs, middle.TsStartNs)/shortStepNs:
			why = fmt.Sprintf("step_id: got %d in the span of %d, want at most one in %d us between their stamps",
				row.ID, middle.ID, shortStepNs/1000)
		default:
			first = min(first, row.ID)
			last = max(last, row.ID)
			return false
		}
		c.acc.Drop(source.CodeBadRecord, 1, c.placeOf(s), "%s: %s", otlp.StepSummary, why)
		return true
	})
	s.Rows.Snaps = slices.DeleteFunc(s.Rows.Snaps, func(row trace.Snapshot) bool {
		if row.StepID >= first-unstamped && row.StepID <= last+unstamped {
			return false
		}
		c.acc.Drop(source.CodeBadRecord, 1, c.placeOf(s), "%s: step_id: got %d, want %d to %d", otlp.StepSnapshot,
			row.StepID, first-unstamped,
			last+unstamped)
		return true
	})
	// The range of a span is that of the rows that are left.
	if len(s.Rows.Steps) < len(rows) || s.FirstStep < first-unstamped || s.LastStep > last+unstamped {
		s.FirstStep = first
		s.LastStep = last
	}
}

// dropStrays drops the stray events and stamps of requests, and rebuilds the requests that had stray
// events. If the smallest and largest stamps and ids show that there are no strays, it does nothing,
// because it would have to read every request from disk.
func (c *collector) dropStrays() error {
	found := c.wall.AnyStray()
	for _, s := range c.clocks {
		found = found || s.AnyStray()
	}
	for _, e := range c.engines {
		steps := e.tables.out.steps
		found = found || steps.FirstID.OK && c.stepIDs.Any() &&
			(c.stepIDs.Lo < steps.FirstID.V-1 || c.stepIDs.Hi > steps.LastID.V+1)
	}
	if !found {
		return nil
	}
	if err := c.dropStrayEvents(); err != nil {
		return err
	}
	for i := range c.cores {
		row := &c.pack.row
		if err := c.pack.getCore(c.cores[i].row, row, files.NewInterner()); err != nil {
			return err
		}
		if c.dropStrayWall(&row.request, source.Place{File: c.names[row.File].Name, Line: row.Line}) {
			at, err := c.pack.putCore(row)
			if err != nil {
				return err
			}
			c.cores[i].row = at
		}
	}
	return c.dropStrayAPIs()
}

// dropStrayWall clears the wall-clock stamps of a request if its span starts or ends at a stray stamp.
// It reports whether it did.
func (c *collector) dropStrayWall(r *trace.Request, at source.Place) bool {
	why := c.wall.Check("start of the span", r.StartWallNs.V) + c.wall.Check("end of the span", r.EndWallNs.V)
	if why == "" {
		return false
	}
	c.acc.Keep(-1) // the span counted as kept when it was read
	c.acc.Drop(source.CodeBadRecord, 1, at, "%s", why)
	r.StartWallNs = trace.Opt[int64]{}
	r.EndWallNs = trace.Opt[int64]{}
	return true
}

// dropStrayEvents drops stray journey events. It recomputes every request that had one from the
// request's remaining events.
func (c *collector) dropStrayEvents() error {
	kept := c.mem.Spool()
	str := files.NewInterner()
	row := &c.pack.row                 // the row of core number at
	at := int64(-1)                    // index of the core whose events are being read
	var remaining []trace.JourneyEvent // the events of that core that are kept
	lostEvent := false                 // an event of that core was dropped
	// flush packs the core again without what its dropped events had set. It does nothing for a core
	// that lost none.
	flush := func() (err error) {
		if lostEvent {
			r := &row.request
			row.LastNs = math.MinInt64
			row.LastStep = 0
			row.SchedNs = 0
			row.SchedStep = -1
			row.request = trace.Request{
				StartWallNs:   r.StartWallNs,
				EndWallNs:     r.EndWallNs,
				DroppedEvents: r.DroppedEvents,
				Model:         r.Model,
				MaxTokens:     r.MaxTokens,
			}
			for i := range remaining {
				row.noteEvent(&remaining[i])
				setFromEvent(&row.request, &remaining[i])
			}
			c.cores[at].row, err = c.pack.putCore(row)
		}
		remaining = remaining[:0]
		lostEvent = false
		return err
	}
	err := c.journeys.Each(func(key int64, packed []byte) error {
		if key != at { // the events of a core come together
			if err := flush(); err != nil {
				return err
			}
			at = key
			if err := c.pack.getCore(c.cores[at].row, row, str); err != nil {
				return err
			}
		}
		var ev trace.JourneyEvent
		if err := c.pack.events.Decode(packed, &ev, str); err != nil {
			return err
		}
		if why := c.whyStray(&ev, row.Resource); why != "" {
			lostEvent = true
			c.acc.Keep(-1)
			c.acc.Drop(source.CodeBadRecord, 1, source.Place{File: c.names[row.File].Name, Line: row.Line},
				"journey.%s of %s: %s", ev.Kind,
				c.ids.get(c.cores[at].id), why)
			return nil
		}
		remaining = append(remaining, ev)
		return kept.Add(key, packed)
	})
	if err == nil {
		err = flush()
	}
	c.journeys.Close()
	c.journeys = kept
	return err
}

// whyStray returns a description of why an event cannot be of this run; "" if it can: its stamps are
// near the others of their clocks, and its step is one that an engine run of its process (resource) may
// have done. That is a step between the first and the last recorded one, or beyond them by as many as
// there was time for.
func (c *collector) whyStray(ev *trace.JourneyEvent, resource uint64) string {
	why := c.wall.Check("wall_ns", ev.WallNs)
	if ev.TsNs.OK && why == "" {
		why = c.clock(resource, ofCores).Check("ts_ns", ev.TsNs.V)
	}
	if why != "" || !ev.Step.OK {
		return why
	}
	for _, i := range c.siblings(resource) {
		e := c.engines[i]
		steps := &e.tables.out.steps
		if !steps.FirstID.OK { // nothing to compare with
			return ""
		}
		lo := steps.FirstID.V - 1 - unstamped
		hi := steps.LastID.V + 1 + unstamped
		if ev.TsNs.OK {
			lo = steps.FirstID.V - 1 - max(0, e.minNs-ev.TsNs.V)/shortStepNs
			hi = steps.LastID.V + 1 + max(0, ev.TsNs.V-e.maxNs)/shortStepNs
		}
		if ev.Step.V >= lo && ev.Step.V <= hi {
			return ""
		}
		why = fmt.Sprintf("step: got %d, want %d to %d, the recorded ones", ev.Step.V, lo, hi)
	}
	return why
}

// dropStrayAPIs drops stray stamps of API and stock spans, and packs the spans that had any again.
func (c *collector) dropStrayAPIs() error {
	for i := range c.apis {
		row, err := c.pack.getAPI(c.apis[i].row, files.NewInterner())
		if err != nil {
			return err
		}
		r := &row.request
		at := source.Place{File: c.names[row.File].Name, Line: row.Line}
		isChanged := c.dropStrayWall(r, at)
		for _, s := range []struct {
			event otlp.EventName
			ns    *trace.Opt[int64]
		}{
			{otlp.APIArrived, &r.ArrivedNs},
			{otlp.APIHandoff, &r.HandoffNs},
			{otlp.APIFirstResponse, &r.FirstResponseNs},
			{otlp.APIDeparted, &r.DepartedNs},
			{otlp.APIAborted, &r.AbortedNs},
		} {
			why := c.clock(row.Resource, ofAPIs).Check("ts", s.ns.V)
			if !s.ns.OK || why == "" {
				continue
			}
			c.acc.Keep(-1)
			c.acc.Drop(source.CodeBadRecord, 1, at, "%s of %s: %s", s.event, r.APIID.V, why)
			*s.ns = trace.Opt[int64]{}
			isChanged = true
		}
		if isChanged {
			if c.apis[i].row, err = c.pack.putAPI(&row); err != nil {
				return err
			}
		}
	}
	return nil
}
