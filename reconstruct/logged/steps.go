package logged

// This file writes the passes as steps.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// maxLostSteps limits the unknown steps that stand for lost records: this many, plus eight for
// every record.
const maxLostSteps = 1 << 20

// makeSteps makes the steps of the run: one for each pass, an empty one where the engine was idle,
// and unknown ones for lost records. If times are known only between ticks, only the passes that
// cross a second become recorded steps.
func (f *filler) makeSteps(a *timeAudit) {
	id := int64(0) // of the last step; steps count from 1
	ticks := 0
	every := f.tickEvery()
	spare := int64(maxLostSteps + 8*len(f.passes)) // lost records that may still become unknown steps
	add := func(t trace.StepTotals) int64 {        // returns the id of the step
		f.out.Totals = append(f.out.Totals, t)
		id++
		return id
	}
	for i := range f.passes {
		p := &f.passes[i]
		if i > 0 {
			before := &f.passes[i-1]
			switch lost := p.it.Index - before.it.Index - 1; {
			case lost > 0: // totals of lost records are unknown
				for range min(lost, max(1, spare)) {
					add(trace.StepTotals{})
				}
				spare -= lost
			case p.idle && before.hasEnd:
				n := add(trace.StepTotals{Known: true})
				f.appendStep(a, trace.Step{ID: n, TsStartNs: before.endNs})
			}
		}
		t := p.stepTotals()
		t.NoStart = !p.hasStart
		n := add(t)
		if a.time == timeTicks {
			if !p.tick {
				continue
			}
			if ticks++; ticks%every == 0 {
				s := p.summary(n, f.dep.Engine.KVBlocksGPU.Or(0))
				s.TsStartNs = p.tickNs
				s.TsEndNs = p.tickNs
				f.out.Totals[n-1].NoStart = false
				f.run.Steps = append(f.run.Steps, s)
			}
			continue
		}
		if p.hasEnd {
			f.appendStep(a, p.summary(n, f.dep.Engine.KVBlocksGPU.Or(0)))
		}
	}
	// A step ends where the next begins, so an empty one follows the last pass.
	if p := &f.passes[len(f.passes)-1]; p.hasEnd {
		f.appendStep(a, trace.Step{ID: add(trace.StepTotals{Known: true}), TsStartNs: p.endNs})
	}
	f.out.First = 1
}

// coarseRows is the shortest duration of a recorded step if stamps are coarse, in units of their
// resolution.
const coarseRows = 20

// appendStep appends a recorded step. A stamp earlier than the last one is replaced by that,
// because stamps must not decrease.
func (f *filler) appendStep(a *timeAudit, s trace.Step) {
	if a.time == timeTicks {
		return
	}
	if n := len(f.run.Steps); n > 0 {
		s.TsStartNs = max(s.TsStartNs, f.run.Steps[n-1].TsStartNs)
	}
	if n := len(f.run.Steps); a.coarse && a.time == timeCadence && n > 0 && s.ScheduledTokens > 0 {
		last := &f.run.Steps[n-1]
		if last.ScheduledTokens > 0 && s.TsStartNs-last.TsStartNs < coarseRows*f.passes[0].it.StampStepNs.Or(secondNs) {
			return // too short for a row of its own: it is part of the row before
		}
	}
	s.TsEndNs = s.TsStartNs
	f.run.Steps = append(f.run.Steps, s)
}

// summary returns the pass in the form of a step summary. blocks is the number of KV blocks of the engine, 0
// if unknown.
func (p *pass) summary(id, blocks int64) trace.Step {
	it := p.it
	s := trace.Step{
		ID:              id,
		TsStartNs:       p.startNs,
		RunningDepth:    int32(p.prefills + p.decodes),
		WaitingDepth:    int32(it.QueuedContext.Or(0) + it.QueuedDecode.Or(0)),
		NumPrefillReqs:  int32(p.prefills),
		NumDecodeReqs:   int32(p.decodes),
		PrefillTokens:   int32(p.prefillTokens),
		DecodeTokens:    int32(p.decodes),
		ScheduledTokens: int32(p.prefillTokens + p.decodes),
		KVUsage:         it.KVUsage.Or(0),
		BlocksTotal:     blocks,
	}
	s.BlocksFree = int64(float64(blocks) * (1 - s.KVUsage))
	if it.StampWall {
		s.WallNs = it.StampNs.V
	}
	if it.Dummy { // its tokens are no requests'
		s.RunningDepth = 0
		s.ScheduledTokens = 0
		s.PrefillTokens = 0
		s.DecodeTokens = 0
	}
	return s
}

// statedShare is the share of the clients' requests that must state their queueing delay, so that the number of
// waiting requests can be counted.
const statedShare = 0.95

// countWaiting sets how many requests waited when each step began, from the queueing delays that the server stated
// to its clients, where the log does not have the number. It needs the clocks aligned: once OffsetNs is known, the
// steps are on the clients' clock (shiftPasses).
func (f *filler) countWaiting() {
	type edge struct {
		ns     int64
		change int64 // of the waiting requests: +1 or -1
	}
	var edges []edge
	stated := 0 // requests whose delay the server stated
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		at, ok := o.QueuedAtNs()
		if !ok {
			continue
		}
		stated++
		edges = append(edges, edge{at, 1}, edge{at + trace.Ns(o.QueueUs.V), -1})
	}
	hasDepth := f.passes[0].it.QueuedContext.OK
	if hasDepth || !f.out.OffsetNs.OK || float64(stated) < statedShare*float64(len(f.run.Observed)) || stated == 0 {
		return
	}
	stat.SortStable(edges, func(a, b edge) int { // ends before begins at the same time
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.change, b.change))
	})
	waiting := int64(0)
	next := 0
	for k := range f.run.Steps {
		s := &f.run.Steps[k]
		for ; next < len(edges) && edges[next].ns <= s.TsStartNs; next++ {
			waiting += edges[next].change
		}
		s.WaitingDepth = int32(max(0, waiting))
	}
	f.addFinding(codeFilledIn, "the number of waiting requests comes from the queueing delays of %d requests, as the server stated them", stated)
}

// minRowPasses is the smallest number of passes between two ticks that give a training row.
const minRowPasses = 20

// tickEvery returns the number of ticks per row, so that a row has about minRowPasses passes and an
// error of one pass at its ends is small.
func (f *filler) tickEvery() int {
	last := -1          // pass with the tick before
	var apart []float64 // passes between two ticks
	for i := range f.passes {
		if f.passes[i].tick {
			if last >= 0 {
				apart = append(apart, float64(i-last))
			}
			last = i
		}
	}
	if len(apart) == 0 {
		return 1
	}
	return int(math.Max(1, math.Ceil(minRowPasses/math.Max(1, stat.Median(apart)))))
}
