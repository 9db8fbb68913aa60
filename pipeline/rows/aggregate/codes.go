package aggregate

import "github.com/blis-train/blis-train/trace"

// Refusals and findings.
const (
	codeSampled       trace.Code = "sampled_passes"
	codeSpeculative   trace.Code = "speculative_passes"
	codeRecompute     trace.Code = "recompute"
	codeLateLabels    trace.Code = "late_phase_labels"
	codeAsyncElapsed  trace.Code = "elapsed_is_a_wait"
	codeTooShort      trace.Code = "whole_seconds_too_short"
	codeConstant      trace.Code = "elapsed_constant"
	codeNotAligned    trace.Code = "clients_not_aligned"
	CodeContextMerged trace.Code = "contexts_merged"
	codeContextFrom   trace.Code = "contexts_from"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: codeSampled, Kind: "error", Meaning: "A forward-pass trace holds one record in several seconds, so no two passes are neighbours.",
		Action: "Set DYN_FPM_MODE=full and record again."},
	{Code: codeSpeculative, Kind: "error", Meaning: "Most passes yield more tokens than they have decoding requests.",
		Action: "Record without speculative decoding."},
	{Code: codeRecompute, Kind: "warning", Meaning: "A pass has more generation tokens than requests: a preempted request is computed again.",
		Action: "Nothing; give the server more KV cache when there are many."},
	{Code: codeLateLabels, Kind: "warning", Meaning: "The engine labels the first decode of a request as context, as asynchronous " +
		"scheduling with late counts does.", Action: "Nothing."},
	{Code: codeAsyncElapsed, Kind: "error", Meaning: "The logged elapsed time is how long the engine waited for a result that was already " +
		"under way, so it belongs to another batch than its line.",
		Action: "Save the log with precise stamps (docker logs --timestamps, kubectl logs --timestamps), or record with --no-async-scheduling."},
	{Code: codeTooShort, Kind: "error", Meaning: "Stamps in whole seconds need minutes of busy time before a fit can rest on them.",
		Action: "Record longer, or save the log with precise stamps (docker logs --timestamps)."},
	{Code: codeConstant, Kind: "warning", Meaning: "What the engine does between two passes is not in the logged elapsed time; one constant " +
		"stands for it.", Action: "Nothing; precise stamps would measure it pass by pass."},
	{Code: codeNotAligned, Kind: "warning", Meaning: "The requests of the clients could not be found in the log's passes, so their clock " +
		"and their contexts are not used.", Action: "Check that client and log belong together and that nobody else used the server."},
	{Code: CodeContextMerged, Kind: "warning", Meaning: "Nobody tells how long the contexts of the decodes were: one mean stands for all, " +
		"so the KV-read and decode-attention terms are merged with the per-decode term and only a prior splits them.",
		Action: "Put the client's result beside the log (vllm bench serve --save-result --save-detailed), or record Dynamo's forward-pass " +
			"trace."},
	{Code: codeContextFrom, Kind: "warning", Meaning: "Says where the contexts of the decodes come from.", Action: "Nothing."},
}
