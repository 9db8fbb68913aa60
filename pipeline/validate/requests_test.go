package validate

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// ms is a known time.
func ms(v float64) trace.Opt[float64] { return trace.Some(v) }

// ns is a known stamp, given in ms.
func ns(v float64) trace.Opt[int64] { return trace.Some(int64(v * 1e6)) }

// unknownTime and unknownStamp are what was not recorded.
var (
	unknownTime  trace.Opt[float64]
	unknownStamp trace.Opt[int64]
)

// TestRequestsOfSpans has a journey and a span of unmodified vLLM, and what each change of them gives.
func TestRequestsOfSpans(t *testing.T) {
	journey := trace.Request{CoreID: trace.Some("c"), APIID: trace.Some("a"), Source: trace.SourceFork,
		ArrivedNs: ns(10), QueuedNs: ns(12), FirstTokenNs: ns(30), FinishedNs: ns(70), DepartedNs: ns(75),
		PromptTokens: trace.Some[int64](100), OutputTokens: trace.Some[int64](6), MaxTokens: trace.Some[int64](50), Success: trace.Some(true)}
	of := Request{ID: "c", ArrivalNs: 10e6, EndNs: ns(70), Prompt: 100, Output: 6, MaxTokens: 50, TTFTMs: ms(20), ITLMs: ms(8), E2EMs: ms(65)}
	for _, c := range []struct {
		name string
		edit func(*trace.Request)
		want func(*Request)
	}{
		{"finished", func(*trace.Request) {}, func(*Request) {}},
		{"one token", func(r *trace.Request) { r.OutputTokens.V = 1 }, func(o *Request) { o.Output, o.ITLMs = 1, unknownTime }},
		{"no end", func(r *trace.Request) {
			r.Success, r.FinishedNs, r.DepartedNs = trace.Opt[bool]{}, unknownStamp, unknownStamp
		}, func(o *Request) {
			o.Excluded, o.EndNs, o.ITLMs, o.E2EMs = "unfinished", unknownStamp, unknownTime, unknownTime
		}},
		{"aborted", func(r *trace.Request) {
			r.Success, r.AbortReason = trace.Some(false), trace.Some("client_disconnect")
			r.FinishedNs, r.AbortedNs, r.DepartedNs = unknownStamp, ns(60), unknownStamp
		}, func(o *Request) { o.Excluded, o.EndNs, o.ITLMs, o.E2EMs = "aborted", ns(60), unknownTime, unknownTime }},
		{"failed", func(r *trace.Request) { r.Success, r.FinishedNs = trace.Some(false), unknownStamp },
			func(o *Request) { o.Excluded, o.EndNs, o.ITLMs, o.E2EMs = "failed", ns(75), unknownTime, unknownTime }},
		{"one of two samples", func(r *trace.Request) { r.N = trace.Some[int64](2) }, func(o *Request) { o.Group = "a" }},
		{"stock", func(r *trace.Request) {
			*r = trace.Request{APIID: trace.Some("s"), Source: trace.SourceStock, StartWallNs: ns(5), PromptTokens: trace.Some[int64](7),
				OutputTokens: trace.Some[int64](5), StockTTFTUs: ms(3000), StockE2EUs: ms(9000), StockDecodeUs: ms(5000), Success: trace.Some(true)}
		}, func(o *Request) {
			*o = Request{ID: "s", ArrivalNs: 5e6, Prompt: 7, Output: 5, TTFTMs: ms(3), ITLMs: ms(1.25), E2EMs: ms(9)}
		}},
	} {
		r, want := journey, of
		c.edit(&r)
		c.want(&want)
		if got, ok := spanRequest(&r); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %t\nwant %+v", c.name, got, ok, want)
		}
	}
	for name, edit := range map[string]func(*trace.Request){
		"no arrival":       func(r *trace.Request) { r.ArrivedNs, r.QueuedNs = unknownStamp, unknownStamp },
		"no prompt":        func(r *trace.Request) { r.PromptTokens = unknownStamp },
		"an empty prompt":  func(r *trace.Request) { r.PromptTokens.V = 0 },
		"only an API span": func(r *trace.Request) { r.CoreID = trace.Opt[string]{} },
		"stock, no arrival": func(r *trace.Request) {
			r.Source, r.ArrivedNs, r.QueuedNs = trace.SourceStock, unknownStamp, unknownStamp
		},
	} {
		r := journey
		edit(&r)
		if got, ok := spanRequest(&r); ok {
			t.Errorf("%s: got %+v, want none", name, got)
		}
	}
}

