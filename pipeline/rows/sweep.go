package rows

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
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
	return stat.Sum(snaps, func(q trace.Snapshot) int64 { return q.ScheduledTokens }) == s.ScheduledTokens
}

// Each calls f for every step in order with the members of its batch: from
// snapshots for rich steps, from the journeys for journey steps, nil otherwise.
// The slice is reused between calls.
func (s *Steps) Each(f func(st *Step, members []trace.Member)) error {
	if s.plan == nil {
		return nil
	}
	w := sweep{p: s.plan}
	snaps, err := openSnapshots(s.Run)
	if err != nil {
		return err
	}
	var buf, rich []trace.Member
	for k := range s.all {
		st := &s.all[k]
		buf = w.at(st.ID, buf[:0])
		switch st.Tag {
		case TagRich:
			rich = snapshotMembers(snaps.at(st.ID), rich[:0])
			f(st, rich)
		case TagJourney:
			f(st, buf)
		default:
			f(st, nil)
		}
	}
	return snaps.close()
}

// Members returns the batch of one step; nil when unknown or approximate. It
// looks at every request and snapshot: use Each for many steps.
func (s *Steps) Members(id int64) ([]trace.Member, error) {
	st := s.At(id)
	switch {
	case st == nil:
		return nil, nil
	case st.Tag == TagRich:
		snaps, err := openSnapshots(s.Run)
		if err != nil {
			return nil, err
		}
		members := snapshotMembers(snaps.at(id), nil)
		return members, snaps.close()
	case st.Tag == TagJourney:
		w := sweep{p: s.plan}
		return w.at(id, nil), nil
	}
	return nil, nil
}

// sameMembers compares two batches as sets. It sorts both.
func sameMembers(a, b []trace.Member) bool {
	order := func(x, y trace.Member) int { return cmp.Compare(x.CoreID, y.CoreID) }
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return slices.Equal(a, b)
}
