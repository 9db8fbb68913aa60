package simulate

// This file has the figures of a run.

import (
	"slices"

	"github.com/blis-train/blis-train/sim"
)

// Summary is the figures of a run. Keys that BLIS's metrics also have mean the same (sim/metrics.go
// and sim/kv/cache.go of inference-sim@f90a1e3). The schema of the document describes each key.
type Summary struct {
	InjectedRequests     int            `json:"injected_requests"`
	CompletedRequests    int            `json:"completed_requests"`
	RejectedRequests     int            `json:"dropped_unservable"`
	Rejections           map[string]int `json:"rejected_by_reason"` // of codes of the engine or words of the gateway
	AbortedRequests      int            `json:"aborted_requests"`
	TimedOutRequests     int            `json:"timed_out_requests"`
	UnfinishedRequests   int            `json:"unfinished_requests"`
	LengthCappedRequests int            `json:"length_capped_requests"` // cut at max_model_len
	FinishedByMaxTokens  int            `json:"finished_by_max_tokens"` // finish_status length and not cut
	TotalInputTokens     int64          `json:"total_input_tokens"`     // of requests that reached the queue
	CompletedInputTokens int64          `json:"completed_input_tokens"`
	TotalOutputTokens    int64          `json:"total_output_tokens"`       // of completed requests
	EndS                 float64        `json:"vllm_estimated_duration_s"` // from 0 of the clock, or of wall-clock stamps from the first arrival, to the last token
	DurationS            float64        `json:"duration_s"`                // from the first arrival to the last departure
	ResponsesPerSec      float64        `json:"responses_per_sec"`         // over EndS, as the next
	TokensPerSec         float64        `json:"tokens_per_sec"`
	E2EMeanMs            *float64       `json:"e2e_mean_ms"` // of finished requests
	E2EP50Ms             *float64       `json:"e2e_p50_ms"`
	E2EP90Ms             *float64       `json:"e2e_p90_ms"`
	E2EP95Ms             *float64       `json:"e2e_p95_ms"`
	E2EP99Ms             *float64       `json:"e2e_p99_ms"`
	TTFTMeanMs           *float64       `json:"ttft_mean_ms"` // of requests with a first token
	TTFTP50Ms            *float64       `json:"ttft_p50_ms"`
	TTFTP90Ms            *float64       `json:"ttft_p90_ms"`
	TTFTP95Ms            *float64       `json:"ttft_p95_ms"`
	TTFTP99Ms            *float64       `json:"ttft_p99_ms"`
	CompletedTTFTMeanMs  *float64       `json:"completed_ttft_mean_ms"` // of finished requests
	CompletedTTFTP50Ms   *float64       `json:"completed_ttft_p50_ms"`
	CompletedTTFTP90Ms   *float64       `json:"completed_ttft_p90_ms"`
	CompletedTTFTP95Ms   *float64       `json:"completed_ttft_p95_ms"`
	CompletedTTFTP99Ms   *float64       `json:"completed_ttft_p99_ms"`
	ITLMeanMs            *float64       `json:"itl_mean_ms"` // over the gaps between tokens of finished requests
	ITLP50Ms             *float64       `json:"itl_p50_ms"`
	ITLP90Ms             *float64       `json:"itl_p90_ms"`
	ITLP95Ms             *float64       `json:"itl_p95_ms"`
	ITLP99Ms             *float64       `json:"itl_p99_ms"`
	RequestITLMeanMs     *float64       `json:"request_itl_mean_ms"` // over finished requests, of each its mean gap
	RequestITLP50Ms      *float64       `json:"request_itl_p50_ms"`
	RequestITLP90Ms      *float64       `json:"request_itl_p90_ms"`
	RequestITLP95Ms      *float64       `json:"request_itl_p95_ms"`
	RequestITLP99Ms      *float64       `json:"request_itl_p99_ms"`
	SchedulingMeanMs     *float64       `json:"scheduling_delay_mean_ms"` // from the arrival to the first schedule
	SchedulingP50Ms      *float64       `json:"scheduling_delay_p50_ms"`
	SchedulingP90Ms      *float64       `json:"scheduling_delay_p90_ms"`
	SchedulingP95Ms      *float64       `json:"scheduling_delay_p95_ms"`
	SchedulingP99Ms      *float64       `json:"scheduling_delay_p99_ms"`
	QueueWaitMeanMs      *float64       `json:"queue_wait_mean_ms"` // from the engine's queue to the first schedule
	QueueWaitP50Ms       *float64       `json:"queue_wait_p50_ms"`
	QueueWaitP90Ms       *float64       `json:"queue_wait_p90_ms"`
	QueueWaitP95Ms       *float64       `json:"queue_wait_p95_ms"`
	QueueWaitP99Ms       *float64       `json:"queue_wait_p99_ms"`
	PreemptionCount      int64          `json:"preemption_count"`
	DraftTokens          int64          `json:"draft_tokens,omitempty"`      // verified
	AcceptedTokens       int64          `json:"accepted_tokens,omitempty"`   // of them
	TokensPerVerify      float64        `json:"tokens_per_verify,omitempty"` // 1 + accepted/verifies
	CacheHitRate         *float64       `json:"cache_hit_rate"`              // KV blocks found / (found + filled)
	PromptCacheHitRate   *float64       `json:"prompt_cache_hit_rate"`       // prompt tokens found / prompt tokens, first admissions
	GoodputRPS           *float64       `json:"goodput_rps"`                 // over EndS

	Steps        int64   `json:"steps"`          // calls of the scheduler
	EmptySteps   int64   `json:"empty_steps"`    // of these, those that scheduled no token
	WastedTokens int64   `json:"wasted_tokens"`  // scheduled for requests that had already stopped
	BusyShare    float64 `json:"busy_share"`     // execution time / DurationS
	PeakRunning  int64   `json:"peak_running"`   // most requests at once
	PeakWaiting  int64   `json:"peak_waiting"`   // most requests at once
	PeakBlocks   int64   `json:"peak_kv_blocks"` // most in use at once

	Ranks []EnginePart `json:"ranks,omitempty"` // of a data-parallel deployment

	Overload saturation `json:"overload"`
	Classes  []Class    `json:"service_classes"`

	spreads [3]spread // TTFT, ITL and E2E
}

