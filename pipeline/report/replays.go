package report

import "github.com/blis-train/blis-train/result"

var metricNames = []string{"ttft", "itl", "e2e"}

// metric picks one of the gated metrics by name.
func metric(m *result.Metrics, name string) *result.Metric {
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

// phaseTitle names a run and its phase.
func phaseTitle(r result.ValidationRun) string {
	if r.Phase == "" {
		return r.ID
	}
	return r.ID + " · " + r.Phase
}

// runTitle also says when the comparison is in-sample.
func runTitle(r result.ValidationRun) string {
	s := phaseTitle(r)
	if r.Split.Kind == result.SplitInSample {
		s += " · in-sample"
	}
	return s
}

func splitWords(s result.Split) string {
	switch s.Kind {
	case result.SplitHoldout:
		return "hold-out, last " + threshold(s.Test)
	case result.SplitInSample:
		return "in-sample"
	case result.SplitTestRun:
		return "unseen run"
	}
	return s.Kind
}

func metricOf(m *result.Metrics, name string) *result.Metric {
	if name == "itl_gap" && m != nil {
		return m.ITLGap
	}
	return metric(m, name)
}
