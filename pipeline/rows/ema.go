package rows

import "github.com/blis-train/blis-train/pipeline/features"

// emas is the preemption average after every recorded step (spec#preemption-average): over all
// of them in order, before any cleaning.
func (s *Steps) emas(gamma float64) []float64 {
	out, v := make([]float64, s.summaries.len()), s.view()
	average := features.Average{Version: s.Version, Gamma: gamma}
	for i := range out {
		step := v.recorded(i)
		out[i] = average.Step(step.TsStartNs, float64(step.NumPreempted), float64(step.RunningDepth))
	}
	return out
}
