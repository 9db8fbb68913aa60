package validate

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/packed"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// maxGaps bounds the token gaps that are compared; more are evenly thinned.
const maxGaps = 200_000

// stepMark is what a token gap needs to know of a step, recorded or simulated.
type stepMark struct {
	id, startNs     int64
	running, decode int64 // requests, as the producer labels them
}

// marks are those of many steps, in order, in little memory.
type marks struct {
	firstID int64
	startNs []int64
	rest    *packed.Floats // id - firstID, running, decode
}

// marksOf are the recorded steps of a run, for the phases that are replayed.
func marksOf(run *trace.Run) *marks {
	m := &marks{startNs: make([]int64, 0, len(run.Steps))}
	for i := range run.Steps {
		s := &run.Steps[i]
		m.add(stepMark{s.ID, s.TsStartNs, s.RunningDepth, s.NumDecodeReqs})
	}
	return m
}

func (m *marks) add(s stepMark) {
	if m.rest == nil {
		m.firstID, m.rest = s.id, packed.NewFloats(3)
	}
	m.startNs = append(m.startNs, s.startNs)
	m.rest.Append([]float64{float64(s.id - m.firstID), float64(s.running), float64(s.decode)})
}

// each visits the marks in order.
func (m *marks) each(visit func(stepMark)) {
	if m.rest == nil {
		return
	}
	r := m.rest.Reader()
	for i, ns := range m.startNs {
		row := r.Row(i)
		visit(stepMark{m.firstID + int64(row[0]), ns, int64(row[1]), int64(row[2])})
	}
}

// within are the steps of [from, to).
func (m *marks) within(p *deploy.Phase) *marks {
	out := &marks{}
	m.each(func(s stepMark) {
		if s.startNs >= p.StartNs && s.startNs < p.EndNs {
			out.add(s)
		}
	})
	return out
}

// tokenGaps are the gaps between tokens in ms, read the same way on both sides:
// the time between the starts of adjacent busy steps i and i+1, once for every
// decode of step i-lag, whose execution that interval holds. Steps that start
// before fromNs are left out.
func tokenGaps(steps *marks, lag int, fromNs int64) []float64 {
	all := 0
	eachGap(steps, lag, fromNs, func(_ float64, times int) { all += times })
	kept := min(all, maxGaps)
	gaps := make([]float64, 0, kept)
	seen := 0 // of all, the first of which no thinned one is left
	eachGap(steps, lag, fromNs, func(ms float64, times int) {
		seen += times
		for len(gaps) < kept && stat.ThinAt(len(gaps), all, maxGaps) < seen {
			gaps = append(gaps, ms)
		}
	})
	return gaps
}

// eachGap visits the gaps between steps, each with the number of decodes it holds.
func eachGap(steps *marks, lag int, fromNs int64, visit func(ms float64, times int)) {
	last := make([]stepMark, 0, lag+2) // steps i-lag .. i+1
	steps.each(func(next stepMark) {
		last = append(last, next)
		if len(last) < lag+2 {
			return
		}
		done, s := last[0], last[lag]
		if s.startNs >= fromNs && s.running != 0 && next.id == s.id+1 && done.id == s.id-int64(lag) {
			visit(float64(next.startNs-s.startNs)/1e6, int(max(0, done.decode)))
		}
		last = append(last[:0], last[1:]...)
	})
}

// gapLog keeps the marks of a replay on the recording's clock.
type gapLog struct {
	originNs int64
	marks    marks
}

// Step notes the step.
func (l *gapLog) Step(v *sim.StepView) {
	l.marks.add(stepMark{v.StepID, l.originNs + v.StartUs*1000, v.Running, v.LabelledDecodeReqs})
}

// Event is not needed.
func (l *gapLog) Event(*sim.Event) {}

// gapMetric compares the token gaps of steps from splitNs on; nil without any.
func (p *Phase) gapMetric(splitNs int64) *result.Metric {
	if p.gaps == nil {
		return nil
	}
	return Compare(tokenGaps(p.recorded, p.lag, splitNs), tokenGaps(&p.gaps.marks, p.lag, splitNs), false)
}
