package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

const ms = 1_000_000

// engine is a small engine that records everything: 16-token blocks, 1000 of them.
func engine() *deploy.Deployment {
	return &deploy.Deployment{TP: 1, Engine: vllm.Engine{VLLMVersion: "0.11.0", MaxNumSeqs: 8, MaxNumBatchedTokens: 512,
		ChunkedPrefill: true,
		BlockSize:      16, KVBlocksGPU: trace.Some(int64(1000)), AsyncScheduling: trace.Some(false)},
		Phases: []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 0, EndNs: 1}, {Name: "load", StartNs: 1, EndNs: 1 << 60}}}
}

// req is a request in ms: arrival, pick-up, schedule, first token, finish, departure.
func req(id string, prompt, output int64, stamps ...float64) trace.Request {
	r := trace.Request{CoreID: trace.Some(id), Source: trace.SourceFork, PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(output),
		CachedTokens: trace.Some(int64(0)), Success: trace.Some(true)}
	for k, to := range []*trace.Opt[int64]{&r.ArrivedNs, &r.QueuedNs, &r.ScheduledNs, &r.FirstTokenNs, &r.FinishedNs, &r.DepartedNs} {
		if k < len(stamps) && stamps[k] > 0 {
			*to = trace.Some(int64(stamps[k] * ms))
		}
	}
	return r
}

// inSteps says which steps scheduled a request and gave its first token.
func inSteps(r trace.Request, scheduled, first int64) trace.Request {
	r.ScheduledStep, r.FirstTokenStep = trace.Some(scheduled), trace.Some(first)
	return r
}

func step(id int64, startMs float64, running, waiting, prefill int64, usage float64) trace.Step {
	return trace.Step{ID: id, TsStartNs: int64(startMs * ms), TsEndNs: int64(startMs*ms) + 100_000, RunningDepth: int32(running),
		WaitingDepth:  int32(waiting),
		PrefillTokens: int32(prefill), KVUsage: usage, BlocksTotal: 1000, BlocksFree: int64(math.Round((1 - usage) * 1000))}
}