// TestRequestsOfClients has one call of each kind.
func TestRequestsOfClients(t *testing.T) {
	call := func(id string, edit func(*trace.ObservedRequest)) trace.ObservedRequest {
		c := trace.ObservedRequest{ID: id, SendNs: ns(10), FirstChunkNs: ns(30), LastChunkNs: ns(90), EndNs: ns(91), PromptTokens: trace.Some[int64](50),
			OutputTokens: trace.Some[int64](13), AskedTokens: trace.Some[int64](40), Success: trace.Some(true)}
		edit(&c)
		return c
	}
	failed := trace.Some(false)
	run := &trace.Run{ID: "r", Observed: []trace.ObservedRequest{
		call("ok", func(*trace.ObservedRequest) {}),
		call("failed", func(c *trace.ObservedRequest) { c.Success = failed }),
		call("left", func(c *trace.ObservedRequest) { c.Success, c.Aborted = failed, trace.Some(true) }),
		call("load", func(c *trace.ObservedRequest) { c.LoadOnly = trace.Some(true) }),
		call("two", func(c *trace.ObservedRequest) { c.N, c.OutputTokens.V = trace.Some[int64](2), 12 }),
		call("one token", func(c *trace.ObservedRequest) { c.OutputTokens.V = 1 }),
		call("no prompt", func(c *trace.ObservedRequest) { c.PromptTokens = unknownStamp }),
		call("not sent", func(c *trace.ObservedRequest) { c.SendNs = unknownStamp }),
	}}
	base := Request{ArrivalNs: 10e6, Prompt: 50, Output: 13, MaxTokens: 40, TTFTMs: ms(20), ITLMs: ms(5), E2EMs: ms(80)}
	want := func(id string, edit func(*Request)) Request {
		o := base
		o.ID = id
		edit(&o)
		return o
	}
	got, findings := Requests(run)
	for i := range got {
		got[i].Row = nil
	}
	wanted := []Request{
		want("ok", func(*Request) {}),
		want("failed", func(o *Request) { o.Excluded, o.EndNs = "failed", ns(91) }),
		want("left", func(o *Request) { o.Excluded, o.EndNs = "aborted", ns(91) }),
		want("load", func(o *Request) { o.Excluded = "load_only" }),
		want("two#0", func(o *Request) { o.Group, o.Output, o.ITLMs = "two", 6, ms(12) }),
		want("two#1", func(o *Request) { o.Group, o.Output, o.ITLMs, o.E2EMs = "two", 6, ms(12), unknownTime }),
		want("one token", func(o *Request) { o.Output, o.ITLMs = 1, unknownTime }),
	}
	if !reflect.DeepEqual(got, wanted) || len(findings) != 0 {
		t.Errorf("got  %+v, %v\nwant %+v", got, findings, wanted)
	}
}

// TestEngineStampsOfClients: without send stamps the smallest queueing delay, 5 ms, is the distance of the clocks.
func TestEngineStampsOfClients(t *testing.T) {
	run := &trace.Run{ID: "r"}
	for _, sent := range []float64{100, 200} {
		run.Observed = append(run.Observed, trace.ObservedRequest{SendWallNs: ns(sent), QueuedNs: ns(sent + 5 + (sent-100)/10), EngineFirstNs: ns(sent + 25),
			EngineLastNs: ns(sent + 65), PromptTokens: trace.Some[int64](9), OutputTokens: trace.Some[int64](5)})
	}
	got, findings := Requests(run)
	if len(got) != 2 || got[1].ArrivalNs != 205e6 || got[1].TTFTMs != ms(20) || got[1].ITLMs != ms(10) || got[1].E2EMs != ms(60) ||
		!hasCode(findings, ReplayAssumes) {
		t.Errorf("got %+v, %v", got, findings)
	}
}

