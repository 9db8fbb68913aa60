package rows

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

const ms = int64(1e6) // ns

// request is queued, scheduled 0.2 ms later, finishes and departs 1 ms later;
// arrived 2 ms before it is queued.
func request(id string, queuedNs, finishedNs int64) trace.Request {
	return trace.Request{Source: trace.SourceFork, CoreID: trace.Some(id), APIID: trace.Some(id), APISpanID: trace.Some("span-" + id),
		PromptTokens: trace.Some(int64(100)), ArrivedNs: trace.Some(queuedNs - 2*ms), QueuedNs: trace.Some(queuedNs),
		ScheduledNs: trace.Some(queuedNs + ms/5), FinishedNs: trace.Some(finishedNs), DepartedNs: trace.Some(finishedNs + ms)}
}

// stepsEvery10ms are n recorded busy steps.
func stepsEvery10ms(n int) []trace.Step {
	var steps []trace.Step
	for i := range int64(n) {
		steps = append(steps, trace.Step{ID: i + 1, TsStartNs: (i + 1) * 10 * ms, RunningDepth: 2, WaitingDepth: i % 2, ScheduledTokens: 2,
			NumDecodeReqs: 2, DecodeTokens: 2, BlocksTotal: 100, BlocksFree: 40, KVUsage: 0.6})
	}
	return steps
}

func alphaOf(t *testing.T, run *trace.Run, d *deploy.Deployment, o Options) *Table {
	t.Helper()
	return tableOf(t, run, d, (*Steps).Alpha, o)
}

// TestJoin: the last step up to QUEUED, ties included; egress joins at
// FINISHED.
func TestJoin(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{
		request("tie", 200*ms, 405*ms), request("between", 215*ms, 430*ms)}}
	queue := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue})
	if !slices.Equal(queue.FirstStep, []int64{20, 21}) || !slices.Equal(queue.Regime, []Regime{Waiting, Idle}) {
		t.Errorf("queue joins %v, regimes %v", queue.FirstStep, queue.Regime)
	}
	egress := alphaOf(t, run, testDeployment(), Options{Target: coeff.Egress})
	if !slices.Equal(egress.FirstStep, []int64{40, 43}) {
		t.Errorf("egress joins %v", egress.FirstStep)
	}
	if queue.Y[0] != 200 || egress.Y[0] != 1000 {
		t.Errorf("queue %g us, egress %g us", queue.Y[0], egress.Y[0])
	}
	names := features.Names(features.AlphaFeatures(features.V11))
	if got := queue.Row(0)[slices.Index(names, "batch_saturation")]; got != 2.0/256 {
		t.Errorf("running/max_num_seqs: got %g", got)
	}
	if got := queue.Row(0)[slices.Index(names, "kv_pressure")]; got != 0.6 {
		t.Errorf("usage: got %g", got)
	}
}

// TestOverheadIntervals: bounded below by the step that was running, exact
// where the server idled.
func TestOverheadIntervals(t *testing.T) {
	idle := func(steps []trace.Step, k int) { steps[k].RunningDepth, steps[k].WaitingDepth = 0, 0 }
	for _, c := range []struct {
		name   string
		change func(run *trace.Run, d *deploy.Deployment)
		lo     float64 // of the last request
		exact  bool
	}{
		{"busy", func(*trace.Run, *deploy.Deployment) {}, 1000, false},
		{"arrived after the step", func(run *trace.Run, _ *deploy.Deployment) { run.Requests[1].ArrivedNs.V = 240*ms + 1 }, 0, false},
		{"idle", func(run *trace.Run, _ *deploy.Deployment) { idle(run.Steps, 23) }, 2000, true},
		{"no step since the last finish", func(run *trace.Run, _ *deploy.Deployment) { run.Requests[0].FinishedNs.V = 240*ms + 5 }, 2000, true},
		{"not alone", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests[0].FinishedNs.V = 300 * ms
		}, 1000, false},
		{"the other never finished", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests[0].FinishedNs.OK = false
		}, 1000, false},
		{"sampled journeys", func(run *trace.Run, d *deploy.Deployment) {
			idle(run.Steps, 23)
			d.Tracing.JourneySampleRate = trace.Some(0.5)
		}, 1000, false},
		{"a lost core span", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests = append([]trace.Request{{Source: trace.SourceFork, APIID: trace.Some("lost"), ArrivedNs: trace.Some(ms)}}, run.Requests...)
		}, 1000, false},
		{"queued at the start of its own step", func(run *trace.Run, _ *deploy.Deployment) {
			run.Requests[1].QueuedNs.V, run.Requests[1].ArrivedNs.V = 250*ms, 239*ms
		}, 1000, false},
	} {
		run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 150*ms, 200*ms), request("b", 241*ms, 300*ms)}}
		d := testDeployment()
		c.change(run, d)
		table := alphaOf(t, run, d, Options{})
		k := slices.Index(table.ID, "b")
		if k < 0 || table.Lo[k] != c.lo || table.Exact[k] != c.exact || table.Hi[k] != table.Y[k] {
			t.Errorf("%s: row %d lo %v hi %v exact %v, want %g %t", c.name, k, table.Lo, table.Hi, table.Exact, c.lo, c.exact)
		}
	}
}