func build(t *testing.T, run *trace.Run, d *deploy.Deployment, o Options) *Result {
	t.Helper()
	r, err := Build(source{Run: run, Deployment: d}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// column reads a column of a row by its name on disk.
func column(r Row, name string) any {
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("col") == name {
			return v.Field(i).Interface()
		}
	}
	panic(name)
}

// crowd is one engine with requests in every state at 100 ms, steps every 20 ms
// from 10 ms on; "me" arrives then.
//
//	a decodes since step 2, b had its first token in step 4, c is in the running
//	step 5 (200 prompt tokens), d and e wait, f has not been picked up, g is done,
//	h was aborted while it waited, i arrives later
func crowd() *trace.Run {
	run := &trace.Run{ID: "crowd", Requests: []trace.Request{
		inSteps(req("a", 100, 50, 5, 10, 10.1, 50, 400, 401), 1, 2),
		inSteps(req("b", 60, 40, 40, 50, 70.1, 90, 500, 501), 4, 4),
		inSteps(req("c", 200, 10, 60, 90, 90.1, 130, 300, 301), 5, 5),
		inSteps(req("d", 30, 10, 70, 90.05, 110.1, 150, 300, 301), 6, 6),
		inSteps(req("e", 40, 10, 75, 90.06, 130.1, 170, 300, 301), 7, 7),
		inSteps(req("f", 70, 10, 95, 110, 150.1, 190, 300, 301), 8, 8),
		inSteps(req("g", 80, 3, 4, 10, 10.1, 30, 70, 71), 1, 1),
		inSteps(req("i", 90, 10, 100.5, 110, 170.1, 210, 300, 301), 9, 9),
		inSteps(req("me", 50, 11, 100, 110, 190.1, 230, 430, 440), 10, 10),
	}}
	h := req("h", 55, 0, 80, 90.07, 0, 0, 99, 99)
	h.Success, h.AbortedNs = trace.Some(false), trace.Some(int64(99*ms))
	run.Requests = append(run.Requests, h)
	for k := range int64(24) {
		run.Steps = append(run.Steps, step(k+1, 10+20*float64(k), 3, 2, []int64{80, 100, 0, 60, 200}[k%5], 0.25))
	}
	return run
}

// What each column holds at 100 ms, counted by hand.
func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		name    string
		options func(o *Options)
		want    map[string]any
	}{
		{"full", func(o *Options) {}, map[string]any{
			"is_queued": int64(1), "kv_cache_percentage": 0.25, "input_token_length": int64(50), "num_request_waiting": int64(2),
			"num_request_running": int64(3), "prefill_tokens_in_flight": int64(200 + 30 + 40 + 70),
			"decode_tokens_in_flight": int64(100 + 3 + 60 + 1),
			"encoder_matched_size":    int64(0), "encoder_input_size": int64(0), "prefix_cache_score": 0.0, "effective_input_tokens": 50.0,
			"prefill_score_bucket": int64(0), "pod_type_cat": "", "num_tokens_generated": int64(0),
			"running_engine": int64(3), "running_inflight": int64(6), "own_uncached_tokens": int64(50), "tokens_waiting_ahead": int64(30 + 40 + 70),
			"requests_ahead": int64(3), "step_prefill_tokens": int64(200), "step_prefill_requests": int64(1), "decode_batch": int64(2),
			"decode_tokens_resident": int64(164), "mean_context": 82.0, "free_blocks": int64(750), "since_step_us": trace.Some(10_000.0),
			"better_class_tokens_ahead": int64(0), "recent_prompt_tokens_per_s": 635.0, "recent_prompts_per_s": 8.0,
			"mean_output_tokens": trace.Some(3.0),
			"state":              "journey", "state_age_us": trace.Some(10_000.0), "phase": trace.Opt[string]{}, "stage": trace.Some(int64(0)),
			"ttft_ms": 130.0, "tpot_ms": trace.Some(20.0), "e2e_ms": trace.Some(340.0), "output_tokens": trace.Some(int64(11)),
			"end_num_request_waiting": trace.Some(int64(2)), "end_kv_cache_percentage": trace.Some(0.25)}},
		{"llmd", func(o *Options) { o.Features = featuresLLMD }, map[string]any{"num_request_running": int64(6),
			"decode_tokens_in_flight": int64(0),
			"running_engine":          int64(3), "decode_tokens_resident": int64(164)}},
		{"step", func(o *Options) { o.State = stateStep }, map[string]any{"state": "step", "num_request_waiting": int64(2),
			"num_request_running": int64(3)}},
		// 20 ms earlier: c, d, e and h have arrived, nobody is picked up, b is in the
		// running step, f has not arrived
		{"stale by 20 ms", func(o *Options) { o.StalenessUs = 20_000 }, map[string]any{
			"num_request_waiting": int64(0), "num_request_running": int64(2), "prefill_tokens_in_flight": int64(60 + 200 + 30 + 40 + 55),
			"decode_batch": int64(1), "decode_tokens_in_flight": int64(100 + 2), "running_inflight": int64(6), "step_prefill_tokens": int64(60),
			"requests_ahead": int64(4), "state_age_us": trace.Some(30_000.0), "since_step_us": trace.Some(30_000.0)}},
	} {
		o := DefaultOptions()
		c.options(&o)
		r := build(t, crowd(), engine(), o)
		noStep := 0
		if o.State == stateStep {
			noStep = 2 // a and g arrive before the first step
		}
		if len(r.Rows) != 9-noStep || r.Dropped[aborted] != 1 || r.Dropped[noState] != noStep || r.Requests != 10 {
			t.Fatalf("%s: got %d rows of %d, dropped %v, want all but one aborted and %d before the first step", c.name, len(r.Rows), r.Requests,
				r.Dropped, noStep)
		}
		for _, row := range r.Rows {
			if row.RequestID != "me" {
				continue
			}
			for name, want := range c.want {
				got := column(row, name)
				x, isFloat := got.(float64)
				if isFloat && math.Abs(x-want.(float64)) < 1e-9*math.Abs(x) || got == want {
					continue
				}
				t.Errorf("%s: %s: got %v, want %v", c.name, name, got, want)
			}
		}
	}
}

