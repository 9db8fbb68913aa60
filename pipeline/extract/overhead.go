package extract

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/trace"
)

// overheads bounds what happened between ARRIVED and the engine's input queue
// (01 T-5). The engine stamps QUEUED when it drains the queue between two
// steps, so the overhead lies between max(0, P - ARRIVED) and QUEUED - ARRIVED,
// P being the start of the last recorded step before QUEUED. It is exact where
// the engine was provably idle; complete says that every journey is recorded.
func overheads(rows []trace.Request, steps []stepBrief, complete bool) {
	var queued, finished []int64
	for i := range rows {
		if rows[i].QueuedNs.OK {
			queued = append(queued, rows[i].QueuedNs.V)
		}
		if rows[i].FinishedNs.OK {
			finished = append(finished, rows[i].FinishedNs.V)
		}
	}
	slices.Sort(queued)
	slices.Sort(finished)
	for i := range rows {
		r := &rows[i]
		if !r.QueuedNs.OK || !r.ArrivedNs.OK {
			continue
		}
		q := r.QueuedNs.V
		last := sort.Search(len(steps), func(j int) bool { return steps[j].startNs >= q }) - 1
		lo := 0.0
		if last >= 0 {
			lo = max(0, float64(steps[last].startNs-r.ArrivedNs.V)/1000)
		}
		hi := float64(q-r.ArrivedNs.V) / 1000
		exact := complete && alone(r, queued, finished) && idle(q, last, steps, finished)
		if exact {
			lo = hi
		}
		r.OverheadLoUs, r.OverheadHiUs, r.OverheadExact = trace.Some(lo), trace.Some(hi), trace.Some(exact)
	}
}

// alone reports that no other request was queued and unfinished at QUEUED.
func alone(r *trace.Request, queued, finished []int64) bool {
	q := r.QueuedNs.V
	before := sort.Search(len(queued), func(i int) bool { return queued[i] > q }) // includes r itself
	done := sort.Search(len(finished), func(i int) bool { return finished[i] > q })
	return before-1-done <= 0
}

// idle reports that the engine had nothing to do at q: the last recorded step
// left nobody running or waiting, or no step was recorded since the last
// request finished.
func idle(q int64, last int, steps []stepBrief, finished []int64) bool {
	if last < 0 || steps[last].running == 0 && steps[last].waiting == 0 {
		return true
	}
	done := sort.Search(len(finished), func(i int) bool { return finished[i] >= q })
	return done > 0 && steps[last].startNs < finished[done-1]
}

// sortBriefs orders steps by start and drops repeated ids.
func sortBriefs(steps []stepBrief) []stepBrief {
	slices.SortStableFunc(steps, func(a, b stepBrief) int { return cmp.Or(cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.id, b.id)) })
	return slices.CompactFunc(steps, func(a, b stepBrief) bool { return a.id == b.id && a.startNs == b.startNs })
}

// median and spread (90th - 10th percentile) of a sample; ok is false when it is empty.
func (o *offsetSample) stats() (median, spread int64, ok bool) {
	if len(o.vals) == 0 {
		return 0, 0, false
	}
	v := slices.Clone(o.vals)
	slices.Sort(v)
	at := func(p float64) int64 { return v[int(math.Round(p*float64(len(v)-1)))] }
	return at(0.5), at(0.9) - at(0.1), true
}
