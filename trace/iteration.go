package trace

// This file has what the logs of unmodified engines contain: a row for each pass, and what is known of
// the steps that are made from these rows.

// Forms of per-iteration records.
const (
	IterationLog = "log" // vLLM's --enable-logging-iteration-details
	IterationFPM = "fpm" // forward-pass metrics: dynamo.fpm.trace.v1, native ones

	IterationSGLang   = "sglang"   // batches in SGLang's log
	IterationTensorRT = "tensorrt" // TensorRT-LLM's print_iter_log

	IterationChunks = "chunks" // recovered from the chunks of all clients
)

// Iteration is one row of `iterations`: one pass of an engine as unmodified vLLM, SGLang or
// TensorRT-LLM logs it, or as Dynamo's forward-pass trace has it. It has counts and sums of the batch,
// but no single requests.
type Iteration struct {
	Index            int64        `col:"iteration" doc:"the engine's counter: of logged iterations (log) or of passes (fpm)"`
	Form             string       `col:"form" doc:"log (vLLM), sglang, tensorrt, fpm, or chunks: recovered from the chunks of all clients"`
	StampNs          Opt[int64]   `col:"stamp_ns" unit:"ns" doc:"when the record was written; wall clock when stamp_wall, else local time counted from 1 January of a year not written"`
	StampStepNs      Opt[int64]   `col:"stamp_step_ns" unit:"ns" doc:"resolution of stamp_ns: 1 s for vLLM's own stamp, the digits written for that of docker, kubectl, CRI, journald, ts or JSON logs"`
	StampWall        bool         `col:"stamp_wall" doc:"stamp_ns counts from 1970 UTC"`
	ElapsedUs        float64      `col:"elapsed_us" unit:"us" doc:"iteration elapsed time (log) or wall_time (fpm): waiting for the model and sampling, NOT the step time"`
	ContextReqs      int64        `col:"context_requests" unit:"requests" doc:"requests without an output token yet: whole prompts and chunks of prompts"`
	ContextTokens    int64        `col:"context_tokens" unit:"tokens" doc:"their scheduled tokens, prefix-cache hits excluded"`
	GenerationReqs   int64        `col:"generation_requests" unit:"requests" doc:"all other scheduled requests"`
	GenerationTokens int64        `col:"generation_tokens" unit:"tokens" doc:"their tokens; more than requests after a preemption or with speculative decoding"`
	PromptVariance   Opt[float64] `col:"context_prompt_variance" unit:"tokens^2" doc:"variance of the context requests' whole prompt lengths (fpm)"`
	ContextKVTokens  Opt[int64]   `col:"context_kv_tokens" unit:"tokens" doc:"tokens the context requests had in KV before the pass, summed (fpm)"`
	DecodeKVTokens   Opt[int64]   `col:"decode_kv_tokens" unit:"tokens" doc:"tokens the generation requests had in KV, summed (fpm)"`
	DecodeKVVariance Opt[float64] `col:"decode_kv_variance" unit:"tokens^2" doc:"variance of the same over the generation requests (fpm)"`
	QueuedContext    Opt[int64]   `col:"queued_context_requests" unit:"requests" doc:"requests that wait for their first token (fpm)"`
	QueuedTokens     Opt[int64]   `col:"queued_context_tokens" unit:"tokens" doc:"their prompt tokens (fpm)"`
	QueuedDecode     Opt[int64]   `col:"queued_generation_requests" unit:"requests" doc:"preempted requests that wait (fpm)"`
	KVUsage          Opt[float64] `col:"kv_usage_ratio" doc:"share of KV blocks in use after the update, 0..1 (log from 0.26)"`
	EncoderInputs    Opt[int64]   `col:"encoder_inputs" doc:"inputs of a multimodal encoder (log from 0.26)"`
	EncoderOutputs   Opt[int64]   `col:"encoder_output_embeddings" doc:"their output embeddings (log from 0.26)"`
	Sampled          bool         `col:"sampled" doc:"the producer writes one record in several seconds (fpm, DYN_FPM_MODE=sampled): no time series"`
	Dummy            bool         `col:"dummy" doc:"a pass of data parallelism without load: its time counts, its load does not"`
	File             string       `col:"file" doc:"input file, relative to the run directory"`
	Line             int64        `col:"line" doc:"line in that file"`
}

// Aggregate describes the steps that were made from the iterations of a run: where their times come
// from, or why there are none, and the sums of every pass. It belongs to a run of unmodified vLLM,
// whose log has counts of each pass but not its requests.
type Aggregate struct {
	Refused  *Error // why there are no step times; nil when Steps were made
	Audit    TimeAudit
	Findings []Finding

	Drafts      bool         // passes verify drafted tokens: speculative decoding
	First       int64        // step id of Totals[0]
	Totals      []StepTotals // by step id: one for each pass, lost ones unknown, empty ones where the engine was idle
	Contexts    string       // source of the contexts of decodes: trace, client, kv_usage or mean
	MeanContext float64      // tokens; for the source mean
	OffsetNs    Opt[int64]   // clock of the clients - clock of the log, delivery of tokens included
	DelaysUs    []float64    // TTFT - time of the pass, of requests that arrived at an idle server
	ClientShare Opt[float64] // share of the passes with decodes whose number is that of the clients' requests
	Apart       string       // why the requests of clients do not run when the passes do; empty if they do, or were not compared
	Others      float64      // share of the decodes, while clients ran, that are of no client's request
}

// ContextsMean is the source of contexts where one mean is used for all decodes.
const ContextsMean = "mean"

// StepTotals are the sums over the requests of one pass. Known is false for a pass that the log
// lost.
type StepTotals struct {
	Known   bool
	NoStart bool // its start is unknown
	Encoder bool // a multimodal encoder ran in it, so its time is not that of the text alone; not Known

	Prefill, Decode         int64   // tokens computed
	PrefillReqs, DecodeReqs int64   // requests
	Sampled                 int64   // sequences that get logits
	CausalWork              float64 // token pairs of prompts
	PrefillContext          float64 // tokens the prompts had in KV
	DecodeContext           float64 // tokens, each decode's own included
}

// TimeAudit has the figures by which the source of the step times was chosen among the stamps and
// the elapsed times of a log.
type TimeAudit struct {
	Time        string       // the source: cadence (differences of stamps), elapsed (elapsed times and a constant) or ticks; empty when refused
	ConstantUs  Opt[float64] // time between passes that elapsed times do not include
	SumOverWall Opt[float64] // sum of elapsed times over busy time
	// LagErrors has the error of elapsed times that are predicted from counts: those of the same line,
	// of the line before, and of two lines before. The least of the three shows for which of these lines' batches the engine
	// prints the time.
	LagErrors []float64
}
