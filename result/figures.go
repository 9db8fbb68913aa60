package result

import (
	"cmp"
	"slices"
)

// MaxFigures is how many comparisons keep their curves in validation.json: a
// report draws a few, and the curves are most of the document.
const MaxFigures = 64

// ReplayRank puts what gates first: open loops with enough requests, then
// other open loops, the longer comparison first, then closed loops and
// saturated runs.
func ReplayRank(r *ValidationRun) int {
	switch {
	case r.Load == "closed" || r.Saturated:
		return 3
	case r.Sufficient:
		return 0
	case r.Split.Kind == SplitInSample:
		return 1
	}
	return 2
}

// LargestKS is the largest plain KS D of the compared metrics; -1 without one.
func LargestKS(r *ValidationRun) float64 {
	worst := -1.0
	if r.Metrics == nil {
		return worst
	}
	for _, m := range []*Metric{r.Metrics.TTFT, r.Metrics.ITL, r.Metrics.E2E} {
		if m != nil {
			worst = max(worst, m.KSD)
		}
	}
	return worst
}

// ByReplayRank orders comparisons for drawing: those that gate first, then by
// the largest plain KS.
func ByReplayRank(a, b *ValidationRun) int {
	return cmp.Or(cmp.Compare(ReplayRank(a), ReplayRank(b)), cmp.Compare(LargestKS(b), LargestKS(a)))
}

// LimitFigures takes the curves from all but the first MaxFigures comparisons in
// the order of ByReplayRank and says how many had some.
func LimitFigures(runs []ValidationRun) (drawn int) {
	var with []*ValidationRun
	for i := range runs {
		if runs[i].Figures != nil {
			with = append(with, &runs[i])
		}
	}
	slices.SortStableFunc(with, ByReplayRank)
	for _, r := range with[min(MaxFigures, len(with)):] {
		r.Figures = nil
	}
	return len(with)
}
