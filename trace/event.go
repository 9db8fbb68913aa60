package trace

// This file has the rows of events: in the life of a request, and of the KV cache.

// JourneyEvent is one journey.* event of a core span, the span that vLLM's engine core writes for a
// request under journey tracing.
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

// KVEvent is one element of a line of the KV-event file. The identical copies that the workers of
// tensor parallelism (TP) publish are merged into one.
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
