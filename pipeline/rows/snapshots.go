package rows

// This file reads the snapshots of a run: the requests that the scheduler ran in a step, as the
// tracing fork of vLLM recorded them.

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// snapshotMembers returns the list to with the scheduled requests of a step's snapshots appended.
func snapshotMembers(snaps []trace.Snapshot, to []trace.Member) []trace.Member {
	for i := range snaps {
		if s := &snaps[i]; s.ScheduledTokens > 0 {
			to = append(to, trace.Member{CoreID: s.CoreID,
				Chunk: trace.Chunk{Computed: s.ComputedTokens, Prompt: s.PromptTokens, New: s.ScheduledTokens}})
		}
	}
	return to
}

// isComplete reports whether a step has a snapshot of every running request and of every scheduled
// token (spec#rich-steps).
func isComplete(s *trace.Step, snaps []trace.Snapshot) bool {
	if len(snaps) == 0 || int64(len(snaps)) != int64(s.RunningDepth) {
		return false
	}
	scheduled := int64(0)
	for i := range snaps {
		scheduled += snaps[i].ScheduledTokens
	}
	return scheduled == int64(s.ScheduledTokens)
}

// sameMembers reports whether two batches have the same members. It may sort both. Journeys and
// snapshots mostly list requests in the same order.
func sameMembers(a, b []trace.Member) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.Equal(a, b) {
		return true
	}
	order := func(x, y trace.Member) int { return cmp.Compare(x.CoreID, y.CoreID) }
	stat.SortStable(a, order)
	stat.SortStable(b, order)
	return slices.Equal(a, b)
}

// snapshotSurvey has what all snapshots of a run show together, found in one pass over them.
type snapshotSurvey struct {
	hits    map[string]prefixHits // by core id, of the request's first snapshot with scheduled tokens
	unknown int                   // requests in snapshots without a core span
	cv2     float64               // squared variation of the prompt lengths of all requests
	hasCV2  bool
}

// prefixHits is the share of a prompt that was cached, as the two spec versions compute it.
type prefixHits struct{ v10, v11 float64 }

// surveySnapshots returns the survey of a run, after it has read all snapshots once.
func surveySnapshots(run *trace.Run) (*snapshotSurvey, error) {
	s := &snapshotSurvey{hits: map[string]prefixHits{}}
	const (
		hasSpan = 1 << iota // a core span
		isSeen              // a snapshot
		hasHits             // a snapshot with scheduled tokens
	)
	found := make(map[string]uint8, len(run.Requests)) // what was found of a request, by core id
	for i := range run.Requests {
		if id := run.Requests[i].CoreID; id.OK {
			found[id.V] = hasSpan
		}
	}
	var lengths []float64
	err := run.EachSnapshot(func(snapshot *trace.Snapshot) {
		before := found[snapshot.CoreID]
		after := before | isSeen
		if snapshot.ScheduledTokens > 0 {
			after |= hasHits
		}
		if after == before {
			return
		}
		id := strings.Clone(snapshot.CoreID) // CoreID shares the memory of a whole page of rows
		found[id] = after
		if before&isSeen == 0 {
			lengths = append(lengths, float64(snapshot.PromptTokens))
			if before&hasSpan == 0 {
				s.unknown++
			}
		}
		if after&hasHits > before&hasHits {
			s.hits[id] = prefixHits{
				v10: prefixHit10(snapshot.BlocksCached, snapshot.BlocksAllocated),
				v11: prefixHit11(snapshot),
			}
		}
	})
	s.cv2 = squaredVariation(lengths)
	s.hasCV2 = len(lengths) > 0
	return s, err
}

// snapshotWalk visits the snapshots of a run in the order of their steps.
type snapshotWalk struct {
	cursor trace.SnapshotCursor
	more   bool
	buf    []trace.Snapshot
}

// openSnapshots returns a walk over the snapshots, before the first step.
func openSnapshots(run *trace.Run) (*snapshotWalk, error) {
	c, err := run.OpenSnapshots()
	if err != nil {
		return nil, err
	}
	return &snapshotWalk{cursor: c, more: c.Next()}, nil
}

// step returns the snapshots of one step, valid until the next call. Calls must have ascending ids.
func (s *snapshotWalk) step(id int64) []trace.Snapshot {
	s.buf = s.buf[:0]
	for s.more && s.cursor.Row().StepID <= id {
		if q := s.cursor.Row(); q.StepID == id {
			s.buf = append(s.buf, *q)
		}
		s.more = s.cursor.Next()
	}
	return s.buf
}

// close ends the walk and returns the error that stopped it early.
func (s *snapshotWalk) close() error { return errors.Join(s.cursor.Err(), s.cursor.Close()) }
