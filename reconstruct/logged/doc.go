// Package logged gives a run steps from the iterations that an unmodified engine writes: vLLM's
// iteration lines, Dynamo's forward-pass traces, SGLang's and TensorRT-LLM's log lines, and the passes
// that package reconstruct finds behind clients' chunks. Start at [Fill].
//
// Such a record, a pass, has exact counts: context (prefill) and generation (decode) requests and their
// tokens. Two things are missing. This package derives them from other evidence, or rejects the run with
// a hint at the option that would record them.
//
//   - When a pass began and ended. audit.go decides which evidence gives the time of a pass: precise
//     stamps of neighbouring lines, the elapsed time that the line states (lag.go finds whose batch it
//     belongs to, constant.go the time between two passes), or intervals between whole seconds (ticks.go).
//     clock.go puts the passes on one clock, clients.go on that of the clients, and delays.go measures
//     how long a chunk takes to reach them.
//   - What ran in it. pass.go reads the counts, contexts.go fills in the contexts of decodes and the
//     attention of prompts: from the trace's own sums, from the clients' requests, from the KV usage,
//     or as one mean for the whole run, which merges the terms that contexts drive with the decode term.
//
// The result is [trace.Run.Steps], one for each pass and an empty one where the engine was idle, with
// the sums of each in [trace.Aggregate], where unknown steps and filled-in values are marked. Times are
// ns of one clock, durations us.
package logged

import "github.com/blis-train/blis-train/trace"

// Codes of findings and of refused runs.
const (
	codeNoStepTimes trace.Code = "no_step_times"
	codeFilledIn    trace.Code = "log_filled_in"
	codeEncoderPass trace.Code = "encoder_passes"
	ContextsMerged  trace.Code = "contexts_merged"
)
