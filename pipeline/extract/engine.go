package extract

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// engine is one life of one engine: an uninterrupted sequence of step ids.
type engine struct {
	resource  uint64
	lastSeq   int64
	lastStep  int64
	lastFirst int64 // first step of the last span
	lastOrder int64 // position of the last step span in the input
	order     int64 // position of the first one
	begin     int64 // where the run begins in the input
	minNs     int64
	maxNs     int64
	tables    *stepTables
	spans     int64
}

// steps assigns a step span to its engine and writes its rows.
//
// An engine counts its spans from 1 and its steps from 1, and nothing names
// it. A span continues the engine of the same resource whose last sequence
// number it follows, and of several the one whose last step came just before;
// where none does and the numbers return to the start, a new engine run begins
// (a restart, or a data-parallel sibling).
func (c *collector) steps(s *span) error {
	defer s.rows.free()
	e, err := c.engineOf(s)
	if err != nil {
		return err
	}
	e.spans++
	e.lastOrder, e.lastFirst = c.order, s.firstStep
	if s.sequence.OK {
		e.lastSeq = max(e.lastSeq, s.sequence.V)
	}
	if s.lastStep > e.lastStep {
		e.lastStep = s.lastStep
	}
	for i := range s.rows.steps {
		r := &s.rows.steps[i]
		e.minNs, e.maxNs = min(e.minNs, r.TsStartNs), max(e.maxNs, r.TsEndNs)
	}
	c.acc.keep(1) // its rows count as kept when they are written
	return e.tables.add(s.rows)
}

func (c *collector) engineOf(s *span) (*engine, error) {
	var follow, latest *engine
	for _, e := range c.engines {
		if e.resource != s.resource {
			continue
		}
		if latest == nil || e.lastOrder > latest.lastOrder {
			latest = e
		}
		if s.sequence.OK && e.lastSeq == s.sequence.V-1 && s.firstStep > e.lastStep {
			if follow == nil || s.follows(e, follow) {
				follow = e
			}
		}
	}
	switch {
	case follow != nil:
		return follow, nil
	case latest == nil, startsOver(s, latest):
		e := &engine{resource: s.resource, order: c.order, lastStep: math.MinInt64, minNs: math.MaxInt64, maxNs: math.MinInt64}
		var err error
		e.tables, err = newStepTables(c.engineDir(len(c.engines)), c.format, c.acc, place{file: c.names[0].name}, c.mem)
		c.engines = append(c.engines, e)
		return e, err
	}
	return latest, nil
}

// follows reports whether the span rather continues engine a than engine b,
// by numbers both are possible (data-parallel siblings): it begins after the
// last step of its own engine, and soon.
func (s *span) follows(a, b *engine) bool {
	start := int64(math.MaxInt64)
	for i := range s.rows.steps {
		start = min(start, s.rows.steps[i].TsStartNs)
	}
	if (a.maxNs <= start) != (b.maxNs <= start) {
		return a.maxNs <= start
	}
	return cmp.Or(cmp.Compare(a.maxNs, b.maxNs), cmp.Compare(a.lastOrder, b.lastOrder)) > 0
}

// startsOver reports whether the numbers of a span return to the start.
func startsOver(s *span, latest *engine) bool {
	if s.sequence.OK {
		return s.sequence.V == 1 && latest.lastSeq >= 1
	}
	if s.name == "scheduler_steps" { // one span for the whole life (fork v0.3)
		return true
	}
	return s.firstStep == 1 && latest.lastStep >= 1
}

// partition orders the engines and gives every request to one. Engines whose
// stamps overlap are refused unless split says to go on.
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
		return (&trace.Error{Code: CodeSeveralEngines, Msg: fmt.Sprintf("got %d engine runs whose stamps overlap in one dump (step ids return to 1, from span sequences of %d and %d spans)",
			len(c.engines), c.engines[0].spans, c.engines[1].spans)}).WithHint("rerun with --split-engines, or give each engine its own run folder")
	}
	if disjoint {
		c.engines = byTime
	}
	c.begins()
	var byStep []stepTimes
	if !disjoint {
		var err error
		if byStep, err = c.stepIndex(); err != nil {
			return err
		}
	}
	for _, k := range c.cores {
		k.engine = int32(c.assign(k, disjoint, byStep))
	}
	return nil
}

// stepTimes is when each step of an engine began and ended, by id.
type stepTimes map[int64][2]int64

// stepIndex reads the times of the steps back from their tables.
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

// assign finds the engine of a request: the only one of its process, the one
// running at its time, the one that was writing at its place in the file, or,
// where siblings wrote at the same time, the one whose recorded step holds its
// SCHEDULED stamp.
func (c *collector) assign(k *core, disjoint bool, byStep []stepTimes) int {
	same := c.siblings(k.resource)
	if len(same) == 1 {
		return same[0]
	}
	at := same[0]
	switch {
	case disjoint:
		for _, i := range same {
			if c.engines[i].minNs <= k.lastNs {
				at = i
			}
		}
		return at
	case c.inTurn(same):
		for _, i := range same[1:] {
			if k.order >= c.engines[i].begin {
				at = i
			}
		}
		return at
	}
	return nearestStep(k, same, byStep)
}

// siblings are the engines of one resource, or all when it has none.
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

// inTurn reports whether engines wrote one after another in the file.
func (c *collector) inTurn(same []int) bool {
	for n, i := range same[1:] {
		if c.engines[i].order < c.engines[same[n]].lastOrder {
			return false
		}
	}
	return true
}

// begins finds where in the input each engine run begins. Its first step span
// is written only when it closes, so requests of the run may stand before it:
// the run begins with the first line, after the last step span of the run
// before, in which a request ends in a step that lies before that span.
func (c *collector) begins() {
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
		for j, k := range c.cores {
			if k.resource != e.resource || k.order <= prev.lastOrder || k.order >= e.order || k.lastStep >= prev.lastFirst {
				continue
			}
			e.begin = k.order
			for _, before := range c.cores[:j] { // the rest of its line
				if before.file == k.file && before.line == k.line && before.order > prev.lastOrder {
					e.begin = min(e.begin, before.order)
				}
			}
			break
		}
	}
}

// nearestStep is the engine whose recorded step is nearest in time to the
// request's first SCHEDULED event of that step.
func nearestStep(k *core, same []int, byStep []stepTimes) int {
	best, dist := same[0], int64(math.MaxInt64)
	for _, i := range same {
		b, ok := byStep[i][k.schedStep]
		if !ok {
			continue
		}
		d := max(0, b[0]-k.schedNs, k.schedNs-b[1])
		if d < dist {
			best, dist = i, d
		}
	}
	return best
}
