package sim

// This file adds up the results of several engines.

import (
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// counts returns pointers to the fields that Totals sums over engines.
func (r *Result) counts() []*int64 {
	return []*int64{&r.Steps, &r.EmptySteps, &r.DummySteps, &r.WaitedUs, &r.ScheduledTokens, &r.PrefillTokens,
		&r.DecodeTokens,
		&r.WastedTokens, &r.Verifies, &r.DraftTokens, &r.AcceptedTokens, &r.Preemptions, &r.HitTokens,
		&r.LookedUpTokens, &r.HitBlocks,
		&r.NewBlocks, &r.StoredBlocks, &r.LoadedBlocks, &r.ClippedSteps, &r.ClippedDelays, &r.BusyUs, &r.Sent}
}

// Totals returns the sum of the counts of several engines. Peaks are the largest of any engine, EndUs
// is the last, and BusyUs is the mean, so that BusyUs/EndUs is still a share of time.
func Totals(engines []*Result) *Result {
	sum := &Result{}
	for _, e := range engines {
		of := e.counts()
		for k, to := range sum.counts() {
			*to += *of[k]
		}
		sum.EndUs = max(sum.EndUs, e.EndUs)
		sum.PeakRunning = max(sum.PeakRunning, e.PeakRunning)
		sum.PeakWaiting = max(sum.PeakWaiting, e.PeakWaiting)
		sum.PeakBlocks = max(sum.PeakBlocks, e.PeakBlocks)
		sum.Findings = append(sum.Findings, e.Findings...)
		if e.Gaps != nil {
			if sum.Gaps == nil {
				sum.Gaps = stat.NewHistogram()
			}
			sum.Gaps.Merge(e.Gaps)
		}
	}
	sum.BusyUs /= int64(max(1, len(engines)))
	return sum
}

// Outcome is how a request ended.
type Outcome string

// Outcomes. A request still inside when Config.StopUs is reached is unfinished.
const (
	OutcomeFinished   Outcome = "finished"
	OutcomeRejected   Outcome = "rejected"
	OutcomeAborted    Outcome = "aborted"
	OutcomeTimedOut   Outcome = "timed_out"
	OutcomeUnfinished Outcome = "unfinished"
)

// RequestResult is what happened to one request. Stamps are us of simulated time, unknown if the
// event did not happen. TTFT = FirstToken - Arrival, E2E = Departed - Arrival, ITL = (Finished -
// FirstToken) / (Output - 1).
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
	PromptTokens int64      `col:"prompt_tokens" unit:"tokens" doc:"prompt length"`
	CachedTokens int64      `col:"cached_tokens" unit:"tokens" doc:"prompt tokens served from cache at first admission"`
	OutputTokens int64      `col:"output_tokens" unit:"tokens" doc:"tokens produced"`
	Preemptions  int64      `col:"preemptions" doc:"times it was preempted"`
	LengthCapped bool       // cut at max_model_len, before its own end and its max_tokens
	Starved      bool       // waited, or was preempted, because no KV blocks were free
	Outcome      Outcome    `col:"outcome" doc:"finished, rejected, aborted, timed_out or unfinished"`
	Reason       trace.Code `col:"reason" doc:"code of a rejection"`
	// trace.FinishStopped, ...
	FinishStatus  string          `col:"finish_status" doc:"stopped, length, aborted or ignored"`
	SLOClass      string          `col:"slo_class" doc:"service class"`
	SLOMet        trace.Opt[bool] `col:"slo_met" doc:"met its targets; null without targets"`
	TokenUs       float64         // Config.TokenUs, part of TTFT, ITL and E2E
	Gradient      *gradient       // with Config.Gradient, of a finished request; reused after it was reported
	QueuedStep    int64           // last step before pick-up; scheduler.step of QUEUED
	ScheduledStep int64           `col:"scheduled_step" doc:"step of the first schedule; 0 = none"`
	FirstStep     int64           `col:"first_token_step" doc:"step that produced the first token; 0 = none"`
	FinishedStep  int64           `col:"finished_step" doc:"step of the finish; 0 = none"`
}

// latencies are the columns of requests.parquet that Timed computes from the stamps and, with
// Config.RequestGaps, the quantiles of the token gaps.
type latencies struct {
	QueueWaitMs trace.Opt[float64] `col:"queue_wait_ms" unit:"ms" doc:"SCHEDULED - QUEUED"`
	TTFTMs      trace.Opt[float64] `col:"ttft_ms" unit:"ms" doc:"first token - arrival"`
	ITLMs       trace.Opt[float64] `col:"itl_ms" unit:"ms" doc:"mean gap between tokens"`
	ITLP50Ms    trace.Opt[float64] `col:"itl_p50_ms" unit:"ms" doc:"median gap between tokens"`
	ITLP99Ms    trace.Opt[float64] `col:"itl_p99_ms" unit:"ms" doc:"99th percentile of the gaps"`
	E2EMs       trace.Opt[float64] `col:"e2e_ms" unit:"ms" doc:"departure - arrival"`
}

