package extract

import (
	"errors"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sightings follow the requests that snapshots show. Of those not shown for a while what is
// known goes to seen, so that a long run takes no more memory than a short one; who is shown
// again is sighted again.
type sightings struct {
	owners map[string]*owner
	before []*owner // of the snapshots of the step before, in order
	now    []*owner
	lists  int64 // steps with snapshots so far
	seen   *source.RowFile
}

func newSightings(mem *source.Memory) sightings {
	return sightings{owners: map[string]*owner{}, seen: mem.RowFile()}
}

// forgetAfter is how many steps with snapshots a request is remembered at least without one.
const forgetAfter = 4096

// owner is a request as snapshots show it.
type owner struct {
	sighting
	id   string
	last int64 // step of its latest snapshot
	list int64 // number of that step among those with snapshots
}

// sighting is what the first snapshot of a request with scheduled tokens says: what it tells
// about cached tokens was fixed at admission.
type sighting struct {
	ID       digest
	IsSeen   bool // there was one
	Step     int64
	Computed int64
	Hit      trace.Opt[int64]
}

// forget lets go of the requests whose latest snapshots stand before a list.
func (s *sightings) forget(list int64) error {
	var buf []byte
	for id, o := range s.owners {
		if o.list >= list {
			continue
		}
		o.ID = digestID(id)
		buf = sightCode.Append(buf[:0], &o.sighting)
		if _, err := s.seen.Put(buf); err != nil {
			return err
		}
		delete(s.owners, id)
	}
	return nil
}

// sighted hands over what waits, and where.
func (s *sightings) sighted(use func(at int64, o *sighting)) error {
	var broken error
	err := s.seen.Each(func(at int64, row []byte) {
		var o sighting
		broken = errors.Join(broken, sightCode.Decode(row, &o, nil))
		use(at, &o)
	})
	return errors.Join(err, broken)
}

// owner finds a request. Steps list their requests in the same order as the
// step before, but for those that came and went, so the one after the last
// found is guessed first; next is the guess after this one.
func (s *sightings) owner(id string, guess int) (o *owner, next int) {
	for at := guess; at < len(s.before) && at < guess+2; at++ {
		if s.before[at].id == id {
			return s.before[at], at + 1
		}
	}
	o, ok := s.owners[id]
	if !ok {
		o = &owner{id: id, last: minStep}
		s.owners[id] = o
	}
	return o, guess
}

// minStep is below every step id of a dump.
const minStep = -1 << 63

func (o *owner) note(s *trace.Snapshot) {
	if o.IsSeen || s.ScheduledTokens == 0 {
		return
	}
	o.IsSeen = true
	o.Step = s.StepID
	o.Computed = s.ComputedTokens
	if s.EffectivePromptLen.OK {
		o.Hit = trace.Some(s.PromptTokens - s.EffectivePromptLen.V)
	}
}
