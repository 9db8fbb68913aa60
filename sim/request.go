package sim

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Request is one request of a workload. Times are us of simulated time.
type Request struct {
	ID           string
	ArrivalUs    int64 // at the API (api.ARRIVED)
	PromptTokens int64
	OutputTokens int64 // tokens it will produce; the engine learns it only as "stop now"
	MaxTokens    int64 // cap the engine knows; 0 = OutputTokens. Below it the request stops by itself (EOS)
	Priority     int64 // smaller is served first under the priority policy
	SLOClass     string
	SLOTTFTUs    int64 // goodput target, 0 = none
	SLOE2EUs     int64 // goodput target, 0 = none
	SLOITLUs     int64 // goodput target of the mean gap between output tokens, 0 = none

	// Content, for prefix caching. Requests of one Group (not 0) share their
	// first GroupTokens prompt tokens. Hashes are content ids of consecutive
	// spans of HashTokens prompt tokens; equal leading ids mean equal tokens.
	// Without either the prompt is unlike any other.
	Group       uint64
	GroupTokens int64
	Hashes      []uint64
	HashTokens  int64
	// HashedTokens is how far Hashes speak of it, its output included, which a later request may begin with; 0 = its prompt.
	HashedTokens int64

	// CachedTokens overrides the prefix-cache lookup of the first admission: what
	// a recording says was found there. The blocks count as the request's own.
	CachedTokens trace.Opt[int64]

	// Speculative decoding: how many drafts its 1st, 2nd, ... verify accepts, as a recording says; nil: drawn. None
	// behind the end. Proposed is how many the drafter proposes, where fewer than the engine's; nil: all.
	Accepted, Proposed []uint8

	// Disaggregated prefill: RemotePrefill loads the whole prompt from another server, LoadUs after its blocks were
	// taken; RemoteDecode keeps its blocks until SendUs after its end, when another server has read them.
	RemotePrefill, RemoteDecode bool
	LoadUs, SendUs              int64

	// AbortAtUs is when the abort reaches the engine (client gone, stop string);
	// AbortKind says which outcome it leaves: OutcomeAborted, OutcomeTimedOut or
	// OutcomeFinished (a stop string: the API calls it a success).
	AbortAtUs trace.Opt[int64]
	// AbortAfterUs is the same, from its arrival.
	AbortAfterUs trace.Opt[int64]
	AbortKind    Outcome

	// After makes a closed loop of one client: with After = i+1 the request
	// arrives ThinkUs after request i of the workload has left the system,
	// whatever its outcome, but not before ArrivalUs. 0 = open.
	After int
	// Loop makes a closed loop with a shared queue: the requests of one Loop (not
	// 0) that are Queued are sent in workload order, one whenever any request of
	// the loop has left, ThinkUs later and not before ArrivalUs. The others of
	// the loop arrive by themselves, one for each client.
	Loop    int
	Queued  bool
	ThinkUs int64
	// With = i+1 makes it one more sample of request i (n > 1): it arrives
	// together with it, and who waits for i waits for both. 0 = none.
	With int

	// EnqueueUs overrides arrival + overhead: when the request reaches the
	// engine's input queue. Used by replays that know it.
	EnqueueUs trace.Opt[int64]

	// PickUpStep is the last step before its recorded pick-up (scheduler.step of
	// QUEUED): the request stays in the input queue until then, or until the
	// engine is idle, which then goes on with that step. For recordings whose
	// step times are incomplete.
	PickUpStep trace.Opt[int64]
}

// Outcome is how a request left.
type Outcome string

// Outcomes. A request still inside when Config.StopUs is reached is unfinished.
const (
	OutcomeFinished   Outcome = "finished"
	OutcomeRejected   Outcome = "rejected"
	OutcomeAborted    Outcome = "aborted"
	OutcomeTimedOut   Outcome = "timed_out"
	OutcomeUnfinished Outcome = "unfinished"
)

// abortOutcomes are what an abort may leave.
var abortOutcomes = []Outcome{OutcomeAborted, OutcomeTimedOut, OutcomeFinished}

