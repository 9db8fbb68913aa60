package rows

import "github.com/blis-train/blis-train/trace"

// Refusals and findings.
const (
	codeNoStepTimes trace.Code = "no_step_times"
	codeFilledIn    trace.Code = "log_filled_in"
	ContextsMerged  trace.Code = "contexts_merged"
)

// Codes describes every code of this package.
var AggregateCodes = []trace.CodeEntry{
	{Code: codeNoStepTimes, Kind: "error",
		Meaning: "The log of an unmodified engine does not tell how long its steps took: passes are sampled or speculative, the elapsed " +
			"time is that of another batch, or stamps in whole seconds cover too little busy time.",
		Action: "Save the log with precise stamps (docker logs --timestamps, kubectl logs --timestamps), every pass (DYN_FPM_MODE=full), and " +
			"without speculative decoding."},
	{Code: codeFilledIn, Kind: "warning",
		Meaning: "Something that the log of an unmodified engine does not tell was worked out from other figures; the message says what and " +
			"from which.",
		Action: "Nothing, or what the message names: precise stamps, and the results of the clients that sent the load."},
	{Code: ContextsMerged, Kind: "warning", Meaning: "Nobody tells how long the contexts of the decodes were: one mean stands for all, " +
		"so the KV-read and decode-attention terms are merged with the per-decode term and only a prior splits them.",
		Action: "Put the client's result beside the log (vllm bench serve --save-result --save-detailed), or record Dynamo's forward-pass " +
			"trace."},
}