// TestOvertakenRequests: requests that a client sent arrive in the order in which the spans of their ids began; the times of
// one that was overtaken count from its later arrival. One with two spans (g) and one that had its first token before it
// would arrive (h) keep their arrival.
func TestOvertakenRequests(t *testing.T) {
	run := &trace.Run{ID: "r"}
	for _, c := range []struct {
		id, span    string  // of the client and of the server
		sent, began float64 // ms; began 0: no span
	}{{"a", "a-0", 100, 350}, {"b", "cmpl-b-0", 101, 320}, {"c", "", 102, 0}, {"d", "chatcmpl-d", 104, 310}, {"cmpl-e", "cmpl-e-0", 110, 360},
		{"f", "f-0", 103, 400}, {"g", "g-0", 84, 330}, {"g", "g-0", 84, 340}, {"h", "h-0", 84, 370}} {
		run.Observed = append(run.Observed, trace.ObservedRequest{ID: c.id, SendNs: ns(c.sent), FirstChunkNs: ns(c.sent + 20),
			LastChunkNs: ns(c.sent + 60), PromptTokens: trace.Some[int64](9), OutputTokens: trace.Some[int64](5)})
		if c.began > 0 {
			run.Requests = append(run.Requests, trace.Request{Source: trace.SourceStock, APIID: trace.Some(c.span),
				StartWallNs: ns(c.began), PromptTokens: trace.Some[int64](9)})
		}
	}
	got, findings := Requests(run)
	want := []struct {
		id                string
		arrival, ttft, e2 float64 // ms
	}{{"g", 84, 20, 60}, {"g", 84, 20, 60}, {"h", 84, 20, 60}, {"c", 102, 20, 60}, {"d", 104, 20, 60}, {"b", 104, 17, 57}, {"a", 104, 16, 56},
		{"cmpl-e", 110, 20, 60}, {"f", 110, 13, 53}}
	for i, w := range want {
		o := &got[i]
		if o.ID != w.id || o.ArrivalNs != ns(w.arrival).V || o.TTFTMs != ms(w.ttft) || o.E2EMs != ms(w.e2) || o.ITLMs != ms(10) {
			t.Errorf("request %d: got %+v, want %+v", i, *o, w)
		}
	}
	if len(findings) != 1 || !strings.Contains(findings[0].Message, "3 of 9 requests were overtaken") {
		t.Errorf("got %v", findings)
	}
}

func TestSourceOfRequests(t *testing.T) {
	core := trace.Request{CoreID: trace.Some("c"), Source: trace.SourceFork}
	stock := trace.Request{Source: trace.SourceStock}
	client := []trace.ObservedRequest{{}}
	for want, runs := range map[string][]trace.Run{
		result.SourceJourneys: {{}, {Requests: []trace.Request{stock, core}, Observed: client}},
		result.SourceStock:    {{Requests: []trace.Request{stock}}, {Requests: []trace.Request{stock}, Aggregate: &trace.Aggregate{}}},
		result.SourceClient:   {{Observed: client}, {Requests: []trace.Request{stock}, Observed: client}},
		result.SourcePasses:   {{Observed: client, Aggregate: &trace.Aggregate{OffsetNs: ns(0)}}},
	} {
		for i := range runs {
			if got := SourceOf(&runs[i]); got != want {
				t.Errorf("run %d: got %s, want %s", i, got, want)
			}
		}
	}
}

