package trace

// This file is a row of the table of requests, with the times that follow from it.

import "math"

// Source values of a Request.
const (
	SourceFork  = "fork"  // journey tracing: API and core spans with events
	SourceStock = "stock" // unmodified vLLM: gen_ai.latency.* attributes only
)

// Finish status values of a core span.
const (
	FinishStopped = "stopped"
	FinishLength  = "length"
	FinishAborted = "aborted"
	FinishIgnored = "ignored"
	FinishError   = "error"
)

// Request is one row of `requests`: one per core span, one per API span
// without a core span (CoreID unknown), one per stock span.
type Request struct {
	CoreID          Opt[string]  `col:"core_id" doc:"internal request id of the core span; null for an API span without a core span"`
	APIID           Opt[string]  `col:"api_id" doc:"request id of the linked API span (or of the stock span)"`
	Source          string       `col:"source" doc:"fork or stock"`
	Link            string       `col:"link" doc:"how API and core were joined: parent, prefix, none"`
	TraceID         Opt[string]  `col:"trace_id" doc:"hex trace id"`
	APISpanID       Opt[string]  `col:"api_span_id" doc:"hex span id of llm_request"`
	CoreSpanID      Opt[string]  `col:"core_span_id" doc:"hex span id of llm_core"`
	Route           Opt[string]  `col:"route" doc:"http.route of the API span"`
	Model           Opt[string]  `col:"model" doc:"gen_ai.response.model of the API span"`
	ArrivedNs       Opt[int64]   `col:"arrived_ns" unit:"ns" doc:"api.ARRIVED, monotonic"`
	HandoffNs       Opt[int64]   `col:"handoff_ns" unit:"ns" doc:"api.HANDOFF_TO_CORE, monotonic; chat only"`
	FirstResponseNs Opt[int64]   `col:"first_response_ns" unit:"ns" doc:"api.FIRST_RESPONSE_FROM_CORE, monotonic; chat only"`
	DepartedNs      Opt[int64]   `col:"departed_ns" unit:"ns" doc:"api.DEPARTED, monotonic"`
	AbortedNs       Opt[int64]   `col:"aborted_ns" unit:"ns" doc:"api.ABORTED, monotonic"`
	QueuedNs        Opt[int64]   `col:"queued_ns" unit:"ns" doc:"journey.QUEUED, monotonic: the engine loop's pick-up, not the arrival"`
	ScheduledNs     Opt[int64]   `col:"scheduled_ns" unit:"ns" doc:"first journey.SCHEDULED (kind FIRST), monotonic"`
	FirstTokenNs    Opt[int64]   `col:"first_token_ns" unit:"ns" doc:"journey.FIRST_TOKEN, monotonic"`
	FinishedNs      Opt[int64]   `col:"finished_ns" unit:"ns" doc:"journey.FINISHED, monotonic"`
	QueuedStep      Opt[int64]   `col:"queued_step" doc:"scheduler.step of QUEUED"`
	ScheduledStep   Opt[int64]   `col:"scheduled_step" doc:"scheduler.step of the first SCHEDULED"`
	FirstTokenStep  Opt[int64]   `col:"first_token_step" doc:"scheduler.step of FIRST_TOKEN: the step that produced it"`
	FinishedStep    Opt[int64]   `col:"finished_step" doc:"scheduler.step of FINISHED: the producing step, or the current counter for aborts"`
	PromptTokens    Opt[int64]   `col:"prompt_tokens" unit:"tokens" doc:"prompt length, prefix-cache hits included"`
	CachedTokens    Opt[int64]   `col:"cached_tokens" unit:"tokens" doc:"prompt tokens served from cache: num_computed_tokens of the first snapshot with scheduled tokens; null without one"`
	HitTokens       Opt[int64]   `col:"hit_tokens" unit:"tokens" doc:"prompt - effective_prompt_len of that snapshot; null when the key or the snapshot is absent"`
	OutputTokens    Opt[int64]   `col:"output_tokens" unit:"tokens" doc:"decode.done_tokens at FINISHED, else usage of the API or stock span"`
	MaxTokens       Opt[int64]   `col:"max_tokens" unit:"tokens" doc:"requested maximum of output tokens"`
	N               Opt[int64]   `col:"n" doc:"gen_ai.request.n: samples asked for under one API span"`
	Preemptions     Opt[int64]   `col:"preemptions" doc:"cumulative preemptions at the last journey event"`
	FinishStatus    Opt[string]  `col:"finish_status" doc:"finish.status of the core span; aborted for a request that ended by a stop string"`
	Success         Opt[bool]    `col:"success" doc:"judged from the API span (DEPARTED); from finish_status without one; null when neither ended"`
	AbortReason     Opt[string]  `col:"abort_reason" doc:"reason of api.ABORTED"`
	Phase           Opt[string]  `col:"phase" doc:"phase of run.yaml that holds ARRIVED (or QUEUED without it); null outside all"`
	OverheadLoUs    Opt[float64] `col:"overhead_lo_us" unit:"us" doc:"lower bound of the overhead"`
	OverheadHiUs    Opt[float64] `col:"overhead_hi_us" unit:"us" doc:"upper bound of the overhead: QUEUED - ARRIVED; negative is kept here and dropped by fit"`
	OverheadExact   Opt[bool]    `col:"overhead_exact" doc:"the overhead equals QUEUED - ARRIVED"`
	StartWallNs     Opt[int64]   `col:"start_wall_ns" unit:"ns" doc:"span start, wall clock (API or stock span, else core span)"`
	EndWallNs       Opt[int64]   `col:"end_wall_ns" unit:"ns" doc:"span end, wall clock"`
	StockTTFTUs     Opt[float64] `col:"stock_ttft_us" unit:"us" doc:"gen_ai.latency.time_to_first_token"`
	StockE2EUs      Opt[float64] `col:"stock_e2e_us" unit:"us" doc:"gen_ai.latency.e2e"`
	StockQueueUs    Opt[float64] `col:"stock_queue_us" unit:"us" doc:"gen_ai.latency.time_in_queue"`
	StockPrefillUs  Opt[float64] `col:"stock_prefill_us" unit:"us" doc:"gen_ai.latency.time_in_model_prefill: chunking and co-batched decodes included"`
	StockDecodeUs   Opt[float64] `col:"stock_decode_us" unit:"us" doc:"gen_ai.latency.time_in_model_decode"`
	StockInferUs    Opt[float64] `col:"stock_inference_us" unit:"us" doc:"gen_ai.latency.time_in_model_inference"`
	DroppedEvents   int64        `col:"dropped_events" doc:"droppedEventsCount of the core span"`
	File            string       `col:"file" doc:"input file of the core span (else API or stock span), relative to the run directory"`
	CoreLine        Opt[int64]   `col:"core_line" doc:"line (JSON) or message (protobuf) of the core span in its file"`
	APILine         Opt[int64]   `col:"api_line" doc:"line or message of the API or stock span in its file"`
}