// RequestResult is what one request experienced, in workload order. Stamps are
// us of simulated time; what never happened is unknown. TTFT = FirstToken -
// Arrival, E2E = Departed - Arrival, ITL = (Finished - FirstToken)/(Output-1).
type RequestResult struct {
	ID           string           `col:"request_id" doc:"id of the workload"`
	ArrivalUs    int64            `col:"arrival_us" unit:"us" doc:"arrival at the API, simulated time"`
	EnqueuedUs   trace.Opt[int64] // reached the engine's input queue
	QueuedUs     trace.Opt[int64] `col:"queued_us" unit:"us" doc:"picked up by the engine"`
	ScheduledUs  trace.Opt[int64] `col:"scheduled_us" unit:"us" doc:"first schedule"`
	FirstTokenUs trace.Opt[int64] `col:"first_token_us" unit:"us" doc:"first token in the engine"`
	FinishedUs   trace.Opt[int64] `col:"finished_us" unit:"us" doc:"last token in the engine"`
	DepartedUs   trace.Opt[int64] `col:"departed_us" unit:"us" doc:"answered"`
	latencies
	PromptTokens  int64           `col:"prompt_tokens" unit:"tokens" doc:"prompt length"`
	CachedTokens  int64           `col:"cached_tokens" unit:"tokens" doc:"prompt tokens served from cache at first admission"`
	OutputTokens  int64           `col:"output_tokens" unit:"tokens" doc:"tokens produced"`
	Preemptions   int64           `col:"preemptions" doc:"times it was preempted"`
	LengthCapped  bool            // cut at max_model_len, before its own end and its max_tokens
	Starved       bool            // waited, or was preempted, because no KV blocks were free
	Outcome       Outcome         `col:"outcome" doc:"finished, rejected, aborted, timed_out or unfinished"`
	Reason        trace.Code      `col:"reason" doc:"code of a rejection"`
	FinishStatus  string          `col:"finish_status" doc:"stopped, length, aborted or ignored"` // trace.FinishStopped, ...
	SLOClass      string          `col:"slo_class" doc:"service class"`
	SLOMet        trace.Opt[bool] `col:"slo_met" doc:"met its targets; null without targets"`
	TokenUs       float64         // Config.TokenUs, part of TTFT, ITL and E2E
	Gradient      *gradient       // with Config.Gradient, of a finished request; reused after it was reported
	QueuedStep    int64           // last step before pick-up; scheduler.step of QUEUED
	ScheduledStep int64           `col:"scheduled_step" doc:"step of the first schedule; 0 = none"`
	FirstStep     int64           `col:"first_token_step" doc:"step that produced the first token; 0 = none"`
	FinishedStep  int64           `col:"finished_step" doc:"step of the finish; 0 = none"`
}

// latencies are what Timed makes of the stamps, and with Config.TokenGaps the quantiles of the token gaps.
type latencies struct {
	QueueWaitMs trace.Opt[float64] `col:"queue_wait_ms" unit:"ms" doc:"SCHEDULED - QUEUED"`
	TTFTMs      trace.Opt[float64] `col:"ttft_ms" unit:"ms" doc:"first token - arrival"`
	ITLMs       trace.Opt[float64] `col:"itl_ms" unit:"ms" doc:"mean gap between tokens"`
	ITLP50Ms    trace.Opt[float64] `col:"itl_p50_ms" unit:"ms" doc:"median gap between tokens"`
	ITLP99Ms    trace.Opt[float64] `col:"itl_p99_ms" unit:"ms" doc:"99th percentile of the gaps"`
	E2EMs       trace.Opt[float64] `col:"e2e_ms" unit:"ms" doc:"departure - arrival"`
}

// Timed makes the request a row of requests.parquet.
func (r *RequestResult) Timed() *RequestResult {
	ms := func(us float64, ok bool) (v trace.Opt[float64]) {
		if ok {
			v = trace.Some(us / 1e3)
		}
		return v
	}
	r.QueueWaitMs, r.TTFTMs = ms(float64(r.ScheduledUs.V-r.QueuedUs.V), r.ScheduledUs.OK), ms(r.TTFTUs())
	r.ITLMs, r.E2EMs = ms(r.ITLUs()), ms(r.E2EUs())
	return r
}

// TTFTUs is the time to first token.
func (r *RequestResult) TTFTUs() (float64, bool) {
	return float64(r.FirstTokenUs.V-r.ArrivalUs) + r.TokenUs, r.FirstTokenUs.OK
}

// E2EUs is arrival to departure of a finished request.
func (r *RequestResult) E2EUs() (float64, bool) {
	return float64(r.DepartedUs.V-r.ArrivalUs) + r.TokenUs*float64(r.OutputTokens), r.DepartedUs.OK && r.Outcome == OutcomeFinished
}

// ITLUs is the mean gap between tokens, for two output tokens or more.
func (r *RequestResult) ITLUs() (float64, bool) {
	if !r.FirstTokenUs.OK || !r.FinishedUs.OK || r.OutputTokens < 2 {
		return 0, false
	}
	return float64(r.FinishedUs.V-r.FirstTokenUs.V)/float64(r.OutputTokens-1) + r.TokenUs, true
}

// result is that of a request that has only just arrived.
func (r *Request) result(atUs int64) RequestResult {
	return RequestResult{ID: r.ID, ArrivalUs: atUs, PromptTokens: r.PromptTokens, SLOClass: r.SLOClass, Outcome: OutcomeUnfinished}
}

// Judge compares a departed request with its goodput targets.
func (r *RequestResult) Judge(q *Request) {
	if q.SLOTTFTUs == 0 && q.SLOE2EUs == 0 && q.SLOITLUs == 0 {
		return
	}
	ttft, ok1 := r.TTFTUs()
	e2e, ok2 := r.E2EUs()
	itl, gaps := r.ITLUs()
	met := ok1 && ok2 && (q.SLOTTFTUs == 0 || ttft <= float64(q.SLOTTFTUs)) &&
		(q.SLOE2EUs == 0 || e2e <= float64(q.SLOE2EUs)) && (q.SLOITLUs == 0 || !gaps || itl <= float64(q.SLOITLUs))
	r.SLOMet = trace.Some(met)
}

