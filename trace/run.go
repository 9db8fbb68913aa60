package trace

import (
	"errors"
	"math"
)

// The struct tags below are the table schema: `col` is the column's name on
// disk, `unit` its unit (Arrow field metadata), `doc` its meaning. trace/table
// derives Arrow schemas, Parquet files and docs/tables.md from them.

// Run is everything recorded of one engine run, in memory. Slices are in the
// tables' stable row order: requests by (arrived, queued, wall start, id), journey events by
// (core id, emission order), steps and snapshots by step id (snapshots: then file
// order), KV events in file order, observed requests by (send, id).
type Run struct {
	ID         string
	Requests   []Request
	Events     []JourneyEvent
	Steps      []Step
	Snapshots  []Snapshot
	KVEvents   []KVEvent
	Observed   []ObservedRequest
	Iterations []Iteration // what an unmodified engine wrote of its passes, in its order
	Points     []LoadPoint // what benchmarks printed of load levels, by file and line

	// Aggregate is what Iterations tell of Steps, when Steps were made from them.
	Aggregate *Aggregate `json:"-"`

	// Stored begins a pass over snapshots that stay on disk: they are most of a
	// long recording. Nil: Snapshots holds them. OpenSnapshots knows which.
	Stored func() (SnapshotCursor, error) `json:"-"`

	// Slice is the stretch of a longer run that is asked about; the rest is there for what
	// runs across its borders. Nil: all of it is asked about.
	Slice *Slice `json:"-"`
}

// Slice is [FromNs, ToNs) of a run whose steps start from FirstNs to LastNs. The first slice has
// all that is earlier, the last one all that is later.
type Slice struct{ FromNs, ToNs, FirstNs, LastNs int64 }

// IsFirst reports that nothing of the run lies before the slice.
func (s *Slice) IsFirst() bool { return s.FromNs == math.MinInt64 }

// Asks reports whether the run is asked about what happens at ns.
func (r *Run) Asks(ns int64) bool { return r.Slice == nil || r.Slice.FromNs <= ns && ns < r.Slice.ToNs }

// AsksFor reports whether it is asked about a request.
func (r *Run) AsksFor(q *Request) bool { return r.Asks(q.CameNs()) }

// CameNs is when a request arrived, or was queued; MaxInt64-1 where nobody knows.
func (r *Request) CameNs() int64 { return r.ArrivedNs.Or(r.QueuedNs.Or(math.MaxInt64 - 1)) }

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
	FinishStatus    Opt[string]  `col:"finish_status" doc:"finish.status of the core span; a stop-string finish says aborted"`
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

// JourneyEvent is one journey.* event of a core span.
type JourneyEvent struct {
	CoreID       string      `col:"core_id" doc:"internal request id"`
	Kind         string      `col:"kind" doc:"QUEUED, SCHEDULED, FIRST_TOKEN, PREEMPTED or FINISHED"`
	TsNs         Opt[int64]  `col:"ts_ns" unit:"ns" doc:"ts.monotonic_ns, or ts.monotonic in older dumps"`
	WallNs       int64       `col:"wall_ns" unit:"ns" doc:"timeUnixNano"`
	Step         Opt[int64]  `col:"step" doc:"scheduler.step: that of the work for SCHEDULED, PREEMPTED, FIRST_TOKEN and FINISHED; of QUEUED the counter so far"`
	Phase        Opt[string] `col:"phase" doc:"WAITING, PREFILL or DECODE as recorded"`
	PrefillDone  Opt[int64]  `col:"prefill_done_tokens" unit:"tokens" doc:"high-water mark, cached tokens included"`
	PrefillTotal Opt[int64]  `col:"prefill_total_tokens" unit:"tokens" doc:"prompt length"`
	DecodeDone   Opt[int64]  `col:"decode_done_tokens" unit:"tokens" doc:"output tokens so far"`
	DecodeMax    Opt[int64]  `col:"decode_max_tokens" unit:"tokens" doc:"max_tokens"`
	Preemptions  Opt[int64]  `col:"num_preemptions" doc:"cumulative; incremented on PREEMPTED itself"`
	ScheduleKind Opt[string] `col:"schedule_kind" doc:"FIRST or RESUME on SCHEDULED"`
	FinishStatus Opt[string] `col:"finish_status" doc:"on FINISHED"`
}