// Every edge of the buckets, from rows whose state is made to lie on it.
func TestBucketEdges(t *testing.T) {
	for waiting, want := range map[int64]int{0: 0, 1: 1, 2: 1, 3: 2, 5: 2, 6: 3, 10: 3, 11: 4, 500: 4} {
		if got := Bucket(&Row{NumRequestWaiting: waiting}) / (20 * 4); got != want {
			t.Errorf("waiting %d: got bucket %d, want %d", waiting, got, want)
		}
	}
	for usage, want := range map[float64]int{-0.1: 0, 0: 0, 0.049: 0, 0.05: 1, 0.0999: 1, 0.1: 2, 0.5: 10, 0.9499: 18, 0.95: 19, 1: 19,
		1.2: 19} {
		if got := Bucket(&Row{KVCachePercentage: usage}) / 4; got != want {
			t.Errorf("KV usage %g: got bucket %d, want %d", usage, got, want)
		}
	}
	for score, want := range map[float64]int{0: 0, 0.2499: 0, 0.25: 1, 0.4999: 1, 0.5: 2, 0.7499: 2, 0.75: 3, 0.99: 3, 1: 3} {
		if got := Bucket(&Row{PrefixCacheScore: score}); got != want {
			t.Errorf("prefix score %g: got bucket %d, want %d", score, got, want)
		}
	}
	if got := Bucket(&Row{NumRequestWaiting: 99, KVCachePercentage: 1, PrefixCacheScore: 1}); got != buckets-1 {
		t.Errorf("the last bucket: got %d, want %d", got, buckets-1)
	}
}

// pair is a first request and a second that meets it; the second's row is returned.
func pair(t *testing.T, d *deploy.Deployment, o Options, first, second trace.Request, events ...trace.JourneyEvent) Row {
	t.Helper()
	run := &trace.Run{ID: "pair", Requests: []trace.Request{first, second}, Events: events}
	for k := range int64(60) {
		run.Steps = append(run.Steps, step(k+1, 10+20*float64(k), 1, 0, 0, 0.1))
	}
	r := build(t, run, d, o)
	for _, row := range r.Rows {
		if row.RequestID == second.CoreID.V {
			return row
		}
	}
	t.Fatalf("no row for %s: dropped %v", second.CoreID.V, r.Dropped)
	return Row{}
}

// Prefix scores: cached whole blocks over the prompt, and what an index held.
func TestPrefixScores(t *testing.T) {
	caching := engine()
	caching.Engine.PrefixCaching = true
	actual := DefaultOptions()
	actual.PrefixScore = prefixActual
	first := inSteps(req("one", 160, 5, 5, 10, 10.1, 50, 130, 131), 1, 2)
	second := inSteps(req("two", 160, 5, 300, 310, 310.1, 330, 400, 401), 16, 16)
	for _, c := range []struct {
		cached   int64
		score    float64
		uncached int64
		bucket   int64
	}{
		{0, 0, 160, 0}, {15, 0, 160, 0}, {16, 0.1, 144, 0}, {32, 0.2, 128, 0}, {40, 0.2, 128, 0}, {48, 0.3, 112, 1}, {80, 0.5, 80, 2},
		{120, 0.7, 48, 2}, {128, 0.8, 32, 3}, {144, 0.9, 16, 3}, {160, 1, 1, 3}, // a full hit still computes one token
	} {
		second.CachedTokens = trace.Some(c.cached)
		r := pair(t, caching, actual, first, second)
		if math.Abs(r.PrefixCacheScore-c.score) > 1e-12 || r.OwnUncachedTokens != c.uncached || r.PrefillScoreBucket != c.bucket ||
			math.Abs(r.EffectiveInputTokens-(1-c.score)*160) > 1e-9 {
			t.Errorf("%d cached: got score %g, %d uncached, bucket %d, effective %g; want %g, %d, %d",
				c.cached, r.PrefixCacheScore, r.OwnUncachedTokens, r.PrefillScoreBucket, r.EffectiveInputTokens, c.score, c.uncached, c.bucket)
		}
	}
	off := engine()
	second.CachedTokens = trace.Some(int64(64))
	if r := pair(t, off, actual, first, second); r.PrefixCacheScore != 0 || r.PrefixScoreIndex != trace.Some(0.0) {
		t.Errorf("caching off: got %g and %v, want 0 and a known 0", r.PrefixCacheScore, r.PrefixScoreIndex)
	}
	index := DefaultOptions()
	index.Shared = []string{"p*=64"}
	if r := pair(t, caching, index, first, second); math.Abs(r.PrefixCacheScore-0.4) > 1e-12 || r.OwnUncachedTokens != 96 {
		t.Errorf("index: got %g and %d uncached tokens, want 64 of 160 tokens found", r.PrefixCacheScore, r.OwnUncachedTokens)
	}
	early := inSteps(req("two", 160, 5, 9, 10, 30.1, 50, 400, 401), 2, 2)
	if r := pair(t, caching, index, first, early); r.PrefixCacheScore != 0 {
		t.Errorf("index before the first was scheduled: got %g, want 0", r.PrefixCacheScore)
	}
	index.Shared = []string{"other=64"}
	run := &trace.Run{ID: "pair", Requests: []trace.Request{first, second}}
	if r := build(t, run, caching, index); r.Dropped[noBlockHashes] != 2 {
		t.Errorf("nothing says what requests share: dropped %v, want two without block hashes", r.Dropped)
	}
	second.CachedTokens = trace.Opt[int64]{}
	run = &trace.Run{ID: "pair", Requests: []trace.Request{second}}
	if r := build(t, run, caching, actual); r.Dropped[noCachedTokens] != 1 {
		t.Errorf("no snapshot: dropped %v, want one without cached tokens", r.Dropped)
	}
}

