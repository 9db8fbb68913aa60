package rows

import "github.com/blis-train/blis-train/pipeline/features"

// emas is the preemption average after every recorded step (spec#preemption-average): over all
// of them in order, before any cleaning.
func (s *Steps) emas(gamma float64) []float64 {
	steps := s.Run.Steps
	out := make([]float64, len(steps))
	average := features.Average{Version: s.Version, Gamma: gamma}
	for i := range steps {
		out[i] = average.Step(steps[i].TsStartNs, float64(steps[i].NumPreempted), float64(steps[i].RunningDepth))
	}
	return out
}