// TestHalfAStep: the median of the gaps between adjacent busy steps is 30 ms.
func TestHalfAStep(t *testing.T) {
	run := &trace.Run{}
	at := int64(0)
	for i, gapMs := range []int64{0, 10, 30, 50, 900, 900} {
		at += gapMs * 1e6
		run.Steps = append(run.Steps, trace.Step{ID: int64(i), TsStartNs: at, RunningDepth: 1})
	}
	run.Steps[3].RunningDepth = 0 // idle until the next
	run.Steps[5].ID = 9           // steps were lost before it
	if got := halfStepNs(run); got != 15e6 {
		t.Errorf("got %d ns, want 15 ms", got)
	}
	if got := halfStepNs(&trace.Run{}); got != 0 {
		t.Errorf("no steps: got %d ns", got)
	}
}

// TestPairsOfRequests: what is compared, and why the others are not.
func TestPairsOfRequests(t *testing.T) {
	finished := func(ttft, end int64, tokens int64) sim.RequestResult {
		return sim.RequestResult{FirstTokenUs: trace.Some(ttft * 1000), FinishedUs: trace.Some(end * 1000), DepartedUs: trace.Some((end + 1) * 1000), OutputTokens: tokens,
			Outcome: sim.OutcomeFinished}
	}
	recorded := []Request{
		{ArrivalNs: 1, TTFTMs: ms(1)},
		{ArrivalNs: 5, TTFTMs: ms(10), ITLMs: ms(2), E2EMs: ms(50)},
		{ArrivalNs: 6, TTFTMs: ms(11), Group: "g"},
		{ArrivalNs: 7, TTFTMs: ms(12), Group: "g", E2EMs: ms(60)},
		{ArrivalNs: 8, Excluded: excludedFailed},
		{ArrivalNs: 9, TTFTMs: ms(13)},
	}
	res := simulatedOf(finished(1, 2, 2), finished(20, 40, 5), finished(21, 80, 2), finished(22, 70, 2), finished(1, 2, 2),
		sim.RequestResult{Outcome: sim.OutcomeRejected})
	p := &replayedPhase{recorded: recorded, results: map[string][]*simulatedRun{result.VariantPlain: {res, res}}}
	s := p.sample(result.VariantPlain, 5)
	wantReal := byKind[[]float64]{kindTTFT: {10, 11, 12}, kindITL: {2}, kindE2E: {50, 60}}
	wantSim := byKind[[]float64]{kindTTFT: {20, 21, 22, 20, 21, 22}, kindITL: {5, 5}, kindE2E: {41, 81, 41, 81}}
	wantRequest := byKind[[]int]{kindTTFT: {1, 2, 3}, kindITL: {1}, kindE2E: {1, 3}}
	wantExcluded := map[string]int{"before_split": 1, "failed": 1, "rejected_by_model": 1}
	if !reflect.DeepEqual(s.real, wantReal) || !reflect.DeepEqual(s.sim, wantSim) || !reflect.DeepEqual(s.request, wantRequest) ||
		!reflect.DeepEqual(s.excluded, wantExcluded) || s.compared != 3 {
		t.Errorf("got %+v", s)
	}
	if p.sample(result.VariantNoise, 5) != nil {
		t.Error("a variant that was not run has no sample")
	}
}

// simulatedOf returns what is kept of a replay with the results.
func simulatedOf(results ...sim.RequestResult) *simulatedRun {
	kept := &simulatedRun{}
	for i := range results {
		kept.requests = append(kept.requests, timesOf(&results[i]))
	}
	return kept
}