// The index forgets the least recently scheduled blocks, a chain from its end.
func TestIndexEvicts(t *testing.T) {
	d := engine()
	d.Engine.KVBlocksGPU = trace.Some(int64(10))
	x := newBlockIndex(d)
	l := func(prompt int64, group string) *requestLife {
		return &requestLife{prompt: trace.Some(prompt), group: group, groupTokens: trace.Some(prompt)}
	}
	x.insertPrompt(0, l(64, "a"), trace.Opt[int64]{}) // 4 blocks
	x.insertPrompt(1, l(64, "b"), trace.Opt[int64]{}) // 8
	x.insertPrompt(2, l(64, "c"), trace.Opt[int64]{}) // 12: two of a leave
	for group, want := range map[string]float64{"a": 32, "b": 64, "c": 64} {
		if got := x.cachedShare(9, l(65, group)) * 65; math.Abs(got-want) > 1e-9 {
			t.Errorf("group %s: got %g tokens, want %g", group, got, want)
		}
	}
}

// A preempted request leaves the decodes, counts as waiting, and comes back
// without the tokens of the time between; what it must compute again is its own.
func TestResumedRequest(t *testing.T) {
	at := func(v float64) trace.Opt[int64] { return trace.Some(int64(v * ms)) }
	first := inSteps(req("one", 100, 50, 5, 10, 10.1, 30, 1100, 1101), 1, 1)
	events := []trace.JourneyEvent{
		{CoreID: "one", Kind: "PREEMPTED", TsNs: at(110.1), Step: trace.Some(int64(6))},
		{CoreID: "one", Kind: "SCHEDULED", TsNs: at(210.1), Step: trace.Some(int64(11)), ScheduleKind: trace.Some("RESUME")}}
	for _, c := range []struct {
		at                                float64
		waiting, running, decodes, tokens int64
	}{{100, 0, 1, 1, 104}, {150, 1, 0, 0, 0}, {300, 0, 1, 1, 100 + 14 - 5}} {
		second := inSteps(req("two", 10, 5, c.at, c.at+5, c.at+5.1, c.at+20, 1150, 1151), 50, 50)
		r := pair(t, engine(), DefaultOptions(), first, second, events...)
		if r.NumRequestWaiting != c.waiting || r.RunningEngine != c.running || r.DecodeBatch != c.decodes || r.DecodeTokensResident != c.tokens {
			t.Errorf("at %g ms: got %d waiting, %d running, %d decodes with %d tokens, want %d, %d, %d, %d",
				c.at, r.NumRequestWaiting, r.RunningEngine, r.DecodeBatch, r.DecodeTokensResident, c.waiting, c.running, c.decodes, c.tokens)
		}
	}
}

