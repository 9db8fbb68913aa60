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
	c.dropStrayRows(s)
	p := stretchOf(s)
	e, err := c.engineOf(s, &p)
	if err != nil {
		return err
	}
	e.spans++
	e.stretches = insertStretch(e.stretches, p)
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

// engineOf returns the engine whose spans p fits best, or a new one.
func (c *collector) engineOf(s *otlp.Span, p *stretch) (*engine, error) {
	var best, latest *engine
	var bestFit fit
	for _, e := range c.engines {
		if e.resource != s.Resource {
			continue
		}
		if latest == nil || e.lastOrder > latest.lastOrder {
			latest = e
		}
		if candidate, ok := fitOf(e.stretches, p); ok && (best == nil || candidate.betterThan(bestFit)) {
			best = e
			bestFit = candidate
		}
	}
	switch {
	case s.Name == "scheduler_steps" && !s.Sequence.OK: // fork v0.3 writes one span for the life of an engine
	case best != nil:
		return best, nil
	case latest != nil && !s.Sequence.OK && s.FirstStep > 1: // a new engine would begin with step 1
		return latest, nil
	}
	e := &engine{resource: s.Resource, order: c.order, minNs: math.MaxInt64, maxNs: math.MinInt64}
	var err error
	e.tables, err = newStepTables(c.dir(len(c.engines)), c.format, c.acc, source.Place{File: c.names[0].Name}, c.mem)
	e.tables.stated, e.tables.out.beyond = c.stated, enginelog.LimitsOf(&c.stated)
	c.engines = append(c.engines, e)
	return e, err
}

// partition sorts the engine runs by time and assigns every request to one of them. It refuses
// engine runs whose stamps overlap unless split is set.
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
		return trace.Errorf(codeSeveralEngines,
			"got %d engine runs whose stamps overlap in one dump (step ids return to 1, from span sequences of %d "+
				"and %d spans)", len(c.engines), c.engines[0].spans, c.engines[1].spans).
			WithHint("rerun with --split-engines, or give each engine its own run folder")
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

// stepTimes maps the id of each step of an engine to its start and end, ns.
type stepTimes map[int64][2]int64

// stepIndex returns the times of the steps from their tables.
func (c *collector) stepIndex() ([]stepTimes, error) {
	out := make([]stepTimes, len(c.engines))
	for i, e := range c.engines {
		out[i] = stepTimes{}
		for s, err := range fileRows[trace.Step](e.tables.dir, table.Steps, c.format) {
			if err != nil {
				return nil, err
			}
			out[i][s.ID] = [2]int64{s.TsStartNs, s.TsEndNs}
		}
	}
	return out, nil
}

// engineOfCore returns the engine run of a request. It is the only one of its process, or the one
// that ran at its time, or the one that wrote at its place in the file. If several data-parallel
// siblings wrote at the same time, it is the one whose recorded step contains the request's
// SCHEDULED stamp.
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

// siblings returns the engine runs of one resource (process), or all if none is of that resource.
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

// inTurn reports whether the engine runs wrote their spans one run after another.
func (c *collector) inTurn(same []int) bool {
	for n, i := range same[1:] {
		if c.engines[i].order < c.engines[same[n]].lastOrder {
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
		prev := (*engine)(nil)
		for _, p := range c.engines[:i] {
			if p.resource == e.resource {
				prev = p
			}
		}
		if prev == nil {
			continue
		}
		var line coreHead // the first core after prev in the current line
		for j := range c.cores {
			k, err := c.pack.coreHead(c.cores[j].row)
			if err != nil {
				return err
			}
			if k.Order <= prev.lastOrder {
				continue
			}
			if line.Order == 0 || k.File != line.File || k.Line != line.Line {
				line = k
			}
			if k.Resource == e.resource && k.Order < e.order && k.LastStep < prev.lastFirst {
				e.begin = line.Order
				break
			}
		}
	}
	return nil
}

// nearestStep returns the engine run whose step of the request's first SCHEDULED event is nearest
// in time to that event.
func nearestStep(head *coreHead, same []int, byStep []stepTimes) int {
	best, nearest := same[0], int64(math.MaxInt64)
	for _, i := range same {
		step, ok := byStep[i][head.SchedStep]
		if !ok {
			continue
		}
		distance := max(0, step[0]-head.SchedNs, head.SchedNs-step[1])
		if distance < nearest {
			best, nearest = i, distance
		}
	}
	return best
}

// engine is one run of one engine: an uninterrupted sequence of step ids.
type engine struct {
	resource  uint64
	stretches []stretch // its spans, by step id
	lastFirst int64     // the largest first step of a span
	order     int64     // position in the input of the step span that came first
	lastOrder int64     // position of the one that came last
	begin     int64     // position where the run begins, see findBegins
	minNs     int64     // start of its earliest step
	maxNs     int64     // end of its latest step
	tables    *stepTables
	spans     int64
}