// Step is one step.BATCH_SUMMARY.
type Step struct {
	ID              int64   `col:"step_id" doc:"per-engine counter, +1 per schedule() call"`
	TsStartNs       int64   `col:"ts_start_ns" unit:"ns" doc:"entry of schedule(), monotonic"`
	TsEndNs         int64   `col:"ts_end_ns" unit:"ns" doc:"end of schedule(), monotonic: before execution"`
	DurationUs      int64   `col:"duration_us" unit:"us" doc:"scheduler CPU time, NOT the step time"`
	RunningDepth    int64   `col:"running_depth" unit:"requests" doc:"running after admission of this step"`
	WaitingDepth    int64   `col:"waiting_depth" unit:"requests" doc:"waiting after admission of this step"`
	NumPrefillReqs  int64   `col:"num_prefill_reqs" unit:"requests" doc:"as labelled (async: first decode counts as prefill)"`
	NumDecodeReqs   int64   `col:"num_decode_reqs" unit:"requests" doc:"as labelled"`
	ScheduledTokens int64   `col:"scheduled_tokens" unit:"tokens" doc:"all tokens of the step"`
	PrefillTokens   int64   `col:"prefill_tokens" unit:"tokens" doc:"as labelled"`
	DecodeTokens    int64   `col:"decode_tokens" unit:"tokens" doc:"as labelled; recompute after preemption counts here"`
	NumFinished     int64   `col:"num_finished" unit:"requests" doc:"finished between the previous and this step"`
	NumPreempted    int64   `col:"num_preempted" unit:"requests" doc:"preempted in this step"`
	KVUsage         float64 `col:"kv_usage_ratio" doc:"1 - free/total GPU blocks, 0..1"`
	BlocksTotal     int64   `col:"kv_blocks_total" unit:"blocks" doc:"GPU KV blocks without the null block"`
	BlocksFree      int64   `col:"kv_blocks_free" unit:"blocks" doc:"free GPU KV blocks"`
	WallNs          int64   `col:"wall_ns" unit:"ns" doc:"timeUnixNano of the event"`
	SpanSequence    int64   `col:"span_sequence" doc:"scheduler.span_sequence of its span; 0 in dumps without it"`
	NumSnapshots    int64   `col:"num_snapshots" doc:"snapshots recorded for this step"`
}

// Snapshot is one step.REQUEST_SNAPSHOT: state before the step's tokens.
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

// KVEvent is one element of a KV-event line, copies of TP workers removed.
type KVEvent struct {
	WallS      float64     `col:"wall_s" unit:"s" doc:"publication time of the line, wall clock seconds"`
	Kind       string      `col:"kind" doc:"event class, e.g. BlockStored, TransferCompleted"`
	DPRank     Opt[int64]  `col:"dp_rank" doc:"data-parallel rank of the publisher"`
	Step       Opt[int64]  `col:"step" doc:"scheduler_step of the event (initiation step for transfers)"`
	RequestID  Opt[string] `col:"request_id" doc:"internal request id"`
	TransferID Opt[int64]  `col:"transfer_id" doc:"transfer counter"`
	SrcMedium  Opt[string] `col:"src_medium" doc:"GPU or CPU; the medium of non-transfer events"`
	DstMedium  Opt[string] `col:"dst_medium" doc:"GPU or CPU"`
	BlockCount Opt[int64]  `col:"block_count" unit:"blocks" doc:"blocks moved, stored, removed or evicted"`
	Success    Opt[bool]   `col:"success" doc:"true only if all worker copies succeeded"`
	Copies     int64       `col:"copies" doc:"identical copies seen (one per TP worker)"`
	BlockSize  Opt[int64]  `col:"block_size" unit:"tokens" doc:"BlockStored only"`
	Hashes     []string    `col:"block_hashes" doc:"block hashes as decimal uint64 or base64 text, in order"`
	Parent     Opt[string] `col:"parent_hash" doc:"hash of the block before the first stored one"`
	Line       int64       `col:"line" doc:"line in the KV event file"`
}