// Missing steps: state from steps goes stale after 250 ms unless the engine idled;
// journeys do not; the KV usage is then rebuilt from them.
func TestMissingSteps(t *testing.T) {
	first := inSteps(req("one", 100, 50, 5, 10, 10.1, 30, 1100, 1101), 1, 1)
	second := inSteps(req("two", 10, 5, 500, 505, 505.1, 520, 1150, 1151), 26, 26)
	for _, c := range []struct {
		name  string
		steps []trace.Step
		state string
		want  reason
	}{
		{"fresh", []trace.Step{step(1, 10, 1, 0, 100, 0.1), step(14, 260, 1, 0, 0, 0.1)}, stateStep, ""},
		{"stale", []trace.Step{step(1, 10, 1, 0, 100, 0.1), step(12, 249, 1, 0, 0, 0.1)}, stateStep, staleState},
		{"idle is never stale", []trace.Step{step(1, 10, 1, 0, 100, 0.1), step(12, 249, 0, 0, 0, 0.1)}, stateStep, ""},
		{"nothing before", []trace.Step{step(30, 600, 1, 0, 0, 0.1)}, stateStep, noState},
		{"journeys need no step", []trace.Step{step(1, 10, 1, 0, 100, 0.1), step(12, 249, 1, 0, 0, 0.1)}, stateAuto, ""},
	} {
		o := DefaultOptions()
		o.State = c.state
		r := build(t, &trace.Run{ID: "x", Requests: []trace.Request{first, second}, Steps: c.steps}, engine(), o)
		if r.Dropped[c.want] == 0 && c.want != "" || c.want == "" && len(r.Rows) == 0 {
			t.Errorf("%s: got %d rows, dropped %v, want %q", c.name, len(r.Rows), r.Dropped, c.want)
		}
		if c.state == stateAuto {
			row := r.Rows[len(r.Rows)-1]
			if row.SinceStepUs.OK || math.Abs(row.KVCachePercentage-0.008) > 1e-9 { // 100 + 24 tokens and half a block: 8 of 1000
				t.Errorf("%s: got since_step %v and KV usage %g, want unknown and 0.008", c.name, row.SinceStepUs, row.KVCachePercentage)
			}
		}
	}
	unknown := engine()
	unknown.Engine.KVBlocksGPU = trace.Opt[int64]{}
	r := build(t, &trace.Run{ID: "x", Requests: []trace.Request{first}}, unknown, DefaultOptions())
	if r.Dropped[noKVState] != 1 {
		t.Errorf("no steps and no KV size: dropped %v, want no_kv_state", r.Dropped)
	}
}

// Each reason, one request at a time.
func TestDrops(t *testing.T) {
	whole := func() trace.Request { return inSteps(req("x", 100, 5, 500, 510, 510.1, 530, 600, 601), 26, 26) }
	for _, c := range []struct {
		want   reason
		change func(r *trace.Request, d *deploy.Deployment, s *source)
	}{
		{noArrival, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.ArrivedNs.OK = false }},
		{noEngineStamps, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.CoreID.OK = false }},
		{noEngineStamps, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.ScheduledNs.OK = false }},
		{noPromptLength, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.PromptTokens.OK = false }},
		{aborted, func(r *trace.Request, _ *deploy.Deployment, _ *source) {
			r.Success, r.AbortedNs = trace.Some(false), trace.Some(int64(600*ms))
		}},
		{failed, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.Success = trace.Some(false) }},
		{failed, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.Success = trace.Opt[bool]{} }},
		{warmUp, func(_ *trace.Request, d *deploy.Deployment, _ *source) {
			d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, EndNs: 1 << 60}}
		}},
		{warmUp, func(r *trace.Request, d *deploy.Deployment, _ *source) {
			d.Phases, r.ArrivedNs = nil, trace.Some(int64(100*ms)) // before the eleventh step
		}},
		{saturated, func(_ *trace.Request, _ *deploy.Deployment, s *source) { s.Saturated = []rows.Span{{EndNs: 1 << 60}} }},
		{noFirstToken, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.FirstTokenNs.OK = false }},
		{negativeLatency, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.FirstTokenNs.V = 499 * ms }},
		{incompleteJourneys, func(_ *trace.Request, d *deploy.Deployment, _ *source) { d.Tracing.JourneySampleRate = trace.Some(0.5) }},
		{incompleteJourneys, func(r *trace.Request, _ *deploy.Deployment, _ *source) { r.DroppedEvents = 1 }},
		{"", func(*trace.Request, *deploy.Deployment, *source) {}},
	} {
		r, d := whole(), engine()
		src := source{Deployment: d}
		c.change(&r, d, &src)
		src.Run = &trace.Run{ID: "x", Requests: []trace.Request{r}}
		for k := range int64(40) {
			src.Run.Steps = append(src.Run.Steps, step(k+1, 10+20*float64(k), 1, 0, 0, 0.1))
		}
		got, err := Build(src, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && len(got.Rows) != 1 || c.want != "" && got.Dropped[c.want] != 1 {
			t.Errorf("want %q: got %d rows, dropped %v", c.want, len(got.Rows), got.Dropped)
		}
	}
}