// TestStarvedRequests: two of three requests waited for blocks; their errors are ln 2 and ln 4 of ln 2 + ln 4 + ln 2.
func TestStarvedRequests(t *testing.T) {
	p := &replayedPhase{recorded: []Request{
		{ArrivalNs: 1, TTFTMs: ms(7)}, // before the split
		{ArrivalNs: 5, TTFTMs: ms(10)},
		{ArrivalNs: 6, E2EMs: ms(100)},
		{ArrivalNs: 7, TTFTMs: ms(40)},
		{ArrivalNs: 8, TTFTMs: ms(40), Excluded: excludedAborted},
		{ArrivalNs: 9},
	}, results: map[string][]*simulatedRun{}}
	if got := p.starvedFrom(5); got != (starvedRequests{}) {
		t.Errorf("no replay: got %+v", got)
	}
	results := make([]sim.RequestResult, 6)
	for i := range results {
		results[i] = sim.RequestResult{FirstTokenUs: trace.Some[int64](20_000), DepartedUs: trace.Some[int64](400_000), Starved: i != 3, Outcome: sim.OutcomeFinished}
	}
	p.results[result.VariantPlain] = []*simulatedRun{simulatedOf(results...)}
	got := p.starvedFrom(5)
	if got.Requests != 2 || got.Of != 3 || math.Abs(got.ErrorShare-0.75) > 1e-12 || got.RecordedMs != 55 || got.SimulatedMs != 210 {
		t.Errorf("got %+v", got)
	}
}

// TestCallsOfClients: samples of one call are one call, which lasts until its last sample ends.
func TestCallsOfClients(t *testing.T) {
	calls := callsOf([]Request{
		{ID: "b", ArrivalNs: 9e6, E2EMs: ms(5.0009)},
		{ID: "x#0", Group: "x", ArrivalNs: 3e6, EndNs: trace.Some[int64](7e6)},
		{ID: "x#1", Group: "x", ArrivalNs: 2e6, EndNs: trace.Some[int64](6e6)},
		{ID: "open", ArrivalNs: 4e6},
	})
	if len(calls) != 3 || calls[0].SentNs != 2e6 || calls[0].EndNs != 7e6 || !slices.Equal(calls[0].Samples, []int{1, 2}) ||
		calls[1].EndNs != 1<<62 || calls[2].EndNs != 14e6 || calls[2].SentNs != 9e6 {
		t.Errorf("got %+v", calls)
	}
}

// TestCapacityOfALoop: two clients whose answers take 80 and 120 ms in the recording and 50 and 100 ms in the
// replay, with pauses of 20 ms.
func TestCapacityOfALoop(t *testing.T) {
	p := &replayedPhase{clients: 2, requests: make([]sim.Request, 6)}
	for i := 2; i < 6; i++ {
		p.requests[i] = sim.Request{Queued: true, ThinkUs: 20_000}
	}
	s := &sample{
		real:    byKind[[]float64]{kindE2E: {7, 80, 120, 500}},
		sim:     byKind[[]float64]{kindE2E: {7, 50, 100, 500}},
		request: byKind[[]int]{kindE2E: {1, 2, 3, 4}}, // the first began the loop, the last ended it
	}
	got := p.capacity(s)
	if got == nil || got.Clients != 2 || math.Abs(got.RecordedRPS-2000.0/120) > 1e-9 || math.Abs(got.SimulatedRPS-2000.0/95) > 1e-9 ||
		math.Abs(got.Err.Value-(120.0/95-1)) > 1e-9 {
		t.Errorf("got %+v", got)
	}
	p.clients = 0
	if p.capacity(s) != nil {
		t.Error("no loop has no capacity")
	}
}