// ObservedRequest is one request as its client saw it.
type ObservedRequest struct {
	ID            string       `json:"id" col:"request_id" doc:"client's id"`
	Source        string       `json:"-" col:"source" doc:"client, guidellm, tracev2, llmservingsim, vllm_bench, aiperf, sglang or inference_perf"`
	CoreID        Opt[string]  `json:"-" col:"core_id" doc:"joined core span, by id prefix"`
	Phase         Opt[string]  `json:"phase" col:"phase" doc:"workload phase"`
	Route         Opt[string]  `json:"route" col:"route" doc:"completions or chat"`
	ArrivalNs     Opt[int64]   `json:"intended_ns" col:"arrival_ns" unit:"ns" doc:"planned arrival (intended_ns, arrival_time_us)"`
	SendNs        Opt[int64]   `json:"send_ns" col:"send_ns" unit:"ns" doc:"request sent, client clock"`
	FirstChunkNs  Opt[int64]   `json:"first_chunk_ns" col:"first_chunk_ns" unit:"ns" doc:"first output chunk"`
	LastChunkNs   Opt[int64]   `json:"last_chunk_ns" col:"last_chunk_ns" unit:"ns" doc:"last output chunk"`
	EndNs         Opt[int64]   `json:"end_ns" col:"end_ns" unit:"ns" doc:"response closed"`
	QueuedNs      Opt[int64]   `json:"-" col:"queued_ns" unit:"ns" doc:"engine pick-up, engine clock (llmservingsim)"`
	ScheduledNs   Opt[int64]   `json:"-" col:"scheduled_ns" unit:"ns" doc:"first scheduling, engine clock (llmservingsim)"`
	EngineFirstNs Opt[int64]   `json:"-" col:"engine_first_token_ns" unit:"ns" doc:"first token, engine clock (llmservingsim)"`
	EngineLastNs  Opt[int64]   `json:"-" col:"engine_last_token_ns" unit:"ns" doc:"last token, engine clock (llmservingsim)"`
	SendWallNs    Opt[int64]   `json:"send_wall_ns" col:"send_wall_ns" unit:"ns" doc:"send time, wall clock"`
	AskedTokens   Opt[int64]   `json:"output_tokens" col:"asked_tokens" unit:"tokens" doc:"output tokens asked for"`
	PromptTokens  Opt[int64]   `json:"prompt_tokens" col:"prompt_tokens" unit:"tokens" doc:"prompt tokens (server's count when given)"`
	OutputTokens  Opt[int64]   `json:"-" col:"output_tokens" unit:"tokens" doc:"completion tokens (usage when given), all samples of n together"`
	N             Opt[int64]   `json:"n" col:"n" doc:"samples asked for"`
	Streaming     Opt[bool]    `json:"stream" col:"stream" doc:"streamed response"`
	Status        Opt[int64]   `json:"status" col:"status" doc:"HTTP status"`
	Success       Opt[bool]    `json:"-" col:"success" doc:"finished without error or abort"`
	Aborted       Opt[bool]    `json:"aborted" col:"aborted" doc:"the client gave up"`
	Error         Opt[string]  `json:"-" col:"error" doc:"error text"`
	FinishReason  Opt[string]  `json:"finish_reason" col:"finish_reason" doc:"finish reason"`
	PrefixGroup   Opt[string]  `json:"-" col:"prefix_group" doc:"requests of one group share a prompt prefix"`
	PrefixTokens  Opt[int64]   `json:"prefix_tokens" col:"prefix_tokens" unit:"tokens" doc:"length of the shared prefix"`
	Priority      Opt[int64]   `json:"priority" col:"priority" doc:"scheduling priority"`
	SLOClass      Opt[string]  `json:"slo_class" col:"slo_class" doc:"service class"`
	Chunks        Opt[int64]   `json:"chunks" col:"chunks" doc:"output chunks received; fewer than tokens when the client was late"`
	TTFTUs        Opt[float64] `json:"-" col:"ttft_us" unit:"us" doc:"first chunk - send"`
	E2EUs         Opt[float64] `json:"-" col:"e2e_us" unit:"us" doc:"last chunk - send"`
	ChunkGapsUs   []float64    `json:"-" col:"chunk_gaps_us" unit:"us" doc:"gaps between chunks"`
	CachedTokens  Opt[int64]   `json:"-" col:"cached_tokens" unit:"tokens" doc:"prompt tokens that the server took from its prefix cache"`
	CachedSource  Opt[string]  `json:"-" col:"cached_source" doc:"what says so: usage (of the server), exact (the passes of the log), session, group or bound (shares of what the passes say of several), counter (shares of what /metrics or the log's hit rates say of all)"`
	CachedMin     Opt[int64]   `json:"-" col:"cached_min_tokens" unit:"tokens" doc:"the least that the passes of the log allow"`
	CachedMax     Opt[int64]   `json:"-" col:"cached_max_tokens" unit:"tokens" doc:"the most"`
	Iteration     Opt[int64]   `json:"-" col:"iteration" doc:"the engine's pass that ended the prompt, found by counting"`
	Engine        Opt[int64]   `json:"-" col:"engine" doc:"engine run of the folder that served it, from 1, where passes of several are logged"`
	Session       Opt[string]  `json:"-" col:"session" doc:"conversation, as the client names it"`
	Turn          Opt[int64]   `json:"-" col:"turn" doc:"turn of it"`
	LoadOnly      Opt[bool]    `json:"-" col:"load_only" doc:"sent while requests that the file leaves out may still have run: part of the load, compared with nothing"`
	Line          int64        `json:"-" col:"line" doc:"line in the client file"`
}

