package predictor

// This file finds the recorded step that was the last one at a moment.

import (
	"cmp"
	"sort"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// staleNs is the greatest age of the last recorded step, if not every step is recorded, at which it
// still describes the engine.
const staleNs = 250_000_000

// recordedSteps looks up the recorded steps of a run by time.
type recordedSteps struct {
	list     []trace.Step // by id
	complete bool         // every step is recorded
	prefill  []int64      // prompt tokens of the first i steps of list
	anchors  []stepAnchor // recorded values of the step counter, by time
	lag      int64        // steps from schedule() to the tokens: 1 under asynchronous scheduling
}

// stepAnchor is a moment at which the schedule() call with that step number had started.
type stepAnchor struct{ ns, step int64 }

// newRecordedSteps returns the steps of a run. rate is the sampling rate of the steps.
func newRecordedSteps(run *trace.Run, rate float64, lag int64) *recordedSteps {
	s := &recordedSteps{
		list:     run.Steps,
		complete: rate == 1 && len(run.Steps) > 0,
		prefill:  make([]int64, len(run.Steps)+1),
		lag:      lag,
	}
	for i := range run.Steps {
		st := &run.Steps[i]
		s.complete = s.complete && (i == 0 || st.ID == run.Steps[i-1].ID+1)
		s.prefill[i+1] = s.prefill[i] + int64(st.PrefillTokens)
		s.anchors = append(s.anchors, stepAnchor{ns: st.TsStartNs, step: st.ID})
	}
	if s.complete {
		return s
	}
	// Events of requests have the step counter too, and fill the gaps between recorded steps.
	for i := range run.Events {
		if e := &run.Events[i]; e.TsNs.OK && e.Step.OK {
			s.anchors = append(s.anchors, stepAnchor{ns: e.TsNs.V, step: e.Step.V})
		}
	}
	stat.SortStable(s.anchors, func(a, b stepAnchor) int {
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.step, b.step))
	})
	for i := 1; i < len(s.anchors); i++ { // the stamps of one step may be out of order
		s.anchors[i].step = max(s.anchors[i].step, s.anchors[i-1].step)
	}
	return s
}

// lastBy returns the last recorded step that started at ns or before, and its index; nil and -1 if
// there is none.
func (s *recordedSteps) lastBy(ns int64) (*trace.Step, int) {
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].TsStartNs > ns }) - 1
	if i < 0 {
		return nil, -1
	}
	return &s.list[i], i
}

// isFresh reports whether the step, the last recorded one, still describes the engine at ns: if no
// later step can be missing, if it is not too old, or if it left the engine empty.
func (s *recordedSteps) isFresh(st *trace.Step, ns int64) bool {
	return s.complete || ns-st.TsStartNs <= staleNs || st.RunningDepth == 0 && st.WaitingDepth == 0
}

// counterAt returns the number of the step in progress at ns. If not every step is recorded it is
// extrapolated from the last anchor, at the pace of the anchors of the second before, so that
// nothing after ns is used. ok is false without an anchor.
func (s *recordedSteps) counterAt(ns int64) (step float64, ok bool) {
	i := sort.Search(len(s.anchors), func(i int) bool { return s.anchors[i].ns > ns }) - 1
	if i < 0 {
		return 0, false
	}
	at := s.anchors[i]
	if s.complete {
		return float64(at.step), true
	}
	const second = 1_000_000_000
	k := sort.Search(i, func(k int) bool { return s.anchors[k].ns >= at.ns-second })
	from := s.anchors[k]
	if from.step == at.step || from.ns == at.ns {
		return float64(at.step), true
	}
	pace := float64(at.step-from.step) / float64(at.ns-from.ns)
	return float64(at.step) + pace*float64(min(ns-at.ns, staleNs)), true
}
