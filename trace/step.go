package trace

// This file has the rows of one iteration of the scheduler and of the requests in it.

// Step is one step.BATCH_SUMMARY event of vLLM's step tracing: one call of schedule()
// (vllm/v1/core/sched/scheduler.py). A long recording has millions, so counts take four bytes, which hold more than
// their legal range (Range), and stand together, because one alone is padded to eight.
type Step struct {
	ID              int64   `col:"step_id" doc:"per-engine counter, +1 per schedule() call"`
	TsStartNs       int64   `col:"ts_start_ns" unit:"ns" doc:"entry of schedule(), monotonic"`
	TsEndNs         int64   `col:"ts_end_ns" unit:"ns" doc:"end of schedule(), monotonic: before execution"`
	DurationUs      int64   `col:"duration_us" unit:"us" doc:"scheduler CPU time, NOT the step time"`
	RunningDepth    int32   `col:"running_depth" unit:"requests" doc:"running after admission of this step"`
	WaitingDepth    int32   `col:"waiting_depth" unit:"requests" doc:"waiting after admission of this step"`
	NumPrefillReqs  int32   `col:"num_prefill_reqs" unit:"requests" doc:"as labelled (async: first decode counts as prefill)"`
	NumDecodeReqs   int32   `col:"num_decode_reqs" unit:"requests" doc:"as labelled"`
	ScheduledTokens int32   `col:"scheduled_tokens" unit:"tokens" doc:"all tokens of the step"`
	PrefillTokens   int32   `col:"prefill_tokens" unit:"tokens" doc:"as labelled"`
	DecodeTokens    int32   `col:"decode_tokens" unit:"tokens" doc:"as labelled; recompute after preemption counts here"`
	NumFinished     int32   `col:"num_finished" unit:"requests" doc:"finished between the previous and this step"`
	NumPreempted    int32   `col:"num_preempted" unit:"requests" doc:"preempted in this step"`
	NumSnapshots    int32   `col:"num_snapshots" place:"last" doc:"snapshots recorded for this step"`
	KVUsage         float64 `col:"kv_usage_ratio" doc:"1 - free/total GPU blocks, 0..1"`
	BlocksTotal     int64   `col:"kv_blocks_total" unit:"blocks" doc:"GPU KV blocks without the null block"`
	BlocksFree      int64   `col:"kv_blocks_free" unit:"blocks" doc:"free GPU KV blocks"`
	WallNs          int64   `col:"wall_ns" unit:"ns" doc:"timeUnixNano of the event"`
	SpanSequence    int64   `col:"span_sequence" doc:"scheduler.span_sequence of its span; 0 in dumps without it"`
}

// Snapshot is one step.REQUEST_SNAPSHOT event: the state of one running request before the tokens
// of a step.
type Snapshot struct {
	StepID             int64      `col:"step_id" doc:"the step it belongs to"`
	CoreID             string     `col:"core_id" doc:"internal request id"`
	Phase              string     `col:"phase" doc:"as labelled; wrong on the first decode of async runs"`
	PromptTokens       int64      `col:"num_prompt_tokens" unit:"tokens" doc:"prompt length p"`
	ComputedTokens     int64      `col:"num_computed_tokens" unit:"tokens" doc:"tokens in KV before the step, c"`
	OutputTokens       int64      `col:"num_output_tokens" unit:"tokens" doc:"lags by one under async scheduling"`
	Preemptions        int64      `col:"num_preemptions" doc:"cumulative"`
	ScheduledTokens    int64      `col:"scheduled_tokens" unit:"tokens" doc:"tokens of this request in this step, n; 0 = running but unscheduled"`
	BlocksAllocated    int64      `col:"kv_blocks_allocated" unit:"blocks" doc:"this step's allocation included"`
	BlocksCached       int64      `col:"kv_blocks_cached" unit:"blocks" doc:"registered in the prefix cache, NOT hits"`
	EffectivePromptLen Opt[int64] `col:"effective_prompt_len" unit:"tokens" doc:"prompt - cached tokens; null on a full hit"`
	Orphan             bool       `col:"orphan" doc:"its step's BATCH_SUMMARY was lost"`
}

// Chunk is what one request does in one step: c tokens already in KV, a prompt
// of p tokens, n tokens scheduled now (spec#members).
type Chunk struct {
	Computed int64 // c, tokens
	Prompt   int64 // p, tokens
	New      int64 // n, tokens
}

// IsDecode reports whether the chunk is a decode: c >= p and n = 1 (spec#phases).
// Recorded phase labels are not used.
func (c Chunk) IsDecode() bool { return c.Computed >= c.Prompt && c.New == 1 }

// Member is the Chunk of one request of a batch, with the request's id.
type Member struct {
	CoreID string
	Chunk
}
