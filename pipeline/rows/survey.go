package rows

import (
	"errors"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// survey is what all snapshots of a run say together, by one pass over them.
type survey struct {
	first   map[string]firstSeen // by core id: its first snapshot with scheduled tokens
	unknown int                  // requests that have no core span
	cv2     float64              // spread of the prompts of the requests' first snapshots
	hasCV2  bool
}

// firstSeen is the first snapshot of a request that schedules tokens: what it
// says of cached tokens, and the prefix hits of both versions.
type firstSeen struct {
	step, computed int64
	hit            trace.Opt[int64]
	hit10, hit11   float64
}

func surveyOf(run *trace.Run) (*survey, error) {
	s := &survey{first: map[string]firstSeen{}}
	known := make(map[string]bool, len(run.Requests)) // and whether it was met
	for i := range run.Requests {
		if id := run.Requests[i].CoreID; id.OK {
			known[id.V] = false
		}
	}
	var lengths []float64
	err := run.EachSnapshot(func(q *trace.Snapshot) {
		met, hasSpan := known[q.CoreID]
		if !met {
			known[strings.Clone(q.CoreID)] = true // it is a part of a page
			lengths = append(lengths, float64(q.PromptTokens))
			if !hasSpan {
				s.unknown++
			}
		}
		if q.ScheduledTokens == 0 {
			return
		}
		if _, ok := s.first[q.CoreID]; !ok {
			s.first[strings.Clone(q.CoreID)] = firstSeenOf(q)
		}
	})
	s.cv2, s.hasCV2 = squaredVariation(lengths), len(lengths) > 0
	return s, err
}

func firstSeenOf(q *trace.Snapshot) firstSeen {
	f := firstSeen{step: q.StepID, computed: q.ComputedTokens,
		hit10: prefixHit10(q.BlocksCached, q.BlocksAllocated), hit11: prefixHit11(q)}
	if q.EffectivePromptLen.OK {
		f.hit = trace.Some(q.PromptTokens - q.EffectivePromptLen.V)
	}
	return f
}

// snapshotsOf walks the snapshots of a run along ascending step ids.
type snapshotsOf struct {
	cursor trace.SnapshotCursor
	more   bool
	buf    []trace.Snapshot
}

func openSnapshots(run *trace.Run) (*snapshotsOf, error) {
	c, err := run.OpenSnapshots()
	if err != nil {
		return nil, err
	}
	return &snapshotsOf{cursor: c, more: c.Next()}, nil
}

// at is the snapshots of one step, valid until the next call.
func (s *snapshotsOf) at(id int64) []trace.Snapshot {
	s.buf = s.buf[:0]
	for s.more && s.cursor.Row().StepID <= id {
		if q := s.cursor.Row(); q.StepID == id {
			s.buf = append(s.buf, *q)
		}
		s.more = s.cursor.Next()
	}
	return s.buf
}

// close ends the walk and says what broke it.
func (s *snapshotsOf) close() error { return errors.Join(s.cursor.Err(), s.cursor.Close()) }
