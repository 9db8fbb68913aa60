package predictor

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// eventKind is that of an event, in the order they count at equal stamps. Another request's
// arrival comes last, so that it can be left out at the decision's own moment.
type eventKind uint8

const (
	evQueued eventKind = iota
	evScheduled
	evPreempted
	evResumed
	evFirst
	evFinished
	evDeparted
	evArrived
)

type event struct {
	at   int64
	kind eventKind
	life int32
}

// eventsOf lists the stamps of all lives in time.
func eventsOf(lives []requestLife) []event {
	var out []event
	add := func(i int, k eventKind, at trace.Opt[int64]) {
		if at.OK {
			out = append(out, event{at.V, k, int32(i)})
		}
	}
	for i := range lives {
		l := &lives[i]
		add(i, evArrived, l.arrived)
		add(i, evQueued, l.queued)
		add(i, evScheduled, l.scheduled)
		for _, p := range l.pauses {
			add(i, evPreempted, p.from)
			add(i, evResumed, p.to)
		}
		add(i, evFirst, l.first)
		add(i, evFinished, l.finished)
		add(i, evDeparted, l.departed)
	}
	slices.SortFunc(out, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.life, b.life))
	})
	return out
}