// Sources of cached tokens, best first.
const (
	CachedUsage   = "usage"
	CachedExact   = "exact"
	CachedSession = "session"
	CachedGroup   = "group"
	CachedBound   = "bound"
	CachedCounter = "counter"
)

// MostGuessed is the share of a prompt, or of the prompts of a load, of which it need not be
// known what the prefix cache held.
const MostGuessed = 0.05

// KnowsCached says that it is known what the prefix cache held of the prompt, or too little for
// it to matter; of a counter's sum nobody knows who had it.
func (r *ObservedRequest) KnowsCached() bool {
	isSum := r.CachedSource.V == CachedCounter && r.CachedMin.V != r.CachedMax.V
	return r.CachedTokens.OK && !(isSum && float64(r.CachedTokens.V) > MostGuessed*float64(r.PromptTokens.V))
}

// Uncounted says that a log's counts do not tell when the request ran: several answers, or one that failed or was left early.
func (r *ObservedRequest) Uncounted() bool { return r.N.Or(1) > 1 || !r.Success.Or(true) }

// SentNs is when the client sent the request, or meant to, on the clock of its stamps; 0 where
// nothing is known.
func (r *ObservedRequest) SentNs() int64 { return r.SendNs.Or(r.ArrivalNs.Or(r.SendWallNs.V)) }

