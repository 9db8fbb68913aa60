package validate

// This file says whether a replay can be judged whose server served requests by priorities
// (scheduling_policy priority), which most recordings do not have.

import (
	"cmp"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// mostReordered is the share of requests up to which an unknown order of waiting requests is of no account.
const mostReordered = 0.01

// priorities are what a recording of a phase says about the order in which a server served requests by priorities that
// it does not have.
type priorities struct {
	unknown   int // requests without a priority
	journeys  int // that show the order in which they were queued and scheduled; 0: nothing does
	overtaken int // of the journeys, those that were scheduled after one that was queued later
}

// prioritiesOf returns what is known of the priorities of a phase's requests; nil if they do not matter, or all are
// known.
func prioritiesOf(run *trace.Run, dep *deploy.Deployment, recorded []Request, phase *deploy.Phase) *priorities {
	if policy := dep.Engine.SchedulingPolicy; policy == "" || policy == vllm.DefaultSchedulingPolicy {
		return nil
	}
	p := &priorities{}
	for i := range recorded {
		if row := recorded[i].Row; row == nil || !row.Priority.OK {
			p.unknown++
		}
	}
	if p.unknown == 0 {
		return nil
	}
	var shown []*trace.Request
	for i := range run.Requests {
		q := &run.Requests[i]
		arrivalNs, known := q.ArrivalNs()
		if known && arrivalNs >= phase.StartNs && arrivalNs < phase.EndNs && q.QueuedStep.OK && q.ScheduledStep.OK {
			shown = append(shown, q)
		}
	}
	stat.SortStable(shown, func(a, b *trace.Request) int { return cmp.Compare(a.QueuedStep.V, b.QueuedStep.V) })
	p.journeys = len(shown)
	// Walk from the last: the earliest schedule of those that were queued in a later step.
	earliest, earliestOfStep := int64(math.MaxInt64), int64(math.MaxInt64)
	for i := len(shown) - 1; i >= 0; i-- {
		q := shown[i]
		if i+1 < len(shown) && shown[i+1].QueuedStep.V != q.QueuedStep.V {
			earliest = min(earliest, earliestOfStep)
		}
		earliestOfStep = min(earliestOfStep, q.ScheduledStep.V)
		if q.ScheduledStep.V > earliest {
			p.overtaken++
		}
	}
	return p
}

// whyUndecided returns why a replay is not judged because requests waited in an order that is not known; "" if they
// did not, or were served in their own order. Without journeys the requests that wait in the replay tell.
func (p *priorities) whyUndecided(plain *simulatedRun) string {
	if p == nil {
		return ""
	}
	const why = "scheduling_policy is priority and the recording has no priorities of %d requests, of which %d of %d %s: record with " +
		"scheduling_policy fcfs, or at a load at which none waits"
	if p.journeys > 0 {
		if float64(p.overtaken) <= mostReordered*float64(p.journeys) {
			return ""
		}
		return fmt.Sprintf(why, p.unknown, p.overtaken, p.journeys, "were overtaken by later ones")
	}
	if plain == nil {
		return ""
	}
	waited := 0
	for i := range plain.requests {
		if plain.requests[i].waited {
			waited++
		}
	}
	if float64(waited) <= mostReordered*float64(len(plain.requests)) {
		return ""
	}
	return fmt.Sprintf(why, p.unknown, waited, len(plain.requests), "wait in the replay")
}
