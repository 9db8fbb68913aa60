package extract

import (
	"errors"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sightings collect the first snapshot of each request. Requests without a snapshot for a while are
// moved to seen, so that a long run needs no more memory than a short one. A request with a snapshot
// after that has a second sighting, and the first one counts.
type sightings struct {
	owners map[string]*owner
	before []*owner // of the snapshots of the step before, in order
	now    []*owner // of those of the current step
	lists  int64    // steps with snapshots so far
	seen   *source.RowFile
}

func newSightings(mem *source.Memory) sightings {
	return sightings{owners: map[string]*owner{}, seen: mem.RowFile()}
}

// forgetAfter is the least number of steps with snapshots for which a request without one is in memory.
const forgetAfter = 4096

// owner is the request of snapshots.
type owner struct {
	sighting
	id   string
	last int64 // step of its latest snapshot
	list int64 // number of that step among the steps with snapshots
}

// sighting is the first snapshot of a request that has scheduled tokens. Its cached tokens were decided
// when the scheduler admitted the request.
type sighting struct {
	ID       digest
	IsSeen   bool // there was such a snapshot
	Step     int64
	Computed int64            // num_computed_tokens
	Hit      trace.Opt[int64] // tokens of the prompt that were in the prefix cache
}

// forget moves the requests whose latest snapshot is in a step before a list to seen.
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

// eachSeen calls use with every sighting in seen and its place.
func (s *sightings) eachSeen(use func(at int64, o *sighting)) error {
	var broken error
	err := s.seen.Each(func(at int64, row []byte) {
		var o sighting
		broken = errors.Join(broken, sightCode.Decode(row, &o, nil))
		use(at, &o)
	})
	return errors.Join(err, broken)
}

// ownerOf finds a request. A step lists its requests in the order of the step before, except for those
// that came or left, so the request after the one found last is compared first. next is the guess for
// the next request.
func (s *sightings) ownerOf(id string, guess int) (o *owner, next int) {
	for i := guess; i < len(s.before) && i < guess+2; i++ {
		if s.before[i].id == id {
			return s.before[i], i + 1
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

// sight notes the first snapshot with scheduled tokens.
func (o *owner) sight(s *trace.Snapshot) {
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