// Latency returns one figure of a latency over requests, ms; nil if no request has that latency.
// metric is ttft, itl (over tokens) or e2e; figure is mean, p50, p90, p95 or p99.
func (s *Summary) Latency(metric, figure string) *float64 {
	return s.spreads[slices.Index(latencyMetrics, metric)][slices.Index(spreadFigures, figure)]
}

var (
	latencyMetrics = []string{"ttft", "itl", "e2e"} // of Summary.spreads
	spreadFigures  = []string{"mean", "p50", "p90", "p95", "p99"}
)

// EnginePart is the counts of one engine in a deployment of several.
type EnginePart struct {
	Role        string `json:"role,omitempty"` // prefill or decode
	Requests    int64  `json:"requests"`
	Steps       int64  `json:"steps"`
	DummySteps  int64  `json:"dummy_steps,omitempty"` // forward passes with nothing to do, while other ranks work
	WaitedUs    int64  `json:"waited_us,omitempty"`   // of busy_us: for slower ranks
	Preemptions int64  `json:"preemptions"`
	BusyUs      int64  `json:"busy_us"`
	PeakRunning int64  `json:"peak_running"`
	PeakWaiting int64  `json:"peak_waiting"`

	Ranks []EnginePart `json:"ranks,omitempty"` // of a data-parallel instance
}

// PartOf returns the counts of an engine.
func PartOf(e *sim.Result) EnginePart {
	p := EnginePart{
		Requests:    e.Sent,
		Steps:       e.Steps,
		DummySteps:  e.DummySteps,
		WaitedUs:    e.WaitedUs,
		Preemptions: e.Preemptions,
		BusyUs:      e.BusyUs,
		PeakRunning: e.PeakRunning,
		PeakWaiting: e.PeakWaiting,
	}
	for _, rank := range e.Ranks {
		p.Ranks = append(p.Ranks, PartOf(rank))
	}
	return p
}

// saturation states whether the engine was overloaded, and by which checks (spec#saturation).
type saturation struct {
	Saturated bool              `json:"saturated"`
	Checks    []saturationCheck `json:"checks"`
}

// saturationCheck is one checked value and its limit.
type saturationCheck struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"` // null: not measurable on these requests
	Limit float64  `json:"limit"`
	Hit   bool     `json:"hit"`
}

// Class is the summary of one service class. Judged counts the requests with a target, Met those
// that met it.
type Class struct {
	Name       string   `json:"name"`
	Requests   int      `json:"requests"`
	Completed  int      `json:"completed"`
	Judged     int      `json:"judged"`
	Met        int      `json:"met"`
	Attainment *float64 `json:"slo_attainment"`
	GoodputRPS *float64 `json:"goodput_rps"`
	TTFTP50Ms  *float64 `json:"ttft_p50_ms"`
	TTFTP99Ms  *float64 `json:"ttft_p99_ms"`
	E2EP50Ms   *float64 `json:"e2e_p50_ms"`
	E2EP99Ms   *float64 `json:"e2e_p99_ms"`
}
