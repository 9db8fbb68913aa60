package report

import "github.com/blis-train/blis-train/result"

var MetricNames = []string{"ttft", "itl", "e2e"}

// Metric picks one of the gated metrics by name.
func Metric(m *result.Metrics, name string) *result.Metric {
	switch {
	case m == nil:
		return nil
	case name == "ttft":
		return m.TTFT
	case name == "itl":
		return m.ITL
	case name == "e2e":
		return m.E2E
	}
	return nil
}

// PhaseTitle names a run and its phase.
func PhaseTitle(r result.ValidationRun) string {
	if r.Phase == "" {
		return r.ID
	}
	return r.ID + " · " + r.Phase
}

// RunTitle also says when the comparison is in-sample.
func RunTitle(r result.ValidationRun) string {
	s := PhaseTitle(r)
	if r.Split.Kind == result.SplitInSample {
		s += " · in-sample"
	}
	return s
}

func SplitWords(s result.Split) string {
	switch s.Kind {
	case result.SplitHoldout:
		return "hold-out, last " + Threshold(s.Test)
	case result.SplitInSample:
		return "in-sample"
	case result.SplitTestRun:
		return "unseen run"
	}
	return s.Kind
}

func MetricOf(m *result.Metrics, name string) *result.Metric {
	if name == "itl_gap" && m != nil {
		return m.ITLGap
	}
	return Metric(m, name)
}
