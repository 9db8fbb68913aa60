package replay

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// maxGaps bounds the token gaps that are compared; more are evenly thinned.
const maxGaps = 200_000

// stepMark is what a token gap needs to know of a step, recorded or simulated.
type stepMark struct {
	id, startNs     int64
	running, decode int64 // requests, as the producer labels them
}

// tokenGaps are the gaps between tokens in ms, read the same way on both sides:
// the time between the starts of adjacent busy steps i and i+1, once for every
// decode of step i-lag, whose execution that interval holds. Steps that start
// before fromNs are left out.
func tokenGaps(steps []stepMark, lag int, fromNs int64) []float64 {
	var gaps []float64
	for i := lag; i+1 < len(steps); i++ {
		s, next, done := steps[i], steps[i+1], steps[i-lag]
		if s.startNs < fromNs || s.running == 0 || next.id != s.id+1 || done.id != s.id-int64(lag) {
			continue
		}
		ms := float64(next.startNs-s.startNs) / 1e6
		for range done.decode {
			gaps = append(gaps, ms)
		}
	}
	return stat.Thin(gaps, maxGaps)
}

// recordedMarks are the steps of [from, to).
func recordedMarks(run *trace.Run, p *deploy.Phase) []stepMark {
	var out []stepMark
	for i := range run.Steps {
		s := &run.Steps[i]
		if s.TsStartNs >= p.StartNs && s.TsStartNs < p.EndNs {
			out = append(out, stepMark{s.ID, s.TsStartNs, s.RunningDepth, s.NumDecodeReqs})
		}
	}
	return out
}

// gapLog keeps the marks of a replay on the recording's clock.
type gapLog struct {
	originNs int64
	marks    []stepMark
}

// Step notes the step.
func (l *gapLog) Step(v *sim.StepView) {
	l.marks = append(l.marks, stepMark{v.StepID, l.originNs + v.StartUs*1000, v.Running, v.LabelledDecodeReqs})
}

// Event is not needed.
func (l *gapLog) Event(*sim.Event) {}

// gapMetric compares the token gaps of steps from splitNs on; nil without any.
func (p *Phase) gapMetric(splitNs int64) *result.Metric {
	if p.gaps == nil {
		return nil
	}
	return compare(tokenGaps(p.recorded, p.lag, splitNs), tokenGaps(p.gaps.marks, p.lag, splitNs), false)
}
