package result

import (
	"cmp"
	"slices"
)

// maxFigures is how many comparisons keep their curves in validation.json: a
// report draws a few, and the curves are most of the document.
const maxFigures = 64

// ReplayRank puts what gates first, then what is in-sample, then closed loops and
// saturated runs.
func (r *ValidationRun) ReplayRank() int {
	switch {
	case r.Load == "closed" || r.Saturated:
		return 3
	case r.Judged():
		return 0
	case r.Split.Kind == SplitInSample:
		return 1
	}
	return 2
}

// LargestKS is the largest plain KS D of the compared metrics; -1 without one.
func (r *ValidationRun) LargestKS() float64 {
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
func (r *ValidationRun) ByReplayRank(o *ValidationRun) int {
	return cmp.Or(cmp.Compare(r.ReplayRank(), o.ReplayRank()), cmp.Compare(o.LargestKS(), r.LargestKS()))
}

// LimitFigures takes the curves from all but the first maxFigures comparisons in
// the order of ByReplayRank and says how many had some and how many are left.
func (v *Validation) LimitFigures() (drawn, kept int) {
	var with []*ValidationRun
	for i := range v.Runs {
		if v.Runs[i].Figures != nil {
			with = append(with, &v.Runs[i])
		}
	}
	slices.SortStableFunc(with, (*ValidationRun).ByReplayRank)
	kept = min(maxFigures, len(with))
	for _, r := range with[kept:] {
		r.Figures = nil
	}
	return len(with), kept
}