// A stock span: its intervals stand one behind the other.
func TestStockSpan(t *testing.T) {
	us := func(v float64) trace.Opt[float64] { return trace.Some(v) }
	span := func(id string, startMs, ttft, queue, prefill, decode, e2e float64) trace.Request {
		return trace.Request{APIID: trace.Some(id), Source: trace.SourceStock, StartWallNs: trace.Some(int64(startMs * ms)),
			PromptTokens: trace.Some(int64(160)),
			OutputTokens: trace.Some(int64(11)), Success: trace.Some(true), StockTTFTUs: us(ttft * 1000), StockQueueUs: us(queue * 1000),
			StockPrefillUs: us(prefill * 1000), StockDecodeUs: us(decode * 1000), StockE2EUs: us(e2e * 1000)}
	}
	run := &trace.Run{ID: "stock", Requests: []trace.Request{
		span("one", 1000, 50, 10, 30, 100, 160),  // scheduled at 1020, first token 1050, last 1150
		span("two", 1030, 100, 60, 30, 200, 310), // meets one prefilling; scheduled 1100
		span("three", 1060, 100, 50, 40, 100, 0), // meets one decoding, two waiting
		span("four", 1155, 50, 10, 30, 100, 160), // one is done and departs at 1160
	}}
	r := build(t, run, engine(), DefaultOptions())
	if len(r.Rows) != 4 {
		t.Fatalf("got %d rows, dropped %v", len(r.Rows), r.Dropped)
	}
	got := func(i int) string {
		x := r.Rows[i]
		return fmt.Sprint(x.NumRequestWaiting, x.RunningEngine, x.RunningInflight, x.PrefillTokensInFlight, x.DecodeBatch, x.StepPrefillTokens,
			x.TokensWaitingAhead)
	}
	for i, want := range []string{"0 0 0 0 0 0 0", "0 1 1 160 0 160 0", "1 1 2 160 1 0 160", "0 2 3 160 1 160 0"} {
		if got(i) != want {
			t.Errorf("request %d: got %s, want %s", i, got(i), want)
		}
	}
	if x := r.Rows[0]; x.TTFTMs != 50 || x.TPOTMs.V != 10 || x.E2EMs.V != 160 {
		t.Errorf("targets: got %g, %v, %v ms, want 50, 10, 160", x.TTFTMs, x.TPOTMs, x.E2EMs)
	}
}

// Engine stamps of a client file on another clock are moved by the smallest wait.
func TestTwoClocks(t *testing.T) {
	o := func(id string, send, queued float64) trace.ObservedRequest {
		n := func(v float64) trace.Opt[int64] { return trace.Some(int64(v * ms)) }
		return trace.ObservedRequest{ID: id, SendWallNs: n(send + 9000), QueuedNs: n(queued), ScheduledNs: n(queued + 1),
			EngineFirstNs: n(queued + 30),
			EngineLastNs:  n(queued + 130), PromptTokens: trace.Some(int64(32)), OutputTokens: trace.Some(int64(11)), Success: trace.Some(true)}
	}
	r := build(t, &trace.Run{ID: "c", Observed: []trace.ObservedRequest{o("a", 100, 105), o("b", 200, 202), o("c", 210, 215)}}, engine(),
		DefaultOptions())
	if len(r.Rows) != 3 || len(r.Warnings) != 1 || r.Rows[0].TTFTMs != 33 || r.Rows[1].TTFTMs != 30 || r.Rows[2].RunningEngine != 2 {
		t.Errorf("got %+v, %v, want waits of 3, 0 and 3 ms more than the engine's 30", r.Rows, r.Warnings)
	}
}

