package rows

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// LagEvidence is what the lag of one run is measured on (spec#lag): for lags 0,
// 1, 2 the training rows of the first 80 % of the run, and one common set of
// hold-out intervals whose targets are equal for all three.
type LagEvidence struct {
	n     int
	cut   int64
	marks map[int64]int // by start: how many lags have a row there, and 1
	table func(lag int) (*Table, error)
}

// N is the number of hold-out intervals.
func (e *LagEvidence) N() int { return e.n }

// At makes the rows of one lag: train, and test, whose row k is the same
// interval for every lag.
func (e *LagEvidence) At(lag int) (train, test *Table, err error) {
	t, err := e.table(lag)
	if err != nil {
		return nil, nil, err
	}
	test = t.Select(func(i int) bool { return e.marks[t.TimeNs[i]] == 1+evidenceLags })
	t.Filter("", func(i int) bool { return t.TimeNs[i] < e.cut })
	t.Read, t.Dropped = t.Kept, nil
	return t, test, nil
}

// LagEvidence finds the intervals; rows are made lag by lag, by At. Saturated
// rows stay in: a loaded server shows its lag best. o.Lag, o.Split and
// o.Saturated are ignored: the split is that of the run, after 80 % of its
// recorded steps, not of its phases. A hold-out interval [i, i+1] has i-2..i+1
// recorded, i-2..i busy and known, and more than 64 prefill tokens in one of
// i-2..i.
func (s *Steps) LagEvidence(sp *features.Space, o Options) (*LagEvidence, error) {
	o.Target, o.Saturated = coeff.Cadence, nil
	e := &LagEvidence{marks: s.evidenceMarks(), cut: s.evidenceCut()}
	e.table = func(lag int) (*Table, error) {
		o := o
		o.Lag = lag
		return s.Beta(sp, o)
	}
	for lag := range evidenceLags {
		t, err := e.table(lag)
		if err != nil {
			return nil, err
		}
		e.n = 0
		for i := range t.Kept {
			if t.TimeNs[i] >= e.cut && t.Steps[i] == 1 && e.marks[t.TimeNs[i]] > 0 {
				e.marks[t.TimeNs[i]]++
			}
			if e.marks[t.TimeNs[i]] == 1+evidenceLags {
				e.n++
			}
		}
	}
	return e, nil
}

// evidenceCut is the start of the first step after 80 % of the recorded ones.
func (s *Steps) evidenceCut() int64 {
	n := len(s.Run.Steps)
	if n == 0 {
		return 0
	}
	return s.Run.Steps[min(n-1, int(math.Ceil(DefaultSplit*float64(n))))].TsStartNs
}

// evidenceMarks maps the start of every interval that may serve as evidence
// to 1; the caller adds one for each lag that has a row there.
func (s *Steps) evidenceMarks() map[int64]int {
	marks := make(map[int64]int)
	m := s.Run.Steps
	for k := evidenceLags - 1; k+1 < len(m); k++ {
		if m[k+1].ID-m[k-2].ID == evidenceLags && s.hasPrefill(k) {
			marks[m[k].TsStartNs] = 1
		}
	}
	return marks
}

// hasPrefill checks recorded steps k-2..k of an evidence interval.
func (s *Steps) hasPrefill(k int) bool {
	var most float64
	for j := k - evidenceLags + 1; j <= k; j++ {
		st := s.At(s.Run.Steps[j].ID)
		if !st.Known() || !isBusy(&s.Run.Steps[j]) {
			return false
		}
		most = max(most, st.In.PrefillTokens)
	}
	return most > evidenceTokens
}

// Audit says what the stamps of the run really measure (spec#target-audit).
func (s *Steps) Audit(sp *features.Space) result.TargetAudit {
	a := result.TargetAudit{Run: s.Run.ID}
	a.DurationUsP50, a.CadenceUsP50, a.PhysicalFloorUs = s.stepMedians(sp)
	var waits, ingress []float64
	for i := range s.Run.Requests {
		r := &s.Run.Requests[i]
		if r.QueuedNs.OK && r.ScheduledNs.OK {
			waits = append(waits, SpanUs(r.QueuedNs.V, r.ScheduledNs.V))
		}
		if r.ArrivedNs.OK && r.QueuedNs.OK {
			ingress = append(ingress, SpanUs(r.ArrivedNs.V, r.QueuedNs.V))
		}
	}
	a.QueuedToScheduledUs, a.ArrivedToQueuedUs = quantiles(waits), quantiles(ingress)
	a.Verdict = auditVerdict(&a)
	if g := s.Run.Aggregate; g != nil && !a.BelowFloor() {
		a.DurationUsP50, a.Verdict = nil, timeVerdict(&g.Audit)
	}
	return a
}

// stepMedians are the medians over busy steps of the time inside schedule(), of that from start to start of
// adjacent recorded ones, and of the least time that reading the weights takes.
func (s *Steps) stepMedians(sp *features.Space) (duration, cadence, floor *float64) {
	var durations, cadences, floors []float64
	for k := range s.Run.Steps {
		rec := &s.Run.Steps[k]
		if !isBusy(rec) {
			continue
		}
		durations = append(durations, float64(rec.DurationUs))
		if k+1 < len(s.Run.Steps) {
			if next := &s.Run.Steps[k+1]; next.ID == rec.ID+1 && isBusy(next) {
				cadences = append(cadences, SpanUs(rec.TsStartNs, next.TsStartNs))
			}
		}
		if st := s.At(rec.ID); st.Known() {
			floors = append(floors, sp.FloorUs(&st.In))
		}
	}
	return medianOf(durations), medianOf(cadences), medianOf(floors)
}

func medianOf(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	return result.OrNull(stat.Median(v))
}

func quantiles(v []float64) result.Quantiles {
	if len(v) == 0 {
		return result.Quantiles{}
	}
	s := stat.Sorted(v)
	return result.Quantiles{P50: result.OrNull(stat.Quantile(s, 0.5)), P90: result.OrNull(stat.Quantile(s, 0.9))}
}

// auditVerdict says in one sentence which stamps are the step time.
func auditVerdict(a *result.TargetAudit) string {
	if a.CadenceUsP50 == nil {
		return "no two adjacent busy steps are recorded: the step time can only come from intervals of several steps"
	}
	if a.BelowFloor() {
		return fmt.Sprintf("the target lies below the physical floor: the cadence (%.0f us) is shorter than reading the weights once (%.0f us); "+
			"check the hardware figures of run.yaml", *a.CadenceUsP50, *a.PhysicalFloorUs)
	}
	share := 100 * *a.DurationUsP50 / *a.CadenceUsP50
	if *a.DurationUsP50 < 0.5**a.CadenceUsP50 {
		return fmt.Sprintf("cadence is the step time; step.duration_us is scheduler CPU time (%.2g %% of the cadence)", share)
	}
	return fmt.Sprintf("cadence is the step time; step.duration_us comes close to it (%.0f %%), which a GPU run should not show", share)
}

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
	s.cv2 = squaredVariation(lengths)
	s.hasCV2 = len(lengths) > 0
	return s, err
}

func firstSeenOf(q *trace.Snapshot) firstSeen {
	f := firstSeen{step: q.StepID, computed: q.ComputedTokens, hit10: prefixHit10(q.BlocksCached, q.BlocksAllocated), hit11: prefixHit11(q)}
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