func TestWhatCannotBeReplayed(t *testing.T) {
	passes := func(form string, a *trace.Aggregate) *trace.Run {
		return &trace.Run{Iterations: []trace.Iteration{{Form: form}}, Aggregate: a}
	}
	dense := testkit.Llama8B()
	ranks := *dense
	ranks.DP = 2
	experts := ranks
	experts.Model.NumExperts = 8
	for _, c := range []struct {
		name string
		run  *trace.Run
		dep  *deploy.Deployment
		ok   bool
	}{
		{"no passes", &trace.Run{}, &experts, true},
		{"vLLM's log", passes(trace.IterationLog, nil), dense, true},
		{"forward-pass metrics", passes(trace.IterationFPM, nil), dense, true},
		{"chunks", passes(trace.IterationChunks, nil), dense, true},
		{"dense ranks", passes(trace.IterationLog, nil), &ranks, true},
		{"ranks that share experts", passes(trace.IterationLog, nil), &experts, false},
		{"drafts", passes(trace.IterationLog, &trace.Aggregate{Drafts: true}), dense, true}, // newDraftReplay decides
		{"SGLang", passes(trace.IterationSGLang, nil), dense, false},
		{"TensorRT-LLM", passes(trace.IterationTensorRT, nil), dense, false},
	} {
		if got := whyNotReplayed(c.run, c.dep); (got == "") != c.ok {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}

// TestUncountedRequests: up to 5 % of the requests of a phase, and of the decodes, may be unknown.
func TestUncountedRequests(t *testing.T) {
	several := &trace.ObservedRequest{N: trace.Some[int64](2), LastChunkNs: ns(1)}
	phase := &deploy.Phase{StartNs: 100, EndNs: 200}
	requests := func(uncounted int) []Request {
		out := []Request{{ArrivalNs: 99, Row: several}, {ArrivalNs: 200, Row: several}, {ArrivalNs: 150},
			{ArrivalNs: 150, Row: &trace.ObservedRequest{N: trace.Some[int64](2)}}} // answered never
		for i := range 39 {
			o := Request{ArrivalNs: 100 + int64(i), Row: &trace.ObservedRequest{}}
			if i < uncounted {
				o.Row = several
			}
			out = append(out, o)
		}
		return out
	}
	for _, c := range []struct {
		aggregate *trace.Aggregate
		uncounted int
		ok        bool
	}{
		{nil, 39, true},
		{&trace.Aggregate{Others: 0.05}, 2, true},
		{&trace.Aggregate{Others: 0.05}, 3, false},
		{&trace.Aggregate{Others: 0.051}, 2, false},
	} {
		if got := whyUncounted(c.aggregate, requests(c.uncounted), phase); (got == "") != c.ok {
			t.Errorf("%+v, %d uncounted of 40: got %q", c.aggregate, c.uncounted, got)
		}
	}
}

// TestIdleDelaysOfPasses: of a log the delays of requests that met an idle server are the overhead; where there are none
// and nothing was fitted, it is 0 and a finding.
func TestIdleDelaysOfPasses(t *testing.T) {
	run := &trace.Run{ID: "r", Aggregate: &trace.Aggregate{DelaysUs: []float64{100, 300, 900}}}
	o := DefaultOptions()
	j := &job{o: &o, set: &coeff.Set{}}
	var e engine
	if found := j.setIdleDelays(&e, run); e.overheadUs != nil || found != nil {
		t.Errorf("not asked for: got %v, %v", e.overheadUs, found)
	}
	o.IdleDelays = true
	if found := j.setIdleDelays(&e, run); *e.overheadUs != 300 || *e.egressUs != 0 || found != nil {
		t.Errorf("got overhead %v, egress %v, %v", *e.overheadUs, *e.egressUs, found)
	}
	run.Aggregate.DelaysUs = []float64{-5}
	if j.setIdleDelays(&e, run); *e.overheadUs != 0 {
		t.Errorf("negative delays: got %g, want 0", *e.overheadUs)
	}
	e = engine{}
	run.Aggregate.DelaysUs = nil
	if found := j.setIdleDelays(&e, run); *e.overheadUs != 0 || e.egressUs != nil || !hasCode(found, ReplayAssumes) {
		t.Errorf("none idle: got %v, %v", e.overheadUs, found)
	}
	e = engine{}
	j.set.Alpha = []coeff.AlphaModel{{Target: coeff.Overhead}}
	if j.setIdleDelays(&e, run); e.overheadUs != nil {
		t.Errorf("with a fitted overhead: got %v, want the fitted one", *e.overheadUs)
	}
}

func TestCutOfAPhase(t *testing.T) {
	var r judgedRun
	r.Parts = []rows.Part{{Name: "a", CutNs: 7}, {Name: "b", CutNs: 8}}
	if a, b := r.cutNs(&deploy.Phase{Name: "b", EndNs: 9}), r.cutNs(&deploy.Phase{Name: "c", EndNs: 9}); a != 8 || b != 9 {
		t.Errorf("got %d and %d, want the phase's cut, 8, and without one its end, 9", a, b)
	}
}

func TestFiguresOfPairs(t *testing.T) {
	if got := medianPairedError([]float64{0, 10, 20, 40}, []float64{5, 11, 24, 10}); got != 0.2 {
		t.Errorf("errors of 0.1, 0.2 and 0.75: got %g", got)
	}
	if got := medianPairedError([]float64{0}, []float64{5}); !math.IsNaN(got) {
		t.Errorf("no positive value: got %g", got)
	}
	if got := distanceOfHalves([]float64{1, 2, 3, 4}); *got != 1 || distanceOfHalves([]float64{1, 2, 3}) != nil {
		t.Errorf("halves apart: got %g, want 1, and none of three values", *got)
	}
	got := sampleStats([]float64{2, 1, 3, 10, 4}, []float64{1, 2, 3, 4, 10})
	if got.P50 != 3 || got.Mean != 4 || got.P90 != stat.Quantile([]float64{1, 2, 3, 4, 10}, 0.9) || got.P99 <= got.P90 {
		t.Errorf("got %+v", got)
	}
}

// TestLevelsHeldOut: three levels, one of which the simulated server does not finish.
func TestLevelsHeldOut(t *testing.T) {
	p := testkit.Ptr
	levels := []result.LevelHoldout{
		{Name: "one", TTFTMs: p(100), PredictedTTFTMs: p(110), TPOTMs: 10, PredictedTPOTMs: p(8)},
		{Name: "two", TPOTMs: 20, PredictedTPOTMs: p(21), PredictedTTFTMs: p(1)},
		{Name: "three", TTFTMs: p(300), TPOTMs: 30},
	}
	v := (&judgedRun{stored: stored{Deployment: testkit.Llama8B(), Saturation: &rows.LoadVerdicts{}}, drift: &drift{}}).compareLevels(levels, 1)
	if v.Requests != 3 || v.Replayed != 3 || v.Load != "levels" || v.Split != (result.Split{Kind: result.SplitLevels, Test: 1}) || v.Source != result.SourcePoints {
		t.Errorf("got %+v", v)
	}
	if m := v.Metrics.TTFT; m.NReal != 2 || m.RealMs.Mean != 200 || m.SimMs.Mean != (110+300*100)/2.0 || m.ChanceMedian != nil {
		t.Errorf("TTFT: got %+v", m)
	}
	if m := v.Metrics.ITL; m.NReal != 3 || math.Abs(m.SimMs.Mean-(8+21+30*100)/3.0) > 1e-9 {
		t.Errorf("ITL: got %+v", m)
	}
	if got := worstLevel(levels, levelTTFT); got != "one, +10 %" {
		t.Errorf("worst TTFT: got %q", got)
	}
	if got := worstLevel(levels, levelTPOT); got != "one, -20 %" {
		t.Errorf("worst TPOT: got %q", got)
	}
	if got := worstLevel(levels[2:], levelTPOT); got != "none was predicted" {
		t.Errorf("none predicted: got %q", got)
	}
}

func TestGateFlag(t *testing.T) {
	var o Options
	v := &gateValue{&o}
	for _, text := range []string{"bias=0.2", "beta_mape=0.5"} {
		if err := v.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if got := o.gateValues(); !slices.Equal(got, []string{"beta_mape=0.5", "bias=0.2"}) || o.ThresholdsFrom["bias"] != "--gate" || o.ListGates {
		t.Errorf("got %v from %v", got, o.ThresholdsFrom)
	}
	if err := v.Set("list"); err != nil || !o.ListGates {
		t.Errorf("list: got %v", err)
	}
	for _, text := range []string{"bias", "bias=x"} {
		if v.Set(text) == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}

func TestConstantDelays(t *testing.T) {
	for us, ok := range map[float64]bool{0: true, -0.001: false, 999_999_999: true, 1e9: false} {
		if err := checkDelay("--overhead-us", &us); (err == nil) != ok {
			t.Errorf("%g us: got %v", us, err)
		}
	}
	if checkDelay("--overhead-us", nil) != nil {
		t.Error("no constant: got an error")
	}
}

// TestCoefficientsOfABlock: every value of the fit without a block takes the place of the published one.
func TestCoefficientsOfABlock(t *testing.T) {
	gamma := 0.3
	set := &coeff.Set{
		Beta:  []coeff.Coefficient{{Name: "a", Value: 1}, {Name: "b", Value: 2}},
		Alpha: []coeff.AlphaModel{{Target: "overhead", Coefficients: []coeff.Coefficient{{Value: 3}}}, {Target: "egress", Coefficients: []coeff.Coefficient{{Value: 4}}}},
		Gamma: 0.1,
	}
	got := crossSetOf(set, &result.CrossFit{
		Beta: []float64{10, 20}, GammaEMA: &gamma,
		DeploymentFactors: []result.DeploymentFactor{{Deployment: "d", Factor: 1.5, Prompt: 1.7}},
		HardwareFactors:   []result.HardwareFactor{{Hardware: "h", Factor: 1.9}},
		Alpha: []result.CrossAlpha{{Target: "overhead", Values: []float64{30}, Deployments: []result.DeploymentCoefficients{{Deployment: "d", Values: []float64{31}}}},
			{Target: "queue", Values: []float64{50}}},
	})
	if got.Beta[0].Value != 10 || got.Beta[1].Value != 20 || got.Gamma != 0.3 || got.DeploymentFactors["d"] != 1.5 || got.PromptFactors["d"] != 1.7 ||
		got.HardwareFactors["h"] != 1.9 || got.Alpha[0].Coefficients[0].Value != 30 || got.Alpha[0].Deployments["d"][0] != 31 || got.Alpha[1].Coefficients[0].Value != 4 {
		t.Errorf("got %+v", got)
	}
	if set.Beta[0].Value != 1 || set.Alpha[0].Coefficients[0].Value != 3 || set.Alpha[0].Deployments != nil {
		t.Errorf("the published set has changed: %+v", set)
	}
}

// TestTimesOverAnotherReplay are ratios by request, 1 for those that one of both does not compare.
func TestTimesOverAnotherReplay(t *testing.T) {
	phase := func(ttftMs ...int64) *replayedPhase {
		p := &replayedPhase{recorded: make([]Request, 3), results: map[string][]*simulatedRun{}}
		var results []sim.RequestResult
		for i, v := range ttftMs {
			p.recorded[i] = Request{TTFTMs: ms(1)}
			r := sim.RequestResult{FirstTokenUs: trace.Some(v * 1000), Outcome: sim.OutcomeFinished}
			if v == 0 {
				r.Outcome = sim.OutcomeRejected
			}
			results = append(results, r)
		}
		p.results[result.VariantPlain] = []*simulatedRun{simulatedOf(results...)}
		return p
	}
	p := phase(30, 20, 10)
	if got := p.timesOver(phase(10, 40, 0))[kindTTFT]; !slices.Equal(got, []float64{3, 0.5, 1}) {
		t.Errorf("got %v, want 3, 0.5 and 1", got)
	}
	for _, other := range []*replayedPhase{p, {}} {
		for kind, ratios := range p.timesOver(other) {
			if ratios != nil {
				t.Errorf("over itself, or over none: got ratios %v of %v", ratios, timeKind(kind))
			}
		}
	}
}

// TestStoredFilesAreNamed: a folder without the files of a run is an error with their place.
func TestStoredFilesAreNamed(t *testing.T) {
	src := Source{ID: "r", Steps: filepath.Join(t.TempDir(), "none")}
	if _, err := Run(context.Background(), &coeff.Set{}, nil, []Source{src}, DefaultOptions()); err == nil {
		t.Error("got no error")
	}
}
