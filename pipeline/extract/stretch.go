package extract

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
)

// stretch is a step span, or several whose numbers follow one another.
type stretch struct {
	firstStep, lastStep int64
	firstSeq, lastSeq   int64 // 0: not numbered
	fromNs, toNs        int64 // when its first and its last step began; 0: unknown
	endNs               int64 // when its last step ended
}

// stretchOf is one span, its rows sorted.
func stretchOf(s *otlp.Span) stretch {
	p := stretch{firstStep: s.FirstStep, lastStep: s.LastStep, firstSeq: s.Sequence.V, lastSeq: s.Sequence.V}
	if n := len(s.Rows.Steps); n > 0 {
		p.fromNs = s.Rows.Steps[0].TsStartNs
		p.toNs = max(p.fromNs, s.Rows.Steps[n-1].TsStartNs)
		p.endNs = s.Rows.Steps[n-1].TsEndNs
	}
	return p
}

// insertStretch adds a span to those of an engine, which are in the order of
// their steps, and joins what follows one another.
func insertStretch(list []stretch, p stretch) []stretch {
	at := after(list, &p)
	list = slices.Insert(list, at, p)
	if at+1 < len(list) && list[at].meets(&list[at+1]) {
		list[at].join(&list[at+1])
		list = slices.Delete(list, at+1, at+2)
	}
	if at > 0 && list[at-1].meets(&list[at]) {
		list[at-1].join(&list[at])
		list = slices.Delete(list, at, at+1)
	}
	return list
}

// after is the place in the list behind everything that begins with or before p.
func after(list []stretch, p *stretch) int {
	at, _ := slices.BinarySearchFunc(list, p, func(a stretch, p *stretch) int { return cmp.Or(cmp.Compare(a.firstStep, p.firstStep), -1) })
	return at
}

// meets reports that b is the next of a's engine, as far as numbers say.
func (a *stretch) meets(b *stretch) bool {
	if a.lastSeq != 0 && b.firstSeq != 0 {
		return a.lastSeq+1 == b.firstSeq
	}
	return a.lastSeq == 0 && b.firstSeq == 0 && a.lastStep+1 == b.firstStep
}

func (a *stretch) join(b *stretch) {
	a.lastStep = max(a.lastStep, b.lastStep)
	a.lastSeq = b.lastSeq
	if b.toNs != 0 {
		a.toNs, a.endNs = b.toNs, b.endNs
	}
}

// before reports whether a may stand before b in one engine: numbers, steps and
// stamps ascend. The events of one step may be in two spans.
func (a *stretch) before(b *stretch) bool {
	return a.lastStep <= b.firstStep && (a.lastSeq == 0 || b.firstSeq == 0 || a.lastSeq < b.firstSeq)
}

func (a *stretch) inTime(b *stretch) bool { return a.toNs == 0 || b.fromNs == 0 || a.toNs <= b.fromNs }

// fit is how well a span belongs to an engine.
type fit struct {
	outOfTime bool  // its stamps say no, its numbers say that it is the very next
	overlaps  bool  // it begins before the last step of the span before ended, as with asynchronous scheduling
	gap       int64 // sequence numbers, or steps, that are missing before it
	gapNs     int64 // since the span before
}

// better compares two engines that a span may belong to.
func (f fit) better(g fit) bool {
	if f.outOfTime != g.outOfTime {
		return g.outOfTime
	}
	if f.overlaps != g.overlaps {
		return g.overlaps
	}
	return cmp.Or(cmp.Compare(f.gap, g.gap), cmp.Compare(f.gapNs, g.gapNs)) < 0
}

// fitOf reports whether a span may belong to the engine of the list.
func fitOf(list []stretch, p *stretch) (f fit, ok bool) {
	at := after(list, p)
	f = fit{gap: max(p.firstSeq, 1) - 1, gapNs: math.MaxInt64}
	if p.firstSeq == 0 {
		f.gap = max(p.firstStep, 1) - 1
	}
	isNext := false
	if at > 0 {
		a := &list[at-1]
		if !a.before(p) {
			return f, false
		}
		f.outOfTime = !a.inTime(p)
		f.gap, isNext = p.firstStep-a.lastStep-1, a.meets(p) && a.lastStep+1 >= p.firstStep
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
		if !p.before(b) {
			return f, false
		}
		f.outOfTime = f.outOfTime || !p.inTime(b)
		isNext = isNext || p.meets(b) && p.lastStep+1 >= b.firstStep
	}
	return f, !f.outOfTime || isNext
}
