package predictor

// This file divides a run into load stages, by which rows are held out.

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// stagesOf returns for each request the load stage of the run in which it arrived, counted from 0
// in time (lives are in order of arrival). Stages are the phases of run.yaml other than the
// warm-up. Without phases they are the stretches of workload.stage_requests arrivals. Without these
// the run is divided into windows of 60 s (a ninth of a shorter run), and windows whose arrival
// rates are in the same third are one stage; a run whose rates differ no more than by chance has
// one stage.
func stagesOf(lives []requestLife, d *deploy.Deployment) []trace.Opt[int64] {
	out := make([]trace.Opt[int64], len(lives))
	if named := openPhases(d); len(named) > 0 {
		for i := range lives {
			for k, p := range named {
				if at := lives[i].arrived; at.OK && at.V >= p.StartNs && at.V < p.EndNs {
					out[i] = trace.Some(int64(k))
				}
			}
		}
		return out
	}
	if counts := stageRequests(d); len(counts) > 1 {
		stage, left := 0, counts[0]
		for i := range lives {
			for left < 1 && stage+1 < len(counts) {
				stage++
				left = counts[stage]
			}
			out[i] = trace.Some(int64(stage))
			left--
		}
		return out
	}
	windowStages(lives, out)
	return out
}

// openPhases returns the phases of run.yaml other than the warm-up.
func openPhases(d *deploy.Deployment) []deploy.Phase {
	var open []deploy.Phase
	for _, p := range d.Phases {
		if p.Name != deploy.WarmupPhase {
			open = append(open, p)
		}
	}
	return open
}

// stageRequests returns workload.stage_requests of run.yaml; nil if it is not there.
func stageRequests(d *deploy.Deployment) []int64 {
	values, _ := d.Workload["stage_requests"].([]any)
	var out []int64
	for _, v := range values {
		switch n := v.(type) {
		case int:
			out = append(out, int64(n))
		case int64:
			out = append(out, n)
		case float64:
			out = append(out, int64(n))
		default:
			return nil
		}
	}
	return out
}

// windowStages sets the stages of requests by windows: it ranks windows by their number of arrivals
// and divides the ranks into thirds. If the counts vary no more than those of a constant rate there
// is one stage.
func windowStages(lives []requestLife, out []trace.Opt[int64]) {
	known := lives // those without an arrival come first
	for len(known) > 0 && !known[0].arrived.OK {
		known, out = known[1:], out[1:]
	}
	if len(known) == 0 {
		return
	}
	first := known[0].arrived.V
	span := known[len(known)-1].arrived.V - first
	width := min(windowNs, span/leastWindows+1)
	n := int(span/width) + 1
	window := func(i int) int { return int((known[i].arrived.V - first) / width) }
	counts := make([]float64, n)
	stage := make([]int64, n)
	for i := range known {
		counts[window(i)]++
	}
	mean := float64(len(known)) / float64(n)
	variance := 0.0
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / math.Max(1, float64(n-1))
	}
	if variance > leastDispersion*mean {
		for k, w := range stat.Order(counts) {
			stage[w] = int64(k * 3 / n)
		}
	}
	for i := range known {
		out[i] = trace.Some(stage[window(i)])
	}
}

const (
	windowNs        = 60_000_000_000 // window of arrivals, ns
	leastWindows    = 9              // three for each of the three stages
	leastDispersion = 2.0            // variance / mean of the windows' counts; that of a constant rate is about 1
)
