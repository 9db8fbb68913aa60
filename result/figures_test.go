package result

import "testing"

// TestCurvesOfManyRunsAreThoseThatCount: every comparison keeps its curves up to
// the limit; beyond it those that gate and then those that differ most.
func TestCurvesOfManyRunsAreThoseThatCount(t *testing.T) {
	runs := make([]ValidationRun, 3*maxFigures)
	for i := range runs {
		runs[i] = ValidationRun{Figures: &RunFigures{}, Saturated: i%6 != 0, Metrics: &Metrics{E2E: &Metric{KSD: float64(i)}}}
	}
	if drawn, _ := (&Validation{Runs: runs[:maxFigures]}).LimitFigures(); drawn != maxFigures || runs[maxFigures-1].Figures == nil {
		t.Errorf("at the limit: got %d drawn, want all of %d kept", drawn, maxFigures)
	}
	if drawn, _ := (&Validation{Runs: runs}).LimitFigures(); drawn != len(runs) {
		t.Errorf("got %d, want %d", drawn, len(runs))
	}
	kept := 0
	for i := range runs {
		if runs[i].Figures != nil {
			kept++
		} else if runs[i].Judged() {
			t.Errorf("run %d gates and lost its curves", i)
		}
	}
	if kept != maxFigures || runs[len(runs)-1].Figures == nil {
		t.Errorf("got %d kept, want %d and the largest KS among them", kept, maxFigures)
	}
}
