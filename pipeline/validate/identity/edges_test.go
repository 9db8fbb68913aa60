package identity

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestFewestOfSamplingRates: rates are compared from 50 steps, 50 running requests and 50 busy steps on, and only if they are
// stated below 1.
func TestFewestOfSamplingRates(t *testing.T) {
	of := func(steps, busy int, set func(tracing *deploy.Tracing)) reading {
		f := emptyFacts()
		f.run.Steps = stepsWithout(steps, 0)
		for k := range busy {
			f.run.Steps[k].RunningDepth = 1
		}
		set(&f.dep.Tracing)
		return samplingRates(f)
	}
	steps := func(rate float64) func(*deploy.Tracing) {
		return func(tracing *deploy.Tracing) { tracing.StepSampleRate = trace.Some(rate) }
	}
	journeys := func(tracing *deploy.Tracing) { tracing.JourneySampleRate = trace.Some(0.5) }
	snapshots := func(tracing *deploy.Tracing) { tracing.RichSubsampleRate = trace.Some(0.5) }
	const few, none = "fewer than 50 step summaries", "no sample rate below 1"
	wanted{text: few}.compare(t, "49 steps", of(49, 0, steps(0.1)))
	wanted{1, 1, 10, true, "step_tracing_sample_rate 0.1, and 100 % of 50 were recorded"}.compare(t, "50 steps", of(50, 0, steps(0.1)))
	wanted{1, 0, 0, false, ""}.compare(t, "a rate just below 1", of(50, 0, steps(0.99)))
	wanted{text: none}.compare(t, "a rate of 1", of(50, 0, steps(1)))
	wanted{text: none}.compare(t, "no rate", of(50, 50, func(*deploy.Tracing) {}))
	wanted{text: none}.compare(t, "49 running requests", of(60, 49, journeys))
	wanted{1, 0, 0, false, ""}.compare(t, "50 running requests", of(60, 50, journeys))
	wanted{text: none}.compare(t, "49 busy steps", of(60, 49, snapshots))
	wanted{1, 0, 0, false, ""}.compare(t, "50 busy steps", of(60, 50, snapshots))
}

// TestEventsNearTheEndsOfTheSteps: an event is compared if the step before it and the two after it were recorded.
func TestEventsNearTheEndsOfTheSteps(t *testing.T) {
	of := func(ids []int64, event int64) reading {
		f := emptyFacts()
		for i, id := range ids {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: id, TsStartNs: int64(i) * 10e6, TsEndNs: int64(i)*10e6 + 1e6})
		}
		f.run.Requests = []trace.Request{{FirstTokenStep: trace.Some(event), FirstTokenNs: at(1000 * (event - ids[0]) * 10)}}
		return stepOrder(f)
	}
	for _, c := range []struct {
		ids     []int64
		event   int64
		checked int
	}{
		{[]int64{5, 6, 7, 8}, 5, 0}, {[]int64{5, 6, 7, 8}, 6, 1}, {[]int64{5, 6, 7, 8}, 7, 0},
		{[]int64{5, 6, 7}, 6, 0},
		{[]int64{5, 6, 7, 8, 9}, 7, 1}, {[]int64{5, 6, 7, 8, 9}, 4, 0}, {[]int64{5, 6, 7, 8, 9}, 8, 0}, {[]int64{5, 6, 7, 8, 9}, 99, 0},
		{[]int64{5, 6, 7, 9, 10}, 6, 0}, // step 8 was lost
		{[]int64{5, 7, 8, 9, 10}, 7, 0}, // step 6 was lost, so that step 7 is not where it is looked for
	} {
		if r := of(c.ids, c.event); r.checked != c.checked || r.violated != 0 {
			t.Errorf("steps %v, an event of %d: got %+v, want %d checked", c.ids, c.event, r, c.checked)
		}
	}
	// Each of the three events of a request counts.
	f := emptyFacts()
	for i := range int64(60) {
		f.run.Steps = append(f.run.Steps, trace.Step{ID: i, TsStartNs: i * 10e6, TsEndNs: i*10e6 + 1e6})
	}
	f.run.Requests = []trace.Request{{ScheduledStep: trace.Some[int64](10), ScheduledNs: at(100_000), FirstTokenStep: trace.Some[int64](20), FirstTokenNs: at(200_000),
		FinishedStep: trace.Some[int64](30), FinishedNs: at(300_000)}}
	wanted{3, 0, 0, false, ""}.compare(t, "three events", stepOrder(f))
	f.run.Aggregate = &trace.Aggregate{}
	wanted{text: "no step summaries"}.compare(t, "passes in place of steps", stepOrder(f))
}

// TestPriorOfLevelsUnderLoad: the time of prompts is subtracted from that of tokens by the rate per microsecond at which they
// are computed.
func TestPriorOfLevelsUnderLoad(t *testing.T) {
	f := onH100()
	f.price = f.pricer()
	p := trace.LoadPoint{RateRPS: trace.Some(5.0), PromptTokens: 1000, OutputTokens: 101, TPOTMs: 50}
	f.run.Points = []trace.LoadPoint{p, p, p}
	decode := f.decodeTime(25, 1000+101.0/2) // 5 requests/s of 100 * 50 ms each
	busy := 5e-6 * f.prefillTime(1000).mostUs
	want := 50e3 * (1 - busy) / decode.mostUs
	if !(busy > 0.05 && busy < 0.8 && want > 1.5) {
		t.Fatalf("prompts take %g of the time and tokens %g times the library's: the case shows nothing", busy, want)
	}
	if r := priorOfLevels(f); !r.broken || r.checked != 3 || math.Abs(r.largest-want) > 1e-6*want {
		t.Errorf("got %+v, want tokens that take %g times as long", r, want)
	}
}

