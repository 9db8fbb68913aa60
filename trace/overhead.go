package trace

import (
	"cmp"
	"math"
	"slices"
)

// OverheadBound is what a request's stamps say about its overhead (spec#overhead).
type OverheadBound struct {
	LoUs, HiUs float64 // us; HiUs = QUEUED - ARRIVED and may be negative (clocks)
	Exact      bool    // the overhead equals HiUs; then LoUs = HiUs
	OK         bool    // ARRIVED and QUEUED are known
}

// OverheadInterval bounds the overhead between ARRIVED and QUEUED, ns:
//
//	[max(0, prior - arrived), queued - arrived]   us
//
// prior is the start of the last recorded step before QUEUED; unknown gives 0.
// An exact interval is the single point queued - arrived.
func OverheadInterval(arrivedNs, queuedNs int64, priorNs Opt[int64], exact bool) (loUs, hiUs float64) {
	hiUs = float64(queuedNs-arrivedNs) / 1000
	switch {
	case exact:
		loUs = hiUs
	case priorNs.OK:
		loUs = math.Max(0, float64(priorNs.V-arrivedNs)/1000)
	}
	return loUs, hiUs
}

// OverheadStamps are the stamps of a request that bound its overhead.
type OverheadStamps struct {
	ArrivedNs, QueuedNs, FinishedNs Opt[int64]
}

// StepMark is what bounding overheads needs of a recorded step.
type StepMark struct {
	StartNs int64
	IsIdle  bool // nobody ran or waited
}

// Mark is the step as bounding overheads sees it.
func (s *Step) Mark() StepMark {
	return StepMark{s.TsStartNs, s.RunningDepth == 0 && s.WaitingDepth == 0}
}

// Stamps are those that bound the overheads of the run's requests.
func (r *Run) Stamps() []OverheadStamps {
	stamps := make([]OverheadStamps, len(r.Requests))
	for i := range r.Requests {
		q := &r.Requests[i]
		stamps[i] = OverheadStamps{q.ArrivedNs, q.QueuedNs, q.FinishedNs}
	}
	return stamps
}

// Overheads bounds the overhead of every request of the run, in the order of
// r.Requests. Steps must be in id order. See BoundOverheads.
func Overheads(r *Run, complete bool) []OverheadBound {
	marks := make([]StepMark, len(r.Steps))
	for i := range r.Steps {
		marks[i] = r.Steps[i].Mark()
	}
	return BoundOverheads(r.Stamps(), marks, complete)
}

// BoundOverheads bounds the overhead of every request of one engine run; steps
// in id order. complete says that journeys are sampled at 1.0 and no core span
// is lost; only then is any bound exact: no other request was queued and
// unfinished at QUEUED, and either nothing ran or waited in the last recorded
// step or none was recorded since the previous FINISHED. The last step is the
// one that starts before QUEUED: a step that starts at that very moment is the
// one that follows the pick-up.
func BoundOverheads(requests []OverheadStamps, steps []StepMark, complete bool) []OverheadBound {
	out := make([]OverheadBound, len(requests))
	alone := aloneAtQueued(requests)
	for i := range requests {
		q := &requests[i]
		if !q.ArrivedNs.OK || !q.QueuedNs.OK {
			continue
		}
		var prior Opt[int64]
		isIdle := true
		if k := lastStepBefore(steps, q.QueuedNs.V); k >= 0 {
			s := &steps[k]
			prior = Some(s.StartNs)
			isIdle = s.IsIdle || s.StartNs <= alone[i].lastFinishedNs
		}
		exact := complete && alone[i].isAlone && isIdle
		lo, hi := OverheadInterval(q.ArrivedNs.V, q.QueuedNs.V, prior, exact)
		out[i] = OverheadBound{LoUs: lo, HiUs: hi, Exact: exact, OK: true}
	}
	return out
}

// company says who else was in the engine when a request was queued.
type company struct {
	isAlone        bool
	lastFinishedNs int64 // latest FINISHED of those queued before, when alone; MinInt64 without any
}

func aloneAtQueued(requests []OverheadStamps) []company {
	out := make([]company, len(requests))
	order := make([]int, 0, len(requests))
	for i := range requests {
		if requests[i].QueuedNs.OK {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(requests[a].QueuedNs.V, requests[b].QueuedNs.V) })
	busyUntil := int64(math.MinInt64) // latest FINISHED of the requests queued so far
	for k, i := range order {
		at := requests[i].QueuedNs.V
		isTied := k+1 < len(order) && requests[order[k+1]].QueuedNs.V == at
		out[i] = company{isAlone: busyUntil <= at && !isTied, lastFinishedNs: busyUntil}
		busyUntil = max(busyUntil, requests[i].FinishedNs.Or(math.MaxInt64))
	}
	return out
}

// lastStepBefore is the index of the last step with ts_start < ns; -1 for none.
func lastStepBefore(steps []StepMark, ns int64) int {
	n, _ := slices.BinarySearchFunc(steps, ns, func(s StepMark, ns int64) int {
		if s.StartNs < ns {
			return -1
		}
		return 1
	})
	return n - 1
}
