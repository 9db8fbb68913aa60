package rows

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

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
	v := s.view()
	for k := range s.Len() {
		st := v.number(k)
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
