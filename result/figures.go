package result

// This file has the curves of validation.json.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
)

// RunFigures are the curves of one run x phase x split.
type RunFigures struct {
	ECDF []Curve `json:"ecdf"` // points [ms, share], at most 200 a curve
	QQ   []Curve `json:"qq"`   // points [real ms, simulated ms] at equal probabilities
}

// Variants of a Curve.
const (
	VariantReal  = "real"
	VariantPlain = "plain"
	VariantNoise = "noise"
	VariantDrift = "drift_corrected"
)

// Curve is one line of a figure.
type Curve struct {
	Metric  string       `json:"metric"`  // ttft | itl | e2e
	Variant string       `json:"variant"` // real | plain | noise | drift_corrected
	Points  [][2]float64 `json:"points"`
}

// maxFigures is the number of comparisons whose curves validation.json contains. A report draws
// only a few, and curves make up most of the document.
const maxFigures = 64

// ReplayRank returns the rank of a replay by importance: 0 for replays that are gated (a gate, an
// acceptance test, is evaluated on them), 1 for in-sample ones, 2 for others, 3 for closed loops
// and saturated runs.
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

// LargestKS returns the largest KS D of the plain replay over the compared metrics; -1 without any.
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

// ByReplayRank returns the order of two replays for drawing (negative: r is first): by ReplayRank,
// then the larger LargestKS first.
func (r *ValidationRun) ByReplayRank(o *ValidationRun) int {
	return cmp.Or(cmp.Compare(r.ReplayRank(), o.ReplayRank()), cmp.Compare(o.LargestKS(), r.LargestKS()))
}

// LimitFigures removes the curves of all but the first maxFigures comparisons in the order of
// ByReplayRank. It returns the number of comparisons that had curves and of those that still have
// them.
func (v *Validation) LimitFigures() (drawn, kept int) {
	var with []*ValidationRun
	for i := range v.Runs {
		if v.Runs[i].Figures != nil {
			with = append(with, &v.Runs[i])
		}
	}
	stat.SortStable(with, (*ValidationRun).ByReplayRank)
	kept = min(maxFigures, len(with))
	for _, r := range with[kept:] {
		r.Figures = nil
	}
	return len(with), kept
}
