package extract

// This file divides the step spans of a dump among engine runs, and the requests among these. An
// engine run is one uninterrupted life of one engine process.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// addSteps finds the engine that wrote a step span and writes the span's rows to the engine's
// tables (spec#wire-engines). An engine has no name in its spans. It numbers its spans and steps
// from 1, so in the spans of one engine sequence numbers, step ids and stamps ascend together. A
// span therefore belongs to an engine if all three fit between the engine's spans that came before
// and after it, in whatever order spans arrive. A span that fits no engine begins a new engine run:
// a restart, or a data-parallel sibling.
func (c *collector) addSteps(s *otlp.Span) error {
	defer s.Rows.Free()
	sortRows(s.Rows)
	c.dropStrayRows(s) // before stretchOf, whose range of steps a stray would widen
	steps := stretchOf(s)
	e, err := c.engineOf(s, &steps)
	if err != nil {
		return err
	}
	e.spans++
	e.stretches = insertStretch(e.stretches, steps)
	e.lastOrder = c.order
	e.lastFirst = max(e.lastFirst, s.FirstStep)
	for i := range s.Rows.Steps {
		r := &s.Rows.Steps[i]
		e.minNs = min(e.minNs, r.TsStartNs)
		e.maxNs = max(e.maxNs, r.TsEndNs)
	}
	c.acc.Keep(1) // its rows count as kept when they are written
	return e.tables.addSpan(s.Rows)
}

// engineOf returns the engine among whose spans a step span (s, with its range of steps) fits best, or
// a new one. Only engines of the same resource, which is a process, are compared.
func (c *collector) engineOf(s *otlp.Span, steps *stretch) (*engine, error) {
	var best, latest *engine
	var bestFit fit
	for _, e := range c.engines {
		if e.resource != s.Resource {
			continue
		}
		if latest == nil || e.lastOrder > latest.lastOrder {
			latest = e
		}
		if candidate, ok := fitOf(e.stretches, steps); ok && (best == nil || candidate.betterThan(bestFit)) {
			best = e
			bestFit = candidate
		}
	}
	switch {
	case s.Name == "scheduler_steps" && !s.Sequence.OK: // fork v0.3 writes one span for the life of an engine: a new one
	case best != nil:
		return best, nil
	case latest != nil && !s.Sequence.OK && s.FirstStep > 1: // a new engine would begin with step 1
		return latest, nil
	}
	e := &engine{resource: s.Resource, order: c.order, minNs: math.MaxInt64, maxNs: math.MinInt64}
	var err error
	e.tables, err = newStepTables(c.dir(len(c.engines)), c.format, c.acc, source.Place{File: c.names[0].Name}, c.mem)
	e.tables.stated = c.stated
	e.tables.out.beyond = enginelog.LimitsOf(&c.stated)
	c.engines = append(c.engines, e)
	return e, err
}

// partition sorts the engine runs by time and assigns every request to one of them. It refuses
// engine runs whose stamps overlap unless split (--split-engines) is set: they may be of several
// engines that the user takes for one.
func (c *collector) partition(split bool) error {
	if len(c.engines) < 2 {
		return nil
	}
	byTime := slices.Clone(c.engines)
	slices.SortStableFunc(byTime, func(a, b *engine) int { return cmp.Compare(a.minNs, b.minNs) })
	disjoint := true
	for i := 1; i < len(byTime); i++ {
		disjoint = disjoint && byTime[i-1].maxNs < byTime[i].minNs
	}
	if !disjoint && !split {
		return trace.Errorf(source.CodeSeveralEngines,
			"got %d engine runs whose stamps overlap in one dump (step ids return to 1, from span sequences of %d "+
				"and %d spans)", len(c.engines), c.engines[0].spans, c.engines[1].spans).
			WithHint("rerun extract, inspect or run with --split-engines, or give each engine its own run folder")
	}
	if disjoint {
		c.engines = byTime
	}
	if err := c.findBegins(); err != nil {
		return err
	}
	// Only siblings that ran at the same time need the times of their steps to be told apart.
	var byStep []stepTimes
	if !disjoint {
		var err error
		if byStep, err = c.stepIndex(); err != nil {
			return err
		}
	}
	for i := range c.cores {
		head, err := c.pack.coreHead(c.cores[i].row)
		if err != nil {
			return err
		}
		c.cores[i].engine = int32(c.engineOfCore(&head, disjoint, byStep))
	}
	return nil
}

// stepTimes maps the id of each step of an engine to its time.
type stepTimes map[int64]startEnd

// startEnd is a time from a start to an end, ns of the monotonic clock.
type startEnd struct{ startNs, endNs int64 }