// TestLivesOfFacts: journeys are counted for runs with step summaries, also with a single one, and not for aggregated passes.
func TestLivesOfFacts(t *testing.T) {
	journey := trace.Request{CoreID: trace.Some("a"), QueuedStep: trace.Some[int64](3), QueuedNs: at(1), ScheduledStep: trace.Some[int64](4), ScheduledNs: at(2),
		FirstTokenStep: trace.Some[int64](4), FirstTokenNs: at(3), FinishedStep: trace.Some[int64](4), FinishedNs: at(3), FinishStatus: trace.Some("length"),
		PromptTokens: trace.Some[int64](8), OutputTokens: trace.Some[int64](1)}
	for name, c := range map[string]struct {
		run   trace.Run
		lives int
	}{
		"no step":           {trace.Run{Requests: []trace.Request{journey}}, 0},
		"one step":          {trace.Run{Requests: []trace.Request{journey}, Steps: []trace.Step{{ID: 4, ScheduledTokens: 8}}}, 1},
		"aggregated passes": {trace.Run{Requests: []trace.Request{journey}, Steps: []trace.Step{{ID: 4}}, Aggregate: &trace.Aggregate{}}, 0},
	} {
		f, err := newFacts(Evidence{Run: &c.run, Deployment: onH100().dep})
		if err != nil || len(f.lives) != c.lives || len(f.running) != c.lives {
			t.Errorf("%s: got %d lives, %v, want %d", name, len(f.lives), err, c.lives)
		}
	}
}

// TestFloorOfPassesWithOtherTokens: contexts are those of clients only for aggregated passes, so only there do clients' tokens
// that contradict the log leave the floor of steps unchecked.
func TestFloorOfPassesWithOtherTokens(t *testing.T) {
	for _, c := range []struct {
		aggregate *trace.Aggregate
		tokens    int64 // of the journey's prompt, which has 100 for the client
		want      wanted
	}{
		{nil, 100, wanted{checked: 10, largest: 1}},
		{nil, 300, wanted{checked: 10, largest: 1}},
		{&trace.Aggregate{}, 100, wanted{checked: 10, largest: 1}},
		{&trace.Aggregate{}, 300, wanted{text: "the contexts of the passes are those of clients, whose tokens contradict the log"}},
	} {
		f := emptyFacts()
		f.run.Aggregate = c.aggregate
		for i := range 11 {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: int64(i), TsStartNs: int64(i) * 100e3})
			if i < 10 {
				f.batches = append(f.batches, batchTime{at: i, us: 100, floorUs: 100})
			}
		}
		f.run.Requests = []trace.Request{{CoreID: trace.Some("a"), PromptTokens: trace.Some(c.tokens)}}
		f.run.Observed = []trace.ObservedRequest{{CoreID: trace.Some("a"), PromptTokens: trace.Some[int64](100)}}
		c.want.compare(t, "floor", stepFloor(f))
	}
}

// TestSpansOfPasses: a request has a span if the pass of its first token is known and no pass up to its last token is missing.
// Pass number n takes n us.
func TestSpansOfPasses(t *testing.T) {
	of := func(indices []int64, change func(o *trace.ObservedRequest)) []passSpan {
		f := emptyFacts()
		for _, n := range indices {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Index: n, ElapsedUs: float64(n)})
		}
		o := trace.ObservedRequest{Iteration: trace.Some[int64](11), OutputTokens: trace.Some[int64](3), TTFTUs: trace.Some(20.0), E2EUs: trace.Some(50.0)}
		change(&o)
		f.run.Observed = []trace.ObservedRequest{o}
		return f.passSpans()
	}
	all := []int64{10, 11, 12, 13, 14}
	tokens := func(n int64) func(o *trace.ObservedRequest) {
		return func(o *trace.ObservedRequest) { o.OutputTokens.V = n }
	}
	for name, c := range map[string]struct {
		indices []int64
		change  func(o *trace.ObservedRequest)
		want    []passSpan
	}{
		"three tokens":       {all, tokens(3), []passSpan{{ttftUs: 20, firstUs: 11, afterUs: 30, passUs: 12 + 13}}},
		"one token":          {all, tokens(1), []passSpan{{ttftUs: 20, firstUs: 11, afterUs: 30}}},
		"up to the last":     {all, tokens(4), []passSpan{{ttftUs: 20, firstUs: 11, afterUs: 30, passUs: 12 + 13 + 14}}},
		"beyond the last":    {all, tokens(5), nil},
		"no token":           {all, tokens(0), nil},
		"a pass is missing":  {[]int64{10, 11, 13, 14, 15}, tokens(3), nil},
		"the first one is":   {[]int64{10, 12, 13, 14, 15}, tokens(3), nil},
		"no number":          {all, func(o *trace.ObservedRequest) { o.Iteration = trace.Opt[int64]{V: 11} }, nil},
		"an engine of more":  {all, func(o *trace.ObservedRequest) { o.Engine = trace.Some[int64](0) }, nil},
		"several answers":    {all, func(o *trace.ObservedRequest) { o.N = trace.Some[int64](2) }, nil},
		"failed":             {all, func(o *trace.ObservedRequest) { o.Success = trace.Some(false) }, nil},
		"no first token":     {all, func(o *trace.ObservedRequest) { o.TTFTUs.OK = false }, nil},
		"no end":             {all, func(o *trace.ObservedRequest) { o.E2EUs.OK = false }, nil},
		"one of many passes": {[]int64{11}, tokens(1), []passSpan{{ttftUs: 20, firstUs: 11, afterUs: 30}}},
	} {
		if got := of(c.indices, c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
