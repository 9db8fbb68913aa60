package workload

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func some(v int64) trace.Opt[int64] { return trace.Some(v) }

// TestLimitsOfAGenerator: each value just inside and just outside its limits.
func TestLimitsOfAGenerator(t *testing.T) {
	for _, c := range []struct {
		length LengthSpec
		isGood bool
	}{
		{LengthSpec{Kind: "constant", Value: 1}, true}, {LengthSpec{Kind: "constant"}, false},
		{LengthSpec{Kind: "uniform", Min: 1, Max: 1}, true}, {LengthSpec{Kind: "uniform", Min: 2, Max: 1}, false}, {LengthSpec{Kind: "uniform", Max: 1}, false},
		{LengthSpec{Kind: "lognormal", Mean: 1}, true}, {LengthSpec{Kind: "lognormal", Mean: 0.99}, false},
		{LengthSpec{Kind: "lognormal", Mean: 1, Sigma: -0.1}, false}, {LengthSpec{Kind: "lognormal", Mean: 1, Min: -1}, false},
		{LengthSpec{Kind: "lognormal", Mean: 1, Max: 1}, true}, {LengthSpec{Kind: "lognormal", Mean: 1, Min: 5, Max: 5}, true},
		{LengthSpec{Kind: "lognormal", Mean: 1, Min: 5, Max: 4}, false}, {LengthSpec{Kind: "lognormal", Mean: math.NaN()}, false},
		{LengthSpec{Kind: "empirical", Values: []int64{1}}, true}, {LengthSpec{Kind: "empirical", Values: []int64{1, 0}}, false},
		{LengthSpec{Kind: "empirical"}, false}, {LengthSpec{Kind: "other"}, false},
	} {
		if err := c.length.checkLength("output"); (err == nil) != c.isGood {
			t.Errorf("%+v: got %v", c.length, err)
		}
	}
	for ms, want := range map[float64]bool{0: true, 1e-3: true, 0.9e-3: false, 1e9: true, 1.1e9: false, -1: false} {
		if isTarget(ms) != want {
			t.Errorf("a target of %g ms: got %v", ms, !want)
		}
	}
}

func TestClassesOfRequests(t *testing.T) {
	g := &Generator{Classes: []classSpec{{Name: "a", Share: 1, TTFTMs: 2.5, E2EMs: 70, Priority: 4}, {Name: "b", Share: 3, Priority: -1}}}
	rng := rand.New(rand.NewPCG(1, 1))
	counts := map[string]int{}
	for range 4000 {
		q := &sim.Request{}
		g.classify(rng, q)
		counts[q.SLOClass]++
		want := sim.Request{SLOClass: "b", Priority: -1}
		if q.SLOClass == "a" {
			want = sim.Request{SLOClass: "a", Priority: 4, SLOTTFTUs: 2500, SLOE2EUs: 70_000}
		}
		if !reflect.DeepEqual(*q, want) {
			t.Fatalf("got %+v, want %+v", *q, want)
		}
	}
	if n := counts["a"]; n < 900 || n > 1100 { // a quarter, within four standard deviations
		t.Errorf("got %d of 4000 of class a, want about 1000", n)
	}
	q := &sim.Request{}
	if (&Generator{}).classify(rng, q); !reflect.DeepEqual(*q, sim.Request{}) {
		t.Errorf("without classes: got %+v", *q)
	}
}

// TestWeibullShapes: shape 1 is the exponential distribution, whose coefficient of variation is 1; shape 2 has
// sqrt(4/pi - 1).
func TestWeibullShapes(t *testing.T) {
	for cv, want := range map[float64]float64{1: 1, math.Sqrt(4/math.Pi - 1): 2, math.Sqrt(5): 0.5} {
		if got := weibullShape(cv); math.Abs(got-want) > 1e-9 {
			t.Errorf("coefficient %g: got shape %g, want %g", cv, got, want)
		}
	}
	a := &specArrival{Process: "constant"}
	if got := a.gaps(4)(nil); got != 0.25 {
		t.Errorf("four a unit: got gaps of %g", got)
	}
	// Means of 100,000 gaps, within five standard errors of 1/4.
	cv := 0.5
	for _, a := range []*specArrival{{Process: "poisson"}, {Process: "gamma", CV: &cv}, {Process: "weibull", CV: &cv}} {
		draw := a.gaps(4)
		rng := rand.New(rand.NewPCG(1, 2))
		sum := 0.0
		for range 20_000 {
			sum += draw(rng)
		}
		if mean := sum / 20_000; math.Abs(mean-0.25) > 5*0.25/math.Sqrt(20_000) {
			t.Errorf("%s: got a mean gap of %g, want 0.25", a.Process, mean)
		}
	}
}

