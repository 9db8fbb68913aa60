package validate

// This file compares the gaps between the tokens of one request, recorded and simulated.

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// maxGaps bounds the token gaps that are compared; more are evenly thinned.
const maxGaps = 200_000

// stepMark has what token gaps need of a step, recorded or simulated.
type stepMark struct {
	id, startNs     int64
	running, decode int64 // requests, as the engine labels them
}

// recordedMarks returns the recorded steps of a run.
func recordedMarks(run *trace.Run) []stepMark {
	out := make([]stepMark, len(run.Steps))
	for i := range run.Steps {
		s := &run.Steps[i]
		out[i] = stepMark{id: s.ID, startNs: s.TsStartNs, running: s.RunningDepth, decode: s.NumDecodeReqs}
	}
	return out
}

// marksWithin returns the marks of the steps that start in a phase.
func marksWithin(marks []stepMark, phase *deploy.Phase) []stepMark {
	var out []stepMark
	for _, m := range marks {
		if m.startNs >= phase.StartNs && m.startNs < phase.EndNs {
			out = append(out, m)
		}
	}
	return out
}

// markLog observes a replay and keeps the marks of its steps on the recording's clock.
type markLog struct {
	originNs int64
	marks    []stepMark
}

// Step adds the mark of the step.
func (l *markLog) Step(v *sim.StepView) {
	l.marks = append(l.marks, stepMark{
		id:      v.StepID,
		startNs: l.originNs + v.StartUs*1000,
		running: v.Running,
		decode:  v.LabelledDecodeReqs,
	})
}

// Event does nothing.
func (l *markLog) Event(*sim.Event) {}

// tokenGaps returns the gaps between tokens in ms, computed the same way from recorded and
// simulated steps: the time between the starts of adjacent busy steps i and i+1, once for every
// decode of step i-lag, whose execution that interval contains. Steps that start before fromNs are
// omitted.
func tokenGaps(steps []stepMark, lag int, fromNs int64) []float64 {
	total := 0
	eachGap(steps, lag, fromNs, func(_ float64, times int) { total += times })
	kept := min(total, maxGaps)
	gaps := make([]float64, 0, kept)
	visited := 0
	eachGap(steps, lag, fromNs, func(ms float64, times int) {
		visited += times
		// A gap is repeated as often as the thinned sample has an index below the gaps visited so far.
		for len(gaps) < kept && stat.ThinAt(len(gaps), total, maxGaps) < visited {
			gaps = append(gaps, ms)
		}
	})
	return gaps
}

// eachGap calls visit for the time between the starts of adjacent steps, ms, from fromNs on, with the
// number of decode requests that waited it as their ITL: those of the step lag earlier, which is the one
// that was executing.
func eachGap(steps []stepMark, lag int, fromNs int64, visit func(ms float64, times int)) {
	for i := lag; i+1 < len(steps); i++ {
		executed, s, next := steps[i-lag], steps[i], steps[i+1]
		adjacent := next.id == s.id+1 && executed.id == s.id-int64(lag)
		if adjacent && s.startNs >= fromNs && s.running != 0 {
			visit(float64(next.startNs-s.startNs)/1e6, int(max(0, executed.decode)))
		}
	}
}
