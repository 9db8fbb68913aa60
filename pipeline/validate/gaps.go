package validate

// This file compares the gaps between the tokens of one request, recorded and simulated.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// maxGaps bounds the token gaps that are compared; more are evenly thinned.
const maxGaps = 200_000

// stepMark has what token gaps need of a step, recorded or simulated.
type stepMark struct {
	id, startNs int64
	decodes     int32 // requests, as the engine labels them
	isBusy      bool  // requests run
}

// newStepMark returns the mark of a step with so many running requests and decodes.
func newStepMark(id, startNs, running, decodes int64) stepMark {
	return stepMark{id: id, startNs: startNs, decodes: int32(max(0, min(decodes, math.MaxInt32))), isBusy: running != 0}
}

// recordedMarks returns the recorded steps of a run that start in a phase.
func recordedMarks(run *trace.Run, phase *deploy.Phase) []stepMark {
	within := func(s *trace.Step) bool { return s.TsStartNs >= phase.StartNs && s.TsStartNs < phase.EndNs }
	n := 0 // counted first: a long recording has millions
	for i := range run.Steps {
		if within(&run.Steps[i]) {
			n++
		}
	}
	out := make([]stepMark, 0, n)
	for i := range run.Steps {
		if s := &run.Steps[i]; within(s) {
			out = append(out, newStepMark(s.ID, s.TsStartNs, int64(s.RunningDepth), int64(s.NumDecodeReqs)))
		}
	}
	return out
}

// markLog observes a replay and keeps the marks of its steps on the recording's clock.
type markLog struct {
	originNs int64
	marks    []stepMark
}

// newMarkLog returns an empty log of a phase that begins at originNs. It has room for as many steps as were recorded,
// and a few more: about as many are simulated.
func newMarkLog(originNs int64, recorded int) *markLog {
	return &markLog{originNs: originNs, marks: make([]stepMark, 0, recorded+recorded/64)}
}

// Step adds the mark of the step.
func (l *markLog) Step(v *sim.StepView) {
	l.marks = append(l.marks, newStepMark(v.StepID, l.originNs+v.StartUs*1000, v.Running, v.LabelledDecodeReqs))
}

// Event does nothing.
func (l *markLog) Event(*sim.Event) {}

// phaseGaps are the gaps between the tokens of a phase, recorded and in the plain replay, of the steps from fromNs on.
// They are taken from the marks at once, because those of a long recording take much more memory.
type phaseGaps struct {
	fromNs              int64
	recorded, simulated []float64 // ms
}

// recordGaps lists the recorded gaps from each of some times on, without those before.
func (p *replayedPhase) recordGaps(marks []stepMark, fromNs ...int64) {
	p.recordedSteps = len(marks)
	for _, ns := range slices.Compact(fromNs) {
		p.gaps = append(p.gaps, &phaseGaps{fromNs: ns, recorded: tokenGaps(marks, p.engine.lag, ns)})
	}
}

// simulateGaps lists the gaps of the plain replay from the same times on.
func (p *replayedPhase) simulateGaps(marks []stepMark) {
	simulatedLag := 0 // a simulated asynchronous engine executes a step while it schedules the next
	if p.engine.Async {
		simulatedLag = 1
	}
	for _, g := range p.gaps {
		g.simulated = tokenGaps(marks, simulatedLag, g.fromNs)
	}
}

// compareGaps returns the comparison of the gaps of the steps from fromNs on.
func (p *replayedPhase) compareGaps(fromNs int64) *result.Metric {
	for _, g := range p.gaps {
		if g.fromNs == fromNs {
			return Compare(g.recorded, g.simulated, false)
		}
	}
	return nil
}

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
		if adjacent && s.startNs >= fromNs && s.isBusy {
			visit(float64(next.startNs-s.startNs)/1e6, int(executed.decodes))
		}
	}
}
