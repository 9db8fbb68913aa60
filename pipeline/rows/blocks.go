package rows

// This file cuts the phases of a run into blocks of time for cross-fitting.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Blocks returns the blocks of time of every phase of a run, for fits that leave one of them out
// (spec#cross-fitting). A phase counts from its first to its last recorded moment, as in [Parts]. Of a
// slice of a run they are the run's blocks with the slice's longest request; [JoinBlocks] joins them.
// There are none where the steps are not on the clock of the requests.
func Blocks(run *trace.Run, dep *deploy.Deployment) []result.CrossBlocks {
	first, last, ok := recordedExtent(run)
	if slice := run.Slice; slice != nil && len(run.Steps) > 0 { // the ends of the whole run
		first = slice.FirstNs
		last = slice.LastNs
	}
	onOtherClock := run.Aggregate != nil && !run.Aggregate.OffsetNs.OK
	if !ok || onOtherClock {
		return nil
	}
	var out []result.CrossBlocks
	for _, p := range PhasesOf(run, dep) {
		start := max(p.StartNs, first)
		end := min(p.EndNs, last+1)
		if start < end {
			out = append(out, result.NewCrossBlocks(run.ID, p.Name, start, end, longestNs(run, start, end)))
		}
	}
	return out
}

// JoinBlocks returns the blocks of the slices before with those of the next slice of the run
// joined.
func JoinBlocks(before, next []result.CrossBlocks) []result.CrossBlocks {
	if before == nil {
		return next
	}
	for i := range before {
		k := slices.IndexFunc(next, func(b result.CrossBlocks) bool { return b.Phase == before[i].Phase })
		if k >= 0 {
			before[i].EmbargoNs = max(before[i].EmbargoNs, next[k].EmbargoNs)
		}
	}
	return before
}

// longestNs returns the longest time that a request which arrives in [startNs, endNs) was in flight.
func longestNs(run *trace.Run, startNs, endNs int64) int64 {
	longest := int64(0)
	add := func(from, to int64) {
		if from >= startNs && from < endNs {
			longest = max(longest, to-from)
		}
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		arrived, hasArrived := r.ArrivalNs()
		left, hasLeft := r.DepartureNs()
		if hasArrived && hasLeft {
			add(arrived, left)
		}
	}
	for i := range run.Observed {
		r := &run.Observed[i]
		if r.SendNs.OK && r.LastChunkNs.OK {
			add(r.SendNs.V, r.LastChunkNs.V)
		}
	}
	return longest
}
