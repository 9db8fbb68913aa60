package validate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestUnknownPriorities: a replay without the priorities of its server is judged where the recorded requests, or those
// of the replay, keep their order.
func TestUnknownPriorities(t *testing.T) {
	some := trace.Some[int64]
	const n = 300
	phase := &deploy.Phase{StartNs: 0, EndNs: n}
	for name, c := range map[string]struct {
		policy     string
		journeys   bool
		overtaken  int // of the journeys
		waiting    int // in the replay
		priorities int // of client rows
		want       string
	}{
		"overtaken":             {policy: "priority", journeys: true, overtaken: 4, want: "no priorities of 300 requests, of which 4 of 300 were overtaken"},
		"three in their order":  {policy: "priority", journeys: true, overtaken: 3, waiting: n},
		"first come":            {policy: "fcfs", journeys: true, overtaken: n / 2, waiting: n},
		"clients who wait":      {policy: "priority", waiting: 4, want: "4 of 300 wait in the replay"},
		"clients who do not":    {policy: "priority", waiting: 3},
		"stated priorities":     {policy: "priority", waiting: n, priorities: n},
		"some are not":          {policy: "priority", waiting: n, priorities: n - 1, want: "no priorities of 1 requests"},
		"clients without waits": {policy: "", waiting: n},
	} {
		dep := testkit.Llama8B()
		dep.Engine.SchedulingPolicy = c.policy
		run := &trace.Run{}
		recorded := make([]Request, n)
		plain := &simulatedRun{requests: make([]simulatedRequest, n)}
		for i := range int64(n) {
			if c.journeys {
				q := trace.Request{ArrivedNs: some(i), QueuedStep: some(i), ScheduledStep: some(i + 1)}
				if i < int64(c.overtaken) {
					q.ScheduledStep.V = n // after most of the later ones
				}
				run.Requests = append(run.Requests, q)
			} else {
				recorded[i].Row = &trace.ObservedRequest{}
				if i < int64(c.priorities) {
					recorded[i].Row.Priority = some(0)
				}
			}
			plain.requests[i].waited = i < int64(c.waiting)
		}
		// One of another phase overtakes none.
		run.Requests = append(run.Requests, trace.Request{ArrivedNs: some(n), QueuedStep: some(n), ScheduledStep: some(0)})
		got := prioritiesOf(run, dep, recorded, phase).whyUndecided(plain)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := prioritiesOf(&trace.Run{}, func() *deploy.Deployment {
		d := testkit.Llama8B()
		d.Engine.SchedulingPolicy = "priority"
		return d
	}(), make([]Request, 3), phase).whyUndecided(nil); got != "" {
		t.Errorf("no replay: got %q", got)
	}
	p := &replayedPhase{}
	if r := p.simRequest(Request{Row: &trace.ObservedRequest{Priority: some(7)}}, nil); r.Priority != 7 {
		t.Errorf("a stated priority: got %d", r.Priority)
	}
}