// Load stages: phases, then workload.stage_requests, then windows; a constant rate
// is one stage.
func TestStages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	arrivals := func(rates ...float64) []requestLife {
		var out []requestLife
		at := 0.0
		for k, rate := range rates {
			for at < float64(k+1)*600 {
				at += rng.ExpFloat64() / rate
				out = append(out, requestLife{arrived: trace.Some(int64(at * 1e9))})
			}
		}
		return out
	}
	count := func(lives []requestLife, d *deploy.Deployment) map[int64]int {
		n := map[int64]int{}
		for _, s := range stagesOf(lives, d) {
			n[s.Or(-1)]++
		}
		return n
	}
	if n := count(arrivals(2), &deploy.Deployment{}); len(n) != 1 {
		t.Errorf("constant rate: got stages %v, want one", n)
	}
	steep := arrivals(1, 4, 2)
	if n := count(steep, &deploy.Deployment{}); len(n) != 3 || n[0] > n[1] || n[1] > n[2] {
		t.Errorf("three rates: got stages %v, want three, the largest last", n)
	}
	if n := count(steep[:30], &deploy.Deployment{Workload: map[string]any{"stage_requests": []any{10, 15}}}); n[0] != 10 || n[1] != 20 {
		t.Errorf("stage_requests: got %v, want 10 and the rest", n)
	}
	d := &deploy.Deployment{Phases: []deploy.Phase{{Name: deploy.WarmupPhase, EndNs: 1e9}, {Name: "a", StartNs: 1e9, EndNs: 600e9},
		{Name: "b", StartNs: 600e9, EndNs: 1e18}}}
	if n := count(steep, d); len(n) < 2 || n[0] == 0 || n[1] == 0 {
		t.Errorf("phases: got %v, want stages 0 and 1", n)
	}
}

// decisionRandom is a run of requests at random, with preemption, aborts and a shared prefix.
func decisionRandom(rng *rand.Rand) *trace.Run {
	run := &trace.Run{ID: "random"}
	at := 5.0
	for i := range 60 {
		at += rng.ExpFloat64() * 12
		queued := at + rng.Float64()*20
		scheduled := queued + rng.ExpFloat64()*20
		first := scheduled + 20 + rng.Float64()*40
		finished := first + rng.ExpFloat64()*200
		r := inSteps(req(fmt.Sprintf("r%02d", i), 1+rng.Int64N(400), 1+rng.Int64N(40), at, queued, scheduled, first, finished, finished+2),
			int64(scheduled/20), int64(first/20))
		if rng.IntN(10) == 0 {
			r.Success = trace.Some(false)
			r.AbortedNs = r.FinishedNs
		}
		run.Requests = append(run.Requests, r)
		if rng.IntN(4) == 0 {
			p := first + rng.Float64()*(finished-first)*0.5
			q := p + rng.Float64()*(finished-p)*0.5
			run.Events = append(run.Events,
				trace.JourneyEvent{CoreID: r.CoreID.V, Kind: "PREEMPTED", TsNs: trace.Some(int64(p * ms)), Step: trace.Some(int64(p / 20))},
				trace.JourneyEvent{CoreID: r.CoreID.V, Kind: "SCHEDULED", TsNs: trace.Some(int64(q * ms)), Step: trace.Some(int64(q / 20))})
		}
	}
	for k := range int64(100) {
		run.Steps = append(run.Steps, step(k, 20*float64(k), rng.Int64N(8), rng.Int64N(4), rng.Int64N(300), rng.Float64()))
	}
	return run
}

// later changes everything that happens after t: other requests, preemptions and
// steps are moved, and everything of a request's future.
func later(rng *rand.Rand, run *trace.Run, t int64, keep string) *trace.Run {
	out := &trace.Run{ID: run.ID}
	move := func(v *trace.Opt[int64]) {
		if v.OK && v.V > t {
			v.V = t + 1 + rng.Int64N(3_000*ms)
		}
	}
	for _, r := range run.Requests {
		if r.CoreID.V != keep {
			if r.ArrivedNs.V > t && rng.IntN(3) == 0 {
				continue
			}
			changed := r.FirstTokenNs.V > t
			for _, v := range []*trace.Opt[int64]{&r.ArrivedNs, &r.QueuedNs, &r.ScheduledNs, &r.FirstTokenNs, &r.FinishedNs, &r.DepartedNs,
				&r.AbortedNs} {
				move(v)
			}
			if changed {
				r.FirstTokenStep = trace.Some(rng.Int64N(1000))
			}
			if r.FinishedNs.V > t {
				r.OutputTokens = trace.Some(1 + rng.Int64N(500))
				r.Success = trace.Some(rng.IntN(2) == 0)
			}
			if r.ArrivedNs.V > t {
				r.PromptTokens = trace.Some(1 + rng.Int64N(500))
			}
		}
		out.Requests = append(out.Requests, r)
	}
	for _, e := range run.Events {
		move(&e.TsNs)
		out.Events = append(out.Events, e)
	}
	for _, s := range run.Steps {
		if s.TsStartNs > t {
			s.RunningDepth, s.WaitingDepth, s.KVUsage, s.PrefillTokens = int32(rng.Int64N(99)), int32(rng.Int64N(99)), rng.Float64(), int32(rng.Int64N(999))
		}
		out.Steps = append(out.Steps, s)
	}
	return out
}