// stepIndex returns the times of the recorded steps of each engine, from the tables that were written
// while spans were read.
func (c *collector) stepIndex() ([]stepTimes, error) {
	out := make([]stepTimes, len(c.engines))
	for i, e := range c.engines {
		out[i] = stepTimes{}
		for s, err := range fileRows[trace.Step](e.tables.dir, table.Steps, c.format) {
			if err != nil {
				return nil, err
			}
			out[i][s.ID] = startEnd{s.TsStartNs, s.TsEndNs}
		}
	}
	return out, nil
}

// engineOfCore returns the engine run of a request as an index in c.engines. It is the only one of its
// process, or the one that ran at its time (if disjoint, no two ran at once), or the one that wrote at
// its place in the file. If several data-parallel siblings wrote at the same time, it is the one whose
// recorded step contains the request's SCHEDULED stamp.
func (c *collector) engineOfCore(head *coreHead, disjoint bool, byStep []stepTimes) int {
	same := c.siblings(head.Resource)
	if len(same) == 1 {
		return same[0]
	}
	engine := same[0]
	switch {
	case disjoint: // the last engine run that had begun by the request's last event
		for _, i := range same {
			if c.engines[i].minNs <= head.LastNs {
				engine = i
			}
		}
		return engine
	case c.inTurn(same): // the last one that had begun at the request's place in the input
		for _, i := range same[1:] {
			if head.Order >= c.engines[i].begin {
				engine = i
			}
		}
		return engine
	}
	return nearestStep(head, same, byStep)
}

// siblings returns the engine runs of one resource (process) as indexes in c.engines, or all if no step
// span has that resource.
func (c *collector) siblings(resource uint64) []int {
	var same, all []int
	for i, e := range c.engines {
		all = append(all, i)
		if e.resource == resource {
			same = append(same, i)
		}
	}
	if len(same) == 0 {
		return all
	}
	return same
}

// inTurn reports whether the engine runs (indexes in c.engines) wrote their step spans one run after
// another, without mixing them in the input.
func (c *collector) inTurn(runs []int) bool {
	for n := 1; n < len(runs); n++ {
		if c.engines[runs[n]].order < c.engines[runs[n-1]].lastOrder {
			return false
		}
	}
	return true
}

// findBegins finds the position in the input at which each engine run begins. A step span is
// written when it closes, so requests of a run may come before its first step span. After the last
// step span of the run before, the run begins with the first line in which a request ends in an
// earlier step than that span had, because steps then count from 1 again.
func (c *collector) findBegins() error {
	for i, e := range c.engines {
		e.begin = e.order
		var prev *engine // the run before of the same process
		for _, other := range c.engines[:i] {
			if other.resource == e.resource {
				prev = other
			}
		}
		if prev == nil {
			continue
		}
		var lineStart coreHead // the first core after prev in the current line, a batch of spans
		for j := range c.cores {
			head, err := c.pack.coreHead(c.cores[j].row)
			if err != nil {
				return err
			}
			if head.Order <= prev.lastOrder {
				continue
			}
			if lineStart.Order == 0 || head.File != lineStart.File || head.Line != lineStart.Line {
				lineStart = head
			}
			if head.Resource == e.resource && head.Order < e.order && head.LastStep < prev.lastFirst {
				e.begin = lineStart.Order
				break
			}
		}
	}
	return nil
}

// nearestStep returns that of the engine runs (indexes in byStep) whose step of the request's first
// SCHEDULED event is nearest in time to that event: siblings use the same step ids, at other times.
// If none has recorded the step it is the first.
func nearestStep(head *coreHead, runs []int, byStep []stepTimes) int {
	best := runs[0]
	nearestNs := int64(math.MaxInt64)
	for _, i := range runs {
		step, ok := byStep[i][head.SchedStep]
		if !ok {
			continue
		}
		distanceNs := max(0, step.startNs-head.SchedNs, head.SchedNs-step.endNs) // 0 within the step
		if distanceNs < nearestNs {
			best = i
			nearestNs = distanceNs
		}
	}
	return best
}

// engine is one run of one engine: an uninterrupted sequence of step ids.
type engine struct {
	resource  uint64      // hash of the resource of its spans, which identifies the process
	stretches []stretch   // the ranges of steps of its spans, by step id
	lastFirst int64       // the largest first step of a span
	order     int64       // position in the input of the step span that came first
	lastOrder int64       // position of the one that came last
	begin     int64       // position where the run begins, see findBegins
	minNs     int64       // start of its earliest step
	maxNs     int64       // end of its latest step
	tables    *stepTables // its steps and snapshots
	spans     int64       // number of its step spans
}
