package rows

import (
	"fmt"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// load makes a run of n requests, one a second, with the given TTFT and E2E in ms.
func load(n int, ttftMs, e2eMs func(i int) float64) *trace.Run {
	run := &trace.Run{ID: "r"}
	for i := range n {
		at := int64(i) * 1e9
		run.Requests = append(run.Requests, trace.Request{
			CoreID: trace.Some(fmt.Sprint("c", i)), APIID: trace.Some(fmt.Sprint("a", i)), Source: trace.SourceFork,
			ArrivedNs:    trace.Some(at),
			FirstTokenNs: trace.Some(at + int64(ttftMs(i)*1e6)),
			FinishedNs:   trace.Some(at + int64(e2eMs(i)*1e6)),
			DepartedNs:   trace.Some(at + int64(e2eMs(i)*1e6)),
			OutputTokens: trace.Some(int64(10)), Preemptions: trace.Some(int64(0)), Success: trace.Some(true),
		})
	}
	return run
}

func flat(ms float64) func(int) float64 { return func(int) float64 { return ms } }

// rising is an E2E that grows until departures no longer keep up with arrivals.
func rising(i int) float64 { return 900 + 400*float64(i) }

func TestSaturationEachCheckHits(t *testing.T) {
	const n = 60
	cases := []struct {
		check string
		run   func() *trace.Run
	}{
		{stat.CheckFailureShare, func() *trace.Run {
			r := load(n, flat(100), flat(900))
			for i := 0; i < 4; i++ { // 4 of 60 > 5 %
				r.Requests[i].Success = trace.Some(false)
				r.Requests[i].AbortReason = trace.Some("generation_error")
			}
			return r
		}},
		{stat.CheckQueueRising, func() *trace.Run {
			return load(n, flat(100), rising)
		}},
		{stat.CheckPreemptedShare, func() *trace.Run {
			r := load(n, flat(100), flat(900))
			for i := 0; i < 10; i++ { // 10 of 60 > 15 %
				r.Requests[i].Preemptions = trace.Some(int64(1))
			}
			return r
		}},
		{stat.CheckTTFTDrift, func() *trace.Run {
			return load(n, func(i int) float64 { return 100 * (1 + float64(i)/20) }, flat(900))
		}},
		{stat.CheckE2ETail, func() *trace.Run {
			return load(n, flat(100), func(i int) float64 { return 200 + 2800*float64(i/58) })
		}},
	}
	for _, c := range cases {
		s := VerdictsOf(c.run(), &deploy.Deployment{})
		if !slices.Equal(s.Run.Hits(), []string{c.check}) {
			t.Errorf("%s: got hits %v", c.check, s.Run.Hits())
		}
		if s.Run.Saturated {
			t.Errorf("%s: one hit must not saturate", c.check)
		}
	}
}

func TestSaturationTwoHitsSaturate(t *testing.T) {
	run := load(60, func(i int) float64 { return 100 * (1 + float64(i)/20) }, rising)
	s := VerdictsOf(run, &deploy.Deployment{})
	if !s.Run.Saturated || len(s.Spans()) != 1 {
		t.Errorf("got %v, spans %v", s.Run.Hits(), s.Spans())
	}
}

// TestSaturationFallingQueueIsNone: a queue that drains has a high R2 too.
func TestSaturationFallingQueueIsNone(t *testing.T) {
	run := load(60, flat(100), func(i int) float64 { return max(900, 30000-800*float64(i)) })
	for _, c := range VerdictsOf(run, &deploy.Deployment{}).Run.Checks {
		if c.Name == stat.CheckQueueRising && c.Hit {
			t.Errorf("got R2 %v", *c.Value)
		}
	}
}

// TestSaturationClientAbortsAreNoFailures: the client asked for the end.
func TestSaturationClientAbortsAreNoFailures(t *testing.T) {
	run := load(60, flat(100), flat(900))
	for i := 0; i < 30; i++ {
		run.Requests[i].Success = trace.Some(false)
		run.Requests[i].AbortReason = trace.Some("client_disconnect")
	}
	if hits := VerdictsOf(run, &deploy.Deployment{}).Run.Hits(); len(hits) != 0 {
		t.Errorf("got %v", hits)
	}
}

// TestSaturationClosedLoopDoesNotDecide: only open phases make a run saturated.
func TestSaturationClosedLoopDoesNotDecide(t *testing.T) {
	run := load(90, func(i int) float64 {
		if i < 30 {
			return 100 * (1 + float64(i)/5)
		}
		return 100
	}, flat(900))
	for i := range run.Requests[:30] {
		run.Requests[i].Preemptions = trace.Some(int64(2))
	}
	dep := &deploy.Deployment{Phases: []deploy.Phase{
		{Name: "closed", StartNs: 0, EndNs: 30e9, Load: deploy.LoadClosed},
		{Name: "open", StartNs: 30e9, EndNs: 90e9, Load: deploy.LoadOpen},
	}}
	s := VerdictsOf(run, dep)
	if !s.Phase("closed").Saturated || s.Run.Saturated || s.Phase("open").Saturated {
		t.Errorf("closed %v, open %v, run %v", s.Phase("closed").Hits(), s.Phase("open").Hits(), s.Run.Hits())
	}
}

// TestSaturationTooFewRequestsIsNull, never 0.
func TestSaturationTooFewRequestsIsNull(t *testing.T) {
	s := VerdictsOf(load(4, flat(1), flat(2)), &deploy.Deployment{})
	for _, c := range s.Run.Checks {
		if (c.Name == stat.CheckTTFTDrift || c.Name == stat.CheckE2ETail || c.Name == stat.CheckQueueRising) && c.Value != nil {
			t.Errorf("%s: got %v, want null", c.Name, *c.Value)
		}
	}
}
