package identity

// This file judges the streams of which a recording has nothing: lost as a whole, or never recorded.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// absent returns the reading of a stream without a record. It was lost if run.yaml states that a share of it was
// recorded, or if proof, a clause on another stream, shows that the server wrote it; otherwise nobody recorded it.
// expected is how many records there should be at least.
func (f *facts) absent(stream, key string, rate trace.Opt[float64], expected float64, proof string) reading {
	t := &f.dep.Tracing
	switch {
	case proof != "":
		expected = math.Max(1, expected)
		proof = ", although " + proof
	case !rate.OK || rate.V == 0:
		return notChecked("no %s", stream)
	case !f.isTraced():
		return notChecked("no %s, nor anything else that a server with journeys and step tracing writes", stream)
	case t.Published != "":
		return notChecked("no %s: run.yaml states that %s were published", stream, t.Published)
	case expected < 1:
		return notChecked("no %s, and too little else to expect one at a rate of %g", stream, rate.V)
	default:
		proof = fmt.Sprintf(", where run.yaml states %s %g (0 if they were not recorded)", key, rate.V)
	}
	lost := int(expected)
	return reading{checked: lost, violated: lost, largest: 1, broken: true,
		sentence: fmt.Sprintf("all %s were lost, at least %d%s", stream, lost, proof)}
}

// isTraced reports whether anything is there that only a server with journeys and step tracing writes. A recording of
// clients, logs or stock spans has none of it, whatever run.yaml states of the server.
func (f *facts) isTraced() bool {
	return f.hasForkSpans() || len(f.run.Steps) > 0 && f.run.Aggregate == nil || f.snapshot.orphanSteps > 0
}

// hasForkSpans reports whether there are spans of a server that writes journeys.
func (f *facts) hasForkSpans() bool {
	return slices.ContainsFunc(f.run.Requests, func(q trace.Request) bool { return q.Source != trace.SourceStock })
}

// sampledOf returns how many of n records a sample rate leaves at least, by so many standard deviations.
func sampledOf(n float64, rate trace.Opt[float64], deviations float64) float64 {
	share := rate.Or(1)
	return n*share - deviations*math.Sqrt(n*share*(1-share))
}

// stepsOfOthers returns how many steps the streams other than step summaries show at least.
func (f *facts) stepsOfOthers() float64 {
	ids := stepRange{}
	longest := int64(0) // output tokens, of which each step makes one without drafts
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		ids.add(q)
		longest = max(longest, q.OutputTokens.Or(0))
	}
	for i := range f.run.Observed {
		longest = max(longest, f.run.Observed[i].OutputTokens.Or(0))
	}
	if f.speculates() {
		longest = min(longest, 1)
	}
	return float64(max(ids.len(), longest, f.snapshot.orphanSteps))
}

// requestsOfOthers returns how many requests the streams other than journeys show at least.
func (f *facts) requestsOfOthers() float64 {
	finished, deepest := 0, 0
	if f.run.Aggregate == nil {
		for i := range f.run.Steps {
			finished += int(f.run.Steps[i].NumFinished)
			deepest = max(deepest, int(f.run.Steps[i].RunningDepth))
		}
	}
	return float64(max(finished, deepest, len(f.run.Requests), len(f.run.Observed)))
}

// stepRange is the ids of steps from the first to the last that is known; empty if isKnown is not set.
type stepRange struct {
	first, last int64
	isKnown     bool
}

// add extends the range by the steps in which a request ran.
func (s *stepRange) add(q *trace.Request) {
	if !q.ScheduledStep.OK || !q.FinishedStep.OK || q.FinishedStep.V < q.ScheduledStep.V {
		return
	}
	if !s.isKnown {
		*s = stepRange{first: q.ScheduledStep.V, last: q.FinishedStep.V, isKnown: true}
	}
	s.first = min(s.first, q.ScheduledStep.V)
	s.last = max(s.last, q.FinishedStep.V)
}

// len returns the number of ids.
func (s *stepRange) len() int64 {
	if !s.isKnown {
		return 0
	}
	return s.last - s.first + 1
}