// content is what the blocks of request i of the workload hold.
func (r *Request) content(i int) Content {
	return Content{PromptTokens: r.PromptTokens, Group: r.Group, GroupTokens: r.GroupTokens, Hashes: r.Hashes, HashTokens: r.HashTokens,
		HashedTokens: r.HashedTokens, Own: uint64(i)}
}

// LatestUs is the end of simulated time, us: three centuries. A [ToUs] beyond it is
// refused wherever requests are checked.
const LatestUs = int64(1e16)

// ToUs rounds a time in us to a whole one. What no time can be, and NaN, becomes one
// that is refused: conversions of such numbers differ between processors.
func ToUs(v float64) int64 {
	switch {
	case v <= -1:
		return -1
	case v < float64(LatestUs):
		return int64(float64(v) + 0.5)
	}
	return LatestUs + 1
}

// check verifies request i of n.
func (r *Request) check(i, n int) error {
	bad := func(format string, args ...any) error {
		return trace.Errorf(CodeBadConfig, "request %d (%q): got "+format, append([]any{i, r.ID}, args...)...)
	}
	switch {
	case r.PromptTokens < 1 || r.OutputTokens < 1 || r.MaxTokens < 0:
		return bad("%d prompt, %d output, %d max tokens, want >= 1, >= 1, >= 0", r.PromptTokens, r.OutputTokens, r.MaxTokens)
	case r.ArrivalUs > LatestUs || r.ThinkUs > LatestUs:
		return bad("an arrival or think time beyond %d us, want at most that", LatestUs)
	case r.ArrivalUs < 0 || r.ThinkUs < 0 || r.EnqueueUs.OK && r.EnqueueUs.V < r.ArrivalUs:
		return bad("arrival %d us, think time %d us, enqueue %d us, want >= 0, >= 0, >= arrival", r.ArrivalUs, r.ThinkUs, r.EnqueueUs.V)
	case len(r.Hashes) > 0 && r.HashTokens < 1:
		return bad("%d content ids of %d tokens, want >= 1 token each", len(r.Hashes), r.HashTokens)
	case r.CachedTokens.OK && (r.CachedTokens.V < 0 || r.CachedTokens.V > r.PromptTokens):
		return bad("%d cached tokens, want 0 to the prompt's %d", r.CachedTokens.V, r.PromptTokens)
	case r.After < 0 || r.After > n || r.After == i+1:
		return bad("after %d, want another request's position, 1 to %d", r.After, n)
	case r.Loop < 0 || r.Queued && (r.Loop == 0 || r.After > 0):
		return bad("loop %d after %d, want a loop of 1 or more and no predecessor for a queued request", r.Loop, r.After)
	case r.With < 0 || r.With > n || r.With == i+1 || r.With > 0 && (r.After > 0 || r.Loop > 0):
		return bad("with %d after %d loop %d, want another request's position, 1 to %d, and nothing else", r.With, r.After, r.Loop, n)
	case (r.AbortAtUs.OK || r.AbortAfterUs.OK) && !slices.Contains(abortOutcomes, r.AbortKind):
		return bad("abort outcome %q, want aborted, timed_out or finished", r.AbortKind)
	}
	return nil
}

// Result is one simulated run.
type Result struct {
	Requests        []RequestResult // in workload order; nil from Stream
	Steps           int64           // schedule() calls, empty ones included
	EmptySteps      int64
	DummySteps      int64 // forward passes of a rank with nothing to do, while others work
	WaitedUs        int64 // of BusyUs: for slower ranks
	ScheduledTokens int64
	PrefillTokens   int64 // computed, recomputation included
	DecodeTokens    int64
	WastedTokens    int64 // scheduled for requests that had already stopped
	Verifies        int64 // steps of requests that verified drafts
	DraftTokens     int64 // verified
	AcceptedTokens  int64 // of them accepted, those behind a stop included
	Preemptions     int64
	HitTokens       int64 // prompt tokens served from the prefix cache, first admissions
	LookedUpTokens  int64 // prompt tokens of first admissions
	StoredBlocks    int64 // GPU->CPU
	LoadedBlocks    int64 // CPU->GPU
	ClippedSteps    int64
	ClippedDelays   int64
	BusyUs          int64 // sum of execution times
	EndUs           int64 // last event
	PeakRunning     int64
	PeakWaiting     int64
	PeakBlocks      int64
	HitBlocks       int64           // KV blocks found in the cache, every admission
	NewBlocks       int64           // KV blocks taken to be filled: of prompts, outputs and, as BLIS takes one, of a last token
	Gaps            *stat.Histogram // of the token gaps of finished requests, us; nil without Config.TokenGaps
	Sent            int64           // requests that came to its API
	Ranks           []*Result       // of a data-parallel deployment, nil of one engine
	Stopped         bool            // by the caller, before all had left
	Findings        []trace.Finding
}