// TestPickUpsByStep: a run that lacks steps has no times; requests are picked up at their recorded step.
func TestPickUpsByStep(t *testing.T) {
	run := &trace.Run{
		ID:    "r",
		Steps: []trace.Step{{ID: 5, TsStartNs: 9e6}, {ID: 7, TsStartNs: 11e6}},
		Requests: []trace.Request{
			{Source: trace.SourceFork, CoreID: trace.Some("a"), PromptTokens: some(10), OutputTokens: some(2), QueuedNs: some(8e6), QueuedStep: some(4)},
			{Source: trace.SourceFork, CoreID: trace.Some("b"), PromptTokens: some(10), OutputTokens: some(2), QueuedNs: some(10e6), QueuedStep: some(6),
				FinishedNs: some(12e6), FinishStatus: trace.Some(trace.FinishAborted)},
		},
	}
	f, err := ForceLater(run, &deploy.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	if f.BaseNs != 8e6 || f.Timeline.FallbackUs != 1000 || f.Timeline.First != 1 || f.Timeline.Start != nil {
		t.Errorf("got %+v with base %d, timeline %+v", f, f.BaseNs, f.Timeline)
	}
	for i, step := range []int64{4, 6} {
		if q := &f.Requests[i]; q.ArrivalUs != 0 || q.PickUpStep != some(step) || q.AbortAtUs.OK {
			t.Errorf("request %d: got %+v, want step %d", i, q, step)
		}
	}
	if _, err := ForceLater(&trace.Run{ID: "r"}, &deploy.Deployment{}); err == nil {
		t.Error("a run without steps is no error")
	}
	for ids, want := range map[[2]int64]bool{{1, 2}: false, {1, 3}: true, {2, 3}: true} {
		if got := lacksSteps(&trace.Run{Steps: []trace.Step{{ID: ids[0]}, {ID: ids[1]}}}); got != want {
			t.Errorf("steps %v: got %v", ids, got)
		}
	}
}

// TestEndsOfSteps: steps start at 0, 10, 20 and 30 us; the second ends with a token at 15, and nothing runs in the third.
func TestEndsOfSteps(t *testing.T) {
	run := &trace.Run{
		Steps: []trace.Step{{ID: 1, TsStartNs: 1000, ScheduledTokens: 1}, {ID: 2, TsStartNs: 11_000, ScheduledTokens: 1}, {ID: 3, TsStartNs: 21_000},
			{ID: 4, TsStartNs: 31_000, ScheduledTokens: 1}},
		Requests: []trace.Request{
			{FirstTokenStep: some(2), FirstTokenNs: some(16_000), FinishedStep: some(4), FinishedNs: some(99_000), FinishStatus: trace.Some(trace.FinishAborted)},
			{FinishedStep: some(2), FinishedNs: some(14_000)}, {FinishedStep: some(9), FinishedNs: some(50_000)},
			{FinishedStep: some(4), FinishedNs: some(98_000), FinishStatus: trace.Some(trace.FinishError)}, {FirstTokenStep: some(0), FirstTokenNs: some(50_000)},
		},
	}
	w := &Workload{BaseNs: 1000}
	r := w.timeline(run)
	if want := []int64{0, 10, 20, 30}; !slices.Equal(r.Start, want) {
		t.Errorf("got starts %v, want %v", r.Start, want)
	}
	if want := []int64{sim.Unknown, 15, 20, sim.Unknown}; !slices.Equal(r.End, want) {
		t.Errorf("got ends %v, want %v", r.End, want)
	}
	for async, first := range map[bool]int64{false: 9, true: 19} { // before the next step, or the one after it
		f := &Forced{Workload: w, Timeline: w.timeline(run)}
		f.Under(async)
		if want := []int64{first, 15, 20, sim.Unknown}; !slices.Equal(f.Timeline.End, want) || f.Async != async {
			t.Errorf("asynchronous %v: got ends %v, want %v", async, f.Timeline.End, want)
		}
	}
}

// TestCachedTokensByTotals: a prompt of 100 in a step that computed 40 had 60 cached tokens, if no other prompt was in
// the step.
func TestCachedTokensByTotals(t *testing.T) {
	request := func(id string, scheduled, first int64) trace.Request {
		return trace.Request{CoreID: trace.Some(id), PromptTokens: some(100), OutputTokens: some(5), ScheduledStep: some(scheduled), FirstTokenStep: some(first)}
	}
	for _, c := range []struct {
		name    string
		async   bool
		prefill int64 // tokens of step 2
		change  func(run *trace.Run)
		want    map[string]int64
	}{
		{"alone", false, 40, nil, map[string]int64{"b": 60}},
		{"nothing cached", false, 100, nil, map[string]int64{"b": 0}},
		{"more than the prompt", false, 101, nil, map[string]int64{}},
		{"one token", false, 1, nil, map[string]int64{"b": 99}},
		{"none computed", false, 0, nil, map[string]int64{}},
		{"a first decode counts as prefill", true, 41, nil, map[string]int64{"b": 60}},
		{"not of a single token", true, 40, func(run *trace.Run) { run.Requests[0].OutputTokens = some(1) }, map[string]int64{"b": 60}},
		{"preempted", false, 40, func(run *trace.Run) { run.Requests[1].Preemptions = some(1) }, map[string]int64{}},
		{"in two steps", false, 40, func(run *trace.Run) { run.Requests[1].FirstTokenStep = some(3) }, map[string]int64{}},
		{"known already", false, 40, func(run *trace.Run) { run.Requests[1].CachedTokens = some(3) }, map[string]int64{}},
		{"another prompt", false, 40, func(run *trace.Run) { run.Requests = append(run.Requests, request("c", 2, 2)) }, map[string]int64{}},
		{"without a prompt length", false, 40, func(run *trace.Run) { run.Requests[1].PromptTokens.OK = false }, map[string]int64{}},
	} {
		run := &trace.Run{
			Requests: []trace.Request{request("a", 1, 1), request("b", 2, 2)},
			Steps:    []trace.Step{{ID: 2, PrefillTokens: int32(c.prefill)}},
		}
		if c.change != nil {
			c.change(run)
		}
		if got := inferCached(run, c.async); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPrefixesOfARun(t *testing.T) {
	d := &deploy.Deployment{}
	d.Engine.PrefixCaching = true
	run := &trace.Run{Requests: []trace.Request{{CoreID: trace.Some("a")}}}
	if p := newPrefixes(run, d); len(p.notes) != 1 || p.notes[0].Code != CodePrefixUnknown {
		t.Errorf("nothing known: got %v", p.notes)
	}
	run.Requests[0].CachedTokens = some(30)
	run.Observed = []trace.ObservedRequest{
		{CoreID: trace.Some("b"), PrefixGroup: trace.Some("x"), PrefixTokens: some(64)}, {CoreID: trace.Some("c"), PrefixGroup: trace.Some("x")},
	}
	p := newPrefixes(run, d)
	p.inferred = map[string]int64{"d": 90}
	if len(p.notes) != 0 || len(p.groups) != 1 {
		t.Errorf("got %v and groups %v", p.notes, p.groups)
	}
	for _, c := range []struct {
		r    trace.Request
		want sim.Request
	}{
		{run.Requests[0], sim.Request{PromptTokens: 50, CachedTokens: some(30)}},
		{trace.Request{CachedTokens: some(99)}, sim.Request{PromptTokens: 50, CachedTokens: some(50)}},
		{trace.Request{CoreID: trace.Some("d")}, sim.Request{PromptTokens: 50, CachedTokens: some(50)}},
		{trace.Request{CoreID: trace.Some("b")}, sim.Request{PromptTokens: 50, Group: 1, GroupTokens: 64}},
		{trace.Request{CoreID: trace.Some("c")}, sim.Request{PromptTokens: 50}},
	} {
		q := sim.Request{PromptTokens: 50}
		if p.apply(&q, &c.r); !reflect.DeepEqual(q, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.r.CoreID.V, q, c.want)
		}
	}
	if a, b, again := p.groupID("x"), p.groupID("y"), p.groupID("x"); a != 1 || b != 2 || again != 1 {
		t.Errorf("got numbers %d, %d, %d, want 1, 2, 1", a, b, again)
	}
	d.Engine.PrefixCaching = false
	if p := newPrefixes(&trace.Run{}, d); p.on || len(p.notes) != 0 {
		t.Errorf("caching is off: got %+v", p)
	}
}

// TestLoadsOfARun: what KV events say a request loaded from CPU memory before its first step is a part of its cached tokens,
// or all that is known of them. Loads after a preemption, stores and requests that the run does not have are no part.
func TestLoadsOfARun(t *testing.T) {
	d := &deploy.Deployment{}
	d.Engine.PrefixCaching, d.Engine.CPUOffloading, d.Engine.BlockSize = true, true, 16
	request := func(id string, cached trace.Opt[int64]) trace.Request {
		return trace.Request{CoreID: trace.Some(id), ScheduledStep: some(7), CachedTokens: cached}
	}
	transfer := func(id, from, to string, step, blocks int64) trace.KVEvent {
		return trace.KVEvent{Kind: "TransferInitiated", RequestID: trace.Some(id), SrcMedium: trace.Some(from), DstMedium: trace.Some(to),
			Step: some(step), BlockCount: some(blocks)}
	}
	run := &trace.Run{Requests: []trace.Request{request("a", some(64)), request("b", trace.Opt[int64]{}), request("c", some(64)), request("d", some(20))}}
	if RecordsLoads(run) {
		t.Error("no event: got recorded loads")
	}
	run.KVEvents = []trace.KVEvent{{Kind: "BlockStored", SrcMedium: trace.Some("GPU")}}
	if RecordsLoads(run) {
		t.Error("events of the GPU alone: got recorded loads")
	}
	run.KVEvents = append(run.KVEvents, transfer("a", "CPU", "GPU", 5, 3), transfer("a", "CPU", "GPU", 9, 1), transfer("b", "CPU", "GPU", 7, 2),
		transfer("c", "GPU", "CPU", 5, 3), transfer("d", "CPU", "GPU", 6, 2), transfer("other", "CPU", "GPU", 5, 3))
	if !RecordsLoads(run) {
		t.Error("transfers: got no recorded loads")
	}
	p := newPrefixes(run, d)
	for i, want := range [][2]int64{{64, 48}, {32, 32}, {64, 0}, {20, 20}} { // cached and loaded tokens
		q := sim.Request{PromptTokens: 100}
		if p.apply(&q, &run.Requests[i]); q.CachedTokens != some(want[0]) || q.LoadedTokens != want[1] {
			t.Errorf("request %d: got %d cached and %d loaded tokens, want %d", i, q.CachedTokens.V, q.LoadedTokens, want)
		}
	}
}

func TestRecordedRequests(t *testing.T) {
	fork := trace.Request{Source: trace.SourceFork, CoreID: trace.Some("a"), PromptTokens: some(10), OutputTokens: some(4), MaxTokens: some(9)}
	with := func(change func(r *trace.Request)) trace.Request {
		r := fork
		change(&r)
		return r
	}
	for _, c := range []struct {
		name        string
		r           trace.Request
		ok          bool
		output, max int64
	}{
		{"whole", fork, true, 4, 9},
		{"no prompt", with(func(r *trace.Request) { r.PromptTokens.OK = false }), false, 0, 0},
		{"an empty prompt", with(func(r *trace.Request) { r.PromptTokens.V = 0 }), false, 0, 0},
		{"a span without its core", with(func(r *trace.Request) { r.CoreID.OK = false }), false, 0, 0},
		{"a stock span", with(func(r *trace.Request) { r.CoreID.OK, r.Source = false, trace.SourceStock }), true, 4, 9},
		{"no output", with(func(r *trace.Request) { r.OutputTokens.OK = false }), true, 1, 9},
		{"a cap below the output", with(func(r *trace.Request) { r.MaxTokens.V = 2 }), true, 4, 4},
		{"stopped at its cap", with(func(r *trace.Request) { r.MaxTokens.V, r.FinishStatus = 4, trace.Some(trace.FinishStopped) }), true, 4, 5},
		{"stopped before it", with(func(r *trace.Request) { r.FinishStatus = trace.Some(trace.FinishStopped) }), true, 4, 9},
	} {
		q, ok := requestOf(&c.r)
		if ok != c.ok || q.OutputTokens != c.output || q.MaxTokens != c.max {
			t.Errorf("%s: got %+v %v, want output %d, cap %d", c.name, q, ok, c.output, c.max)
		}
	}
	w := &Workload{BaseNs: 1_000_000}
	for _, c := range []struct {
		name string
		r    trace.Request
		want sim.Request
	}{
		{"finished", with(func(r *trace.Request) { r.FinishedNs = some(9_000_000) }), sim.Request{ArrivalUs: 100, OutputTokens: 4, MaxTokens: 4}},
		{"aborted", with(func(r *trace.Request) {
			r.FinishedNs, r.FinishStatus = some(3_000_000), trace.Some(trace.FinishAborted)
		}),
			sim.Request{ArrivalUs: 100, OutputTokens: 9, MaxTokens: 9, AbortAtUs: some(2000), AbortKind: sim.OutcomeAborted}},
		{"by the client", with(func(r *trace.Request) { r.AbortedNs, r.MaxTokens.OK = some(3_000_000), false }),
			sim.Request{ArrivalUs: 100, OutputTokens: 5, MaxTokens: 5, AbortAtUs: some(2000), AbortKind: sim.OutcomeAborted}},
		{"at a stop string", with(func(r *trace.Request) { r.AbortedNs, r.Success = some(3_000_000), trace.Some(true) }),
			sim.Request{ArrivalUs: 100, OutputTokens: 9, MaxTokens: 9, AbortAtUs: some(2000), AbortKind: sim.OutcomeFinished}},
		{"before it arrived", with(func(r *trace.Request) { r.AbortedNs = some(1_050_000) }),
			sim.Request{ArrivalUs: 100, OutputTokens: 9, MaxTokens: 9, AbortAtUs: some(100), AbortKind: sim.OutcomeAborted}},
	} {
		q := sim.Request{ArrivalUs: 100, OutputTokens: 4, MaxTokens: 4}
		if w.placeAbort(&c.r, &q); !reflect.DeepEqual(q, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, q, c.want)
		}
	}
	requests := []sim.Request{{ArrivalUs: 100, AbortAtUs: some(350), EnqueueUs: some(7)}, {After: 1}, {With: 1}, {}}
	if heads := releaseArrivals(requests); !slices.Equal(heads, []int{0, 3}) {
		t.Errorf("got heads %v, want 0 and 3", heads)
	}
	if q := requests[0]; q.AbortAfterUs != some(250) || q.AbortAtUs.OK || q.EnqueueUs.OK {
		t.Errorf("got %+v, want an abort 250 us after the arrival", q)
	}
}

func TestCallsOfARun(t *testing.T) {
	run := &trace.Run{Requests: []trace.Request{
		{APIID: trace.Some("a"), ArrivedNs: some(10), DepartedNs: some(90)}, {APIID: trace.Some("a"), ArrivedNs: some(12), DepartedNs: some(95)},
		{ArrivedNs: some(5), AbortedNs: some(50)}, {ArrivedNs: some(6), FinishedNs: some(60)}, {APIID: trace.Some("b"), ArrivedNs: some(7)},
	}}
	w := &Workload{Rows: []int{0, 1, 2, 3, 4}}
	want := []Call{{[]int{2}, 5, 50}, {[]int{3}, 6, 60}, {[]int{4}, 7, 1 << 62}, {[]int{0, 1}, 10, 95}}
	if got := w.calls(run); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
