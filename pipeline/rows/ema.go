package rows

import (
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// emas is the preemption average after every recorded step (spec#preemption-average): over all
// of them in order, before any cleaning.
func emas(steps []trace.Step, gamma float64) []float64 {
	out := make([]float64, len(steps))
	var ema float64
	for i := range steps {
		ema = features.EMA(ema, gamma, float64(steps[i].NumPreempted), float64(steps[i].RunningDepth))
		out[i] = ema
	}
	return out
}
