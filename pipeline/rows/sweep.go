package rows

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// sweep walks the steps in order and knows who runs in each.
type sweep struct {
	p      *plan
	next   int   // first life that has not started
	active []int // lives that may run in the current step, in scheduling order
}

// at appends the members of step u as the journeys tell them. Calls must have
// ascending u.
func (w *sweep) at(u int64, to []trace.Member) []trace.Member {
	lives := w.p.lives
	for ; w.next < len(lives) && lives[w.next].first() <= u; w.next++ {
		if lives[w.next].broken == "" {
			w.active = append(w.active, w.next)
		}
	}
	w.active = slices.DeleteFunc(w.active, func(i int) bool { return lives[i].tail < u })
	for _, i := range w.active {
		if c, ok := w.p.member(&lives[i], u); ok {
			to = append(to, trace.Member{CoreID: lives[i].id, Chunk: c})
		}
	}
	return to
}

// member is life.chunk without tails that did not run.
func (p *plan) member(l *life, u int64) (trace.Chunk, bool) {
	if k := u - p.first; u > l.sure && u > l.t && p.noTail[k] {
		return trace.Chunk{}, false
	}
	return l.chunk(u)
}

// snapshotMembers appends the scheduled requests of a snapshot set.
func snapshotMembers(snaps []trace.Snapshot, to []trace.Member) []trace.Member {
	for i := range snaps {
		if s := &snaps[i]; s.ScheduledTokens > 0 {
			to = append(to, trace.Member{CoreID: s.CoreID,
				Chunk: trace.Chunk{Computed: s.ComputedTokens, Prompt: s.PromptTokens, New: s.ScheduledTokens}})
		}
	}
	return to
}

// isComplete asks for as many snapshots as running requests and as many tokens
// as scheduled (spec#rich-steps).
func isComplete(s *trace.Step, snaps []trace.Snapshot) bool {
	if len(snaps) == 0 || int64(len(snaps)) != s.RunningDepth {
		return false
	}
	var n int64
	for i := range snaps {
		n += snaps[i].ScheduledTokens
	}
	return n == s.ScheduledTokens
}
