package extract

// This file finds what the first snapshot of each request shows: how many of its tokens were in the
// prefix cache when the scheduler admitted it. Such a record is called a sighting.

import (
	"errors"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sightings collects the sighting of each request in the snapshots of one engine. Requests without
// a snapshot for a while are moved from memory to the file seen. A request that has a snapshot
// after that gets a second sighting, of which the first is used.
type sightings struct {
	owners map[string]*owner // the requests in memory, by request id
	before []*owner          // the requests of the previous step's snapshots, in order
	now    []*owner          // the requests of the current step's snapshots so far
	lists  int64             // number of steps with snapshots so far
	seen   *source.RowFile   // the sightings of requests that left memory
}

// newSightings returns empty sightings.
func newSightings(mem *source.Memory) sightings {
	return sightings{owners: map[string]*owner{}, seen: mem.RowFile()}
}

// forgetAfter is the least number of steps without a snapshot of a request before it leaves memory.
const forgetAfter = 4096

// owner is the request to which snapshots belong.
type owner struct {
	sighting
	id   string
	last int64 // step of its latest snapshot
	list int64 // the number of steps with snapshots up to that step
}

// sighting is what the first snapshot with scheduled tokens shows of a request. That is the step in
// which the scheduler admitted the request and looked its prompt up in the prefix cache.
type sighting struct {
	ID       digest
	IsSeen   bool // a snapshot with scheduled tokens was found
	Step     int64
	Computed int64            // num_computed_tokens
	Hit      trace.Opt[int64] // tokens of the prompt that were in the prefix cache; unknown on a full hit
}

// forget moves requests whose latest snapshot is older than a step, given by its number among the
// steps with snapshots, from memory to seen.
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

// ownerOf returns the request of a snapshot. A step lists its requests in the order of the step
// before, except for those that came or left. So guess is compared first, the place in that list
// after the request found last; next is the guess for the next snapshot.
func (s *sightings) ownerOf(id string, guess int) (o *owner, next int) {
	for i := guess; i < len(s.before) && i < guess+2; i++ { // the second, if one request has left
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

// minStep is below every step id of a dump, so that no step counts as seen.
const minStep = -1 << 63

// sight stores what a snapshot shows, if it is the first with scheduled tokens.
func (o *owner) sight(s *trace.Snapshot) {
	if o.IsSeen || s.ScheduledTokens == 0 {
		return
	}
	o.IsSeen = true
	o.Step = s.StepID
	o.Computed = s.ComputedTokens
	if s.EffectivePromptLen.OK { // the prompt without its cached tokens
		o.Hit = trace.Some(s.PromptTokens - s.EffectivePromptLen.V)
	}
}