// CameNs returns the stamp (ns) at which the request arrived or, if that is unknown, was queued. It
// returns MaxInt64-1 if both are unknown, so that such a request belongs to the last slice of a
// run.
func (r *Request) CameNs() int64 { return r.ArrivedNs.Or(r.QueuedNs.Or(math.MaxInt64 - 1)) }

// TTFTMs returns FIRST_TOKEN - ARRIVED in ms, or the time to first token of a stock span. It
// returns false if the stamps are unknown.
func (r *Request) TTFTMs() (float64, bool) {
	if r.Source == SourceStock {
		return r.StockTTFTUs.V / 1e3, r.StockTTFTUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.FirstTokenNs)
}

// E2EMs returns DEPARTED - ARRIVED in ms, or the e2e of a stock span. It returns false for a
// request that did not succeed, and if the stamps are unknown.
func (r *Request) E2EMs() (float64, bool) {
	if r.Success.OK && !r.Success.V {
		return 0, false
	}
	if r.Source == SourceStock {
		return r.StockE2EUs.V / 1e3, r.StockE2EUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.DepartedNs)
}

// BetweenMs returns the time between two stamps in ms, and false if one of them is unknown.
func BetweenMs(from, to Opt[int64]) (float64, bool) {
	if !from.OK || !to.OK {
		return 0, false
	}
	return float64(to.V-from.V) / 1e6, true
}

// ArrivalNs returns the stamp ARRIVED, else QUEUED, else the wall-clock start of a stock span, ns.
// It returns false if all are unknown.
func (r *Request) ArrivalNs() (int64, bool) {
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return r.StartWallNs.V, r.StartWallNs.OK && r.Source == SourceStock
}

// clientDisconnect is the AbortReason of a request that vLLM aborted because its client closed the
// connection.
const clientDisconnect = "client_disconnect"

// Failed reports whether the request ended without success, unless its client aborted it.
func (r *Request) Failed() bool {
	return r.Success.OK && !r.Success.V && !r.ClientAborted()
}

// ClientAborted reports whether the client aborted the request.
func (r *Request) ClientAborted() bool {
	if !r.Success.OK || r.Success.V {
		return false
	}
	if r.AbortReason.OK {
		return r.AbortReason.V == clientDisconnect
	}
	return r.FinishStatus.Or("") == FinishAborted
}

// DepartureNs returns the stamp (ns) at which the request left the server, on the clock of
// ArrivalNs, and false if it is unknown.
func (r *Request) DepartureNs() (int64, bool) {
	if r.Source == SourceStock {
		return r.StartWallNs.V + Ns(r.StockE2EUs.V), r.StockE2EUs.OK && r.StartWallNs.OK
	}
	for _, at := range []Opt[int64]{r.DepartedNs, r.FinishedNs, r.AbortedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return 0, false
}

// RunsBackwards reports whether a later event of the request has an earlier stamp.
func (r *Request) RunsBackwards() bool {
	last := int64(math.MinInt64)
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs, r.ScheduledNs, r.FirstTokenNs, r.FinishedNs,
		r.DepartedNs} {
		if !at.OK {
			continue
		}
		if at.V < last {
			return true
		}
		last = at.V
	}
	return false
}