// Timed computes the latencies of r and returns r, which is then a row of requests.parquet.
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

// TTFTUs returns the time to first token, us; false without a first token.
func (r *RequestResult) TTFTUs() (float64, bool) {
	return float64(r.FirstTokenUs.V-r.ArrivalUs) + r.TokenUs, r.FirstTokenUs.OK
}

// E2EUs returns the time from arrival to departure, us; false unless the request finished.
func (r *RequestResult) E2EUs() (float64, bool) {
	return float64(r.DepartedUs.V-r.ArrivalUs) + r.TokenUs*float64(r.OutputTokens), r.DepartedUs.OK &&
		r.Outcome == OutcomeFinished
}

// ITLUs returns the mean gap between tokens, us; false for fewer than two output tokens.
func (r *RequestResult) ITLUs() (float64, bool) {
	if !r.FirstTokenUs.OK || !r.FinishedUs.OK || r.OutputTokens < 2 {
		return 0, false
	}
	return float64(r.FinishedUs.V-r.FirstTokenUs.V)/float64(r.OutputTokens-1) + r.TokenUs, true
}

// result returns the result of a request that has just arrived, at atUs.
func (r *Request) result(atUs int64) RequestResult {
	return RequestResult{ID: r.ID, ArrivalUs: atUs, PromptTokens: r.PromptTokens, SLOClass: r.SLOClass,
		Outcome: OutcomeUnfinished}
}

// Judge sets SLOMet: whether the departed request met all targets of q. Without targets it stays
// unknown.
func (r *RequestResult) Judge(q *Request) {
	if q.SLOTTFTUs == 0 && q.SLOE2EUs == 0 && q.SLOITLUs == 0 {
		return
	}
	ttft, ok1 := r.TTFTUs()
	e2e, ok2 := r.E2EUs()
	itl, gaps := r.ITLUs()
	// A request that did not finish misses its targets; one of a single token has no gaps to be late.
	met := ok1 && ok2 && (q.SLOTTFTUs == 0 || ttft <= float64(q.SLOTTFTUs)) &&
		(q.SLOE2EUs == 0 || e2e <= float64(q.SLOE2EUs)) && (q.SLOITLUs == 0 || !gaps || itl <= float64(q.SLOITLUs))
	r.SLOMet = trace.Some(met)
}

// Result is one simulated run. Times are us.
type Result struct {
	Requests        []RequestResult // in workload order; nil from Stream
	Steps           int64           // schedule() calls, empty ones included
	EmptySteps      int64           // of these, those that scheduled no token
	DummySteps      int64           // forward passes of a rank with nothing to do, while others work
	WaitedUs        int64           // the part of BusyUs spent waiting for slower ranks
	ScheduledTokens int64
	PrefillTokens   int64 // computed prompt tokens, including recomputation
	DecodeTokens    int64
	WastedTokens    int64 // tokens scheduled for requests that had already stopped
	Verifies        int64 // number of times that a step verified drafts of a request
	DraftTokens     int64 // verified drafts
	AcceptedTokens  int64 // accepted drafts, including those after a stop
	Preemptions     int64
	HitTokens       int64           // prompt tokens from the prefix cache, first admissions only
	LookedUpTokens  int64           // prompt tokens of first admissions
	StoredBlocks    int64           // GPU->CPU
	LoadedBlocks    int64           // CPU->GPU
	ClippedSteps    int64           // steps of a predicted time below 1 us
	ClippedDelays   int64           // delays of a predicted time below 0
	BusyUs          int64           // sum of execution times
	EndUs           int64           // last event
	PeakRunning     int64           // most requests running at once
	PeakWaiting     int64           // most requests waiting at once
	PeakBlocks      int64           // most KV blocks in use at once
	HitBlocks       int64           // KV blocks found in the cache, every admission
	NewBlocks       int64           // KV blocks taken to be filled, as BLIS counts them (with that of a last token)
	Gaps            *stat.Histogram // of the token gaps of finished requests, us; nil without Config.TokenGaps
	Sent            int64           // requests sent to its API
	Ranks           []*Result       // result of each data-parallel rank; nil for one engine
	Stopped         bool            // the caller stopped the run before all requests had left
	Findings        []trace.Finding
}