// Nothing that happens after a decision changes a feature of it, whatever the
// source of state and the staleness, with the stamps of the changed run checked
// against the features of the unchanged one.
func TestCausality(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	compared := 0
	for round := range 40 {
		run := decisionRandom(rng)
		o := DefaultOptions()
		o.State = []string{stateAuto, stateStep}[round%2]
		o.Features = []string{featuresFull, featuresLLMD}[round/2%2]
		o.StalenessUs = []int64{0, 0, 50_000}[round%3]
		d := engine()
		d.Engine.PrefixCaching = round%5 == 0
		o.Shared = []string{"*=64"}
		want := build(t, run, d, o)
		for range 10 {
			row := want.Rows[rng.IntN(len(want.Rows))]
			got := build(t, later(rng, run, row.DecisionNs-o.StalenessUs*1000, row.RequestID), d, o)
			for _, again := range got.Rows {
				if again.RequestID != row.RequestID {
					continue
				}
				compared++
				a := decisionFeatures(row)
				b := decisionFeatures(again)
				if a != b {
					t.Fatalf("round %d, %s at %d ns:\n got %s\nwant %s", round, row.RequestID, row.DecisionNs, b, a)
				}
			}
		}
	}
	if compared < 300 {
		t.Errorf("compared %d rows, want at least 300", compared)
	}
}

// decisionFeatures are the columns of a row that are known at the decision.
func decisionFeatures(r Row) string {
	r.TTFTMs = 0
	r.TPOTMs = trace.Opt[float64]{}
	r.E2EMs = trace.Opt[float64]{}
	r.OutputTokens = trace.Opt[int64]{}
	r.DepartedNs = trace.Opt[int64]{}
	r.EndWaiting = trace.Opt[int64]{}
	r.EndRunning = trace.Opt[int64]{}
	r.EndKV = trace.Opt[float64]{}
	r.PrefixScoreActual = trace.Opt[float64]{}
	r.Stage = trace.Opt[int64]{}
	return fmt.Sprintf("%+v", r)
}

// Whatever a run holds, rows and drops are its requests.
func TestRowsAndDropsAreRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for range 200 {
		run := decisionRandom(rng)
		for i := range run.Requests {
			r := &run.Requests[i]
			for _, v := range []*trace.Opt[int64]{&r.ArrivedNs, &r.QueuedNs, &r.ScheduledNs, &r.FirstTokenNs, &r.FinishedNs, &r.DepartedNs,
				&r.PromptTokens, &r.OutputTokens, &r.FirstTokenStep} {
				v.OK = v.OK && rng.IntN(30) > 0
			}
		}
		r := build(t, run, engine(), DefaultOptions())
		sum := len(r.Rows)
		for _, n := range r.Dropped {
			sum += n
		}
		if sum != len(run.Requests) || r.Requests != sum {
			t.Fatalf("%d rows and %v, want %d requests", len(r.Rows), r.Dropped, len(run.Requests))
		}
		for _, row := range r.Rows {
			for _, v := range []int64{row.NumRequestWaiting, row.RunningEngine, row.RunningInflight, row.PrefillTokensInFlight,
				row.TokensWaitingAhead,
				row.RequestsAhead, row.DecodeBatch, row.DecodeTokensResident, row.StepPrefillTokens, row.StepPrefillRequests, row.FreeBlocks} {
				if v < 0 {
					t.Fatalf("a count below 0: %+v", row)
				}
			}
		}
	}
}
