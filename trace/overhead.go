package trace

// This file bounds what happens to a request before the engine's queue.

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// OverheadBound is the interval in which the overhead of a request lies (spec#overhead): the time
// between its arrival at the API process and its entry into the engine's input queue.
type OverheadBound struct {
	LoUs, HiUs float64 // us; HiUs = QUEUED - ARRIVED and may be negative (clocks)
	Exact      bool    // the overhead equals HiUs; then LoUs = HiUs
	OK         bool    // ARRIVED and QUEUED are known
}

// overheadInterval bounds the overhead of a request that arrived and was queued at two stamps:
//
//	[max(0, prior - arrived), queued - arrived]   us
//
// prior is the start of the last recorded step before QUEUED; if it is unknown the lower bound is 0.
// The engine picks requests up between steps, so the request was in the engine's queue no later than
// QUEUED and no earlier than the step before began. An exact interval is the single point
// queued - arrived.
func overheadInterval(arrivedNs, queuedNs int64, priorNs Opt[int64], exact bool) (loUs, hiUs float64) {
	hiUs = float64(queuedNs-arrivedNs) / 1000
	switch {
	case exact:
		loUs = hiUs
	case priorNs.OK:
		loUs = math.Max(0, float64(priorNs.V-arrivedNs)/1000)
	}
	return loUs, hiUs
}

// OverheadStamps has the stamps of a request from which its overhead is bounded, ns.
type OverheadStamps struct {
	ArrivedNs, QueuedNs, FinishedNs Opt[int64]
}

// Stamps returns the stamps of the request from which its overhead is bounded.
func (r *Request) Stamps() OverheadStamps {
	return OverheadStamps{ArrivedNs: r.ArrivedNs, QueuedNs: r.QueuedNs, FinishedNs: r.FinishedNs}
}

// BoundOverheads returns the bounds of the overhead of each of n requests of one engine run, in the
// order of stamps (spec#overhead). steps are in id order and iterated over once.
//
// complete is set if every request has a journey (sampling at 1.0) and no core span is lost. Only
// then a bound may be exact. It is exact if the engine was idle from ARRIVED to QUEUED, so that it
// picked the request up at once: every request that was queued before had finished at ARRIVED, none
// was queued at the same time, and either no request ran or waited in the last recorded step, or no
// step was recorded since the last FINISHED. A request that arrived during the last step of another
// is picked up right after that step, when the engine has become idle, and may have waited for it.
// The last step is one that starts before QUEUED; a step that starts at the same time follows the
// pick-up.
func BoundOverheads(n int, stamps func(i int) OverheadStamps, steps iter.Seq[StepMark], complete bool) []OverheadBound {
	order := make([]int32, 0, n) // the requests that were queued, by QUEUED
	for i := range n {
		if stamps(i).QueuedNs.OK {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(stamps(int(a)).QueuedNs.V, stamps(int(b)).QueuedNs.V)
	})
	var prior Opt[int64]              // start of the last step before the current request
	isIdle := true                    // no request ran or waited in that step
	busyUntil := int64(math.MinInt64) // latest FINISHED of the requests queued so far
	out := make([]OverheadBound, n)
	// bound sets the bound of the request at place k of order. It is called in that order, after prior
	// and isIdle were set from the step before the request's QUEUED.
	bound := func(k int) {
		i := int(order[k])
		q := stamps(i)
		isTied := k+1 < len(order) && stamps(int(order[k+1])).QueuedNs.V == q.QueuedNs.V
		if q.ArrivedNs.OK {
			isAlone := busyUntil <= min(q.ArrivedNs.V, q.QueuedNs.V) && !isTied
			exact := complete && isAlone && (isIdle || prior.V <= busyUntil)
			lo, hi := overheadInterval(q.ArrivedNs.V, q.QueuedNs.V, prior, exact)
			out[i] = OverheadBound{LoUs: lo, HiUs: hi, Exact: exact, OK: true}
		}
		busyUntil = max(busyUntil, q.FinishedNs.Or(math.MaxInt64))
	}
	k := 0 // of order: the next request
	for s := range steps {
		// Requests that were queued up to the start of this step follow the step before it.
		for ; k < len(order) && stamps(int(order[k])).QueuedNs.V <= s.StartNs; k++ {
			bound(k)
		}
		prior = Some(s.StartNs)
		isIdle = s.IsIdle
	}
	for ; k < len(order); k++ {
		bound(k)
	}
	return out
}

// StepMark is the part of a recorded step that BoundOverheads needs.
type StepMark struct {
	StartNs int64
	IsIdle  bool // no request ran or waited
}

// Mark returns the start of the step and whether the engine was idle in it.
func (s *Step) Mark() StepMark {
	return StepMark{StartNs: s.TsStartNs, IsIdle: s.RunningDepth == 0 && s.WaitingDepth == 0}
}
