package extract

// This file decides to which engine a step span belongs, from ids, sequence numbers and stamps
// (spec#wire-engines): the engine whose recorded steps leave the smallest gap before the span.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
)

// stretch is a range of steps that one engine recorded without a gap: one step span, or several
// with consecutive sequence numbers.
type stretch struct {
	firstStep, lastStep int64
	firstSeq, lastSeq   int64 // sequence numbers; 0 for a span without one
	fromNs, toNs        int64 // start stamps of its first and its last step; 0 for unknown
	endNs               int64 // end stamp of its last step
}

// stretchOf returns the stretch of steps of one span, whose rows must be sorted.
func stretchOf(s *otlp.Span) stretch {
	p := stretch{firstStep: s.FirstStep, lastStep: s.LastStep, firstSeq: s.Sequence.V, lastSeq: s.Sequence.V}
	if n := len(s.Rows.Steps); n > 0 {
		p.fromNs = s.Rows.Steps[0].TsStartNs
		p.toNs = max(p.fromNs, s.Rows.Steps[n-1].TsStartNs)
		p.endNs = s.Rows.Steps[n-1].TsEndNs
	}
	return p
}

// insertStretch returns the list of an engine's stretches, which are sorted by steps, with p added
// and consecutive ones joined.
func insertStretch(list []stretch, p stretch) []stretch {
	at := placeAfter(list, &p)
	list = slices.Insert(list, at, p)
	if at+1 < len(list) && list[at].meets(&list[at+1]) {
		list[at].extend(&list[at+1])
		list = slices.Delete(list, at+1, at+2)
	}
	if at > 0 && list[at-1].meets(&list[at]) {
		list[at-1].extend(&list[at])
		list = slices.Delete(list, at, at+1)
	}
	return list
}

// placeAfter returns the index in the list after all stretches that begin at or before the first
// step of p.
func placeAfter(list []stretch, p *stretch) int {
	at, _ := slices.BinarySearchFunc(list, p, func(a stretch, p *stretch) int {
		return cmp.Or(cmp.Compare(a.firstStep, p.firstStep), -1) // an equal one comes before p
	})
	return at
}

// meets reports whether b directly follows a, by sequence numbers or, without these, by step ids.
func (a *stretch) meets(b *stretch) bool {
	if a.lastSeq != 0 && b.firstSeq != 0 {
		return a.lastSeq+1 == b.firstSeq
	}
	return a.lastSeq == 0 && b.firstSeq == 0 && a.lastStep+1 == b.firstStep
}

// extend appends b to a.
func (a *stretch) extend(b *stretch) {
	a.lastStep = max(a.lastStep, b.lastStep)
	a.lastSeq = b.lastSeq
	if b.toNs != 0 {
		a.toNs = b.toNs
		a.endNs = b.endNs
	}
}

// mayPrecede reports whether the numbers of a and b allow that a came before b in one engine. Both
// step ids and sequence numbers ascend; two spans may share a step whose events were divided
// between them.
func (a *stretch) mayPrecede(b *stretch) bool {
	return a.lastStep <= b.firstStep && (a.lastSeq == 0 || b.firstSeq == 0 || a.lastSeq < b.firstSeq)
}

// isEarlier reports whether the stamps of a and b allow that a came before b.
func (a *stretch) isEarlier(b *stretch) bool {
	return a.toNs == 0 || b.fromNs == 0 || a.toNs <= b.fromNs
}

// fit is how well a span fits between the stretches of an engine.
type fit struct {
	outOfTime bool  // its stamps contradict the order, but by its numbers it is next to a stretch
	overlaps  bool  // it begins before the previous span ends, as happens with asynchronous scheduling
	gap       int64 // number of sequence numbers, or steps, missing before it
	gapNs     int64 // time since the previous span began its last step; math.MaxInt64 if unknown
}

// betterThan reports whether fit f of a span in one engine is better than its fit g in another.
func (f fit) betterThan(g fit) bool {
	if f.outOfTime != g.outOfTime {
		return g.outOfTime
	}
	if f.overlaps != g.overlaps {
		return g.overlaps
	}
	return cmp.Or(cmp.Compare(f.gap, g.gap), cmp.Compare(f.gapNs, g.gapNs)) < 0
}

// fitOf returns how well a span of steps (p) fits between those of an engine (list): the number of
// spans and the time missing in between. ok is false if p cannot belong to the engine: its numbers
// overlap others, or its stamps are out of order although it is next to no stretch.
func fitOf(list []stretch, p *stretch) (f fit, ok bool) {
	at := placeAfter(list, p)
	// As the first span of the engine, it lacks what an engine numbers from 1.
	f = fit{gap: max(p.firstSeq, 1) - 1, gapNs: math.MaxInt64}
	if p.firstSeq == 0 {
		f.gap = max(p.firstStep, 1) - 1
	}
	isNext := false // it directly follows or precedes a stretch
	if at > 0 {
		a := &list[at-1]
		if !a.mayPrecede(p) {
			return f, false
		}
		f.outOfTime = !a.isEarlier(p)
		isNext = a.meets(p) && a.lastStep+1 >= p.firstStep // by sequence numbers and by step ids
		f.gap = p.firstStep - a.lastStep - 1
		if p.firstSeq != 0 && a.lastSeq != 0 {
			f.gap = p.firstSeq - a.lastSeq - 1
		}
		if p.fromNs != 0 && a.toNs != 0 {
			f.gapNs = p.fromNs - a.toNs
			f.overlaps = p.fromNs < a.endNs
		}
	}
	if at < len(list) {
		b := &list[at]
		if !p.mayPrecede(b) {
			return f, false
		}
		f.outOfTime = f.outOfTime || !p.isEarlier(b)
		isNext = isNext || p.meets(b) && p.lastStep+1 >= b.firstStep
	}
	return f, !f.outOfTime || isNext
}