// LoadPoint is one row of `points`: what a benchmark printed of one load level, over
// the requests that succeeded.
type LoadPoint struct {
	Name         string       `col:"point" doc:"file, and line or benchmark in it"`
	Strategy     string       `col:"strategy" doc:"how the load was offered, as the tool calls it; concurrent@N is a closed loop of N clients"`
	Requests     Opt[int64]   `col:"requests" unit:"requests" doc:"that succeeded"`
	Clients      Opt[int64]   `col:"clients" unit:"requests" doc:"of a closed loop, as stated"`
	OfferedRPS   Opt[float64] `col:"offered_rps" unit:"1/s" doc:"rate of open arrivals, as stated"`
	RateRPS      Opt[float64] `col:"rate_rps" unit:"1/s" doc:"requests that succeeded, over the time it took"`
	PromptTokens float64      `col:"prompt_tokens" unit:"tokens" doc:"mean prompt length"`
	PromptSD     Opt[float64] `col:"prompt_sd" unit:"tokens" doc:"its standard deviation"`
	OutputTokens float64      `col:"output_tokens" unit:"tokens" doc:"mean output length"`
	OutputSD     Opt[float64] `col:"output_sd" unit:"tokens" doc:"its standard deviation"`
	TTFTMs       Opt[float64] `col:"ttft_ms" unit:"ms" doc:"mean time to first token"`
	TTFTMedianMs Opt[float64] `col:"ttft_median_ms" unit:"ms" doc:"its median"`
	TPOTMs       float64      `col:"tpot_ms" unit:"ms" doc:"mean time per output token behind the first"`
	E2EMs        Opt[float64] `col:"e2e_ms" unit:"ms" doc:"mean latency of a request"`
	TP           Opt[int64]   `col:"tp" doc:"tensor parallel size the level was measured at; null: run.yaml's"`
	EP           Opt[int64]   `col:"ep" doc:"expert parallel size; above 1: experts lie on several devices whole; null: run.yaml's"`
	DP           Opt[int64]   `col:"dp" doc:"data parallel size, whose ranks share the clients or the rate; null: run.yaml's"`
	File         string       `col:"file" doc:"input file, relative to the run directory"`
	Line         int64        `col:"line" doc:"line in a table; 0 in a document"`
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

// Member is a Chunk with its owner.
type Member struct {
	CoreID string
	Chunk
}

// SnapshotCursor walks snapshots in the order of their steps. Row is valid until
// Next; its texts stay.
type SnapshotCursor interface {
	Next() bool
	Row() *Snapshot
	Err() error
	Close() error
}

// OpenSnapshots begins a pass over the snapshots of the run, wherever they are.
func (r *Run) OpenSnapshots() (SnapshotCursor, error) {
	if r.Stored != nil {
		return r.Stored()
	}
	return &snapshotList{rest: r.Snapshots}, nil
}

// EachSnapshot visits the snapshots of the run in the order of their steps.
func (r *Run) EachSnapshot(use func(*Snapshot)) error {
	c, err := r.OpenSnapshots()
	if err != nil {
		return err
	}
	for c.Next() {
		use(c.Row())
	}
	return errors.Join(c.Err(), c.Close())
}

// snapshotList is a cursor over snapshots in memory.
type snapshotList struct {
	rest []Snapshot
	row  *Snapshot
}

// Next goes to the next snapshot.
func (l *snapshotList) Next() bool {
	if len(l.rest) == 0 {
		return false
	}
	l.row, l.rest = &l.rest[0], l.rest[1:]
	return true
}

// Row is the current snapshot.
func (l *snapshotList) Row() *Snapshot { return l.row }

// Err is always nil.
func (l *snapshotList) Err() error { return nil }

// Close does nothing.
func (l *snapshotList) Close() error { return nil }

// Progress tells a caller how far long work has come: done of total in unit
// ("B", "fits", "runs", …); total 0 means unknown. A nil Progress is silent.
// It may be called from several goroutines.
type Progress func(stage string, done, total int64, unit string)

// Report calls p unless it is nil.
func (p Progress) Report(stage string, done, total int64, unit string) {
	if p != nil {
		p(stage, done, total, unit)
	}
}
