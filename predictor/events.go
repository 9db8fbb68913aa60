package predictor

// This file lists what happens to requests in order of time, from which the state of the queue is
// counted.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// eventKind is the kind of an event, in the order in which events at equal stamps are applied. The
// arrival of another request comes last, so that it can be excluded at the moment of the decision
// itself.
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

// event is something that happened to the request lives[life] at a stamp, ns.
type event struct {
	at   int64
	kind eventKind
	life int32
}

// eventsOf returns the stamps of all requests as events in the order of time.
func eventsOf(lives []requestLife) []event {
	var out []event
	add := func(i int, k eventKind, at trace.Opt[int64]) {
		if at.OK {
			out = append(out, event{at: at.V, kind: k, life: int32(i)})
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
	stat.SortStable(out, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.life, b.life))
	})
	return out
}