// TestAlphaDrops: each reason on its own; read = kept + dropped.
func TestAlphaDrops(t *testing.T) {
	for _, c := range []struct {
		name   string
		target string
		change func(r *trace.Request)
		code   trace.Code
	}{
		{"before the first step", coeff.Queue, func(r *trace.Request) { r.QueuedNs.V, r.ArrivedNs.V = ms, 0 }, codeNoTarget},
		{"warm-up", coeff.Queue, func(r *trace.Request) { r.QueuedNs.V = 101 * ms }, codeWarmUp},
		{"no schedule", coeff.Admission, func(r *trace.Request) { r.ScheduledNs.OK = false }, codeNoTarget},
		{"no arrival", coeff.Overhead, func(r *trace.Request) { r.ArrivedNs.OK = false }, codeNoTarget},
		{"aborted", coeff.Egress, func(r *trace.Request) { r.DepartedNs.OK = false }, codeNoTarget},
		{"clocks", coeff.Overhead, func(r *trace.Request) { r.ArrivedNs.V = r.QueuedNs.V + 1 }, codeNoTarget},
		{"stop string", coeff.Egress, func(r *trace.Request) { r.DepartedNs.V = r.FinishedNs.V - 1 }, codeNoTarget},
		{"stock", coeff.Overhead, func(r *trace.Request) { r.Source = trace.SourceStock }, codeNoTarget},
		{"earlier sample of n = 2", coeff.Egress, func(r *trace.Request) {
			r.APISpanID.V, r.FinishedNs.V = "span-b", r.FinishedNs.V-ms
		}, codeNoTarget},
	} {
		run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 241*ms, 300*ms), request("b", 242*ms, 301*ms)}}
		c.change(&run.Requests[0])
		table := alphaOf(t, run, testDeployment(), Options{Target: c.target})
		if table.Read != 2 || table.Kept != 1 || table.ID[0] != "b" || table.DroppedFor(c.code) != 1 {
			t.Errorf("%s: kept %v, dropped %v, want %s", c.name, table.ID, table.Dropped, c.code)
		}
	}
}

// TestAlphaRowsAreInTimeOrder although a request without ARRIVED counts from
// QUEUED.
func TestAlphaRowsAreInTimeOrder(t *testing.T) {
	late := request("late", 400*ms, 500*ms)
	late.ArrivedNs.OK = false
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{late, request("early", 200*ms, 300*ms)}}
	table := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue})
	if !slices.Equal(table.ID, []string{"early", "late"}) || !slices.IsSorted(table.TimeNs) || table.FirstStep[0] != 20 {
		t.Errorf("%v %v %v", table.ID, table.TimeNs, table.FirstStep)
	}
}

// TestPrefixHits come from the first snapshot with scheduled tokens; without
// one they are 0 and said.
func TestPrefixHits(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 241*ms, 300*ms), request("b", 242*ms, 301*ms)},
		Snapshots: []trace.Snapshot{
			{StepID: 25, CoreID: "a", PromptTokens: 100, ScheduledTokens: 0, EffectivePromptLen: trace.Some(int64(100))},
			{StepID: 26, CoreID: "a", PromptTokens: 100, ScheduledTokens: 25, ComputedTokens: 75, EffectivePromptLen: trace.Some(int64(25))},
			{StepID: 27, CoreID: "a", PromptTokens: 100, ScheduledTokens: 1, ComputedTokens: 100, EffectivePromptLen: trace.Some(int64(99))}}}
	d := testDeployment()
	d.Engine.PrefixCaching = true
	slot := slices.Index(features.Names(features.AlphaFeatures(features.V11)), "prefix_cache_benefit")
	table := alphaOf(t, run, d, Options{Target: coeff.Queue})
	g := 2.0/256 + 0.6 - 2.0/256*0.6
	if got, want := table.Row(0)[slot], g*0.75*100/8192; math.Abs(got-want) > 1e-15 {
		t.Errorf("hit 0.75: got %g, want %g", got, want)
	}
	if table.Row(1)[slot] != 0 || len(table.Findings) != 1 || table.Findings[0].Code != codeNotRecorded {
		t.Errorf("no snapshot: %g, %v", table.Row(1)[slot], table.Findings)
	}
	d.Engine.PrefixCaching = false
	if table := alphaOf(t, run, d, Options{Target: coeff.Queue}); table.Row(0)[slot] != 0 || len(table.Findings) > 0 {
		t.Errorf("caching off: %g, %v", table.Row(0)[slot], table.Findings)
	}
}

// TestAlphaHoldOut: requests belong to the phase of their ARRIVED and count
// as hold-out by it.
func TestAlphaHoldOut(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60)}
	for i := range int64(40) {
		run.Requests = append(run.Requests, request(string(rune('A'+i)), (120+10*i)*ms, (140+10*i)*ms))
	}
	d := testDeployment()
	d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 0, EndNs: 150 * ms}, {Name: "open", StartNs: 200 * ms, EndNs: 400 * ms}}
	table := alphaOf(t, run, d, Options{Target: coeff.Admission, Saturated: []Span{{420 * ms, 450 * ms}}})
	if table.DroppedFor(codeWarmUp) != 4 || table.DroppedFor(Saturated) != 3 {
		t.Errorf("dropped %v", table.Dropped)
	}
	for i, ns := range table.TimeNs {
		in := ns >= 200*ms && ns < 400*ms
		if (table.Phase[i] == 1) != in || table.HoldOut[i] != (in && ns >= 360*ms) {
			t.Errorf("arrival %d: phase %d hold-out %t", ns, table.Phase[i], table.HoldOut[i])
		}
	}
}

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
