package inspect

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeTeaches           trace.Code = "source_teaches"
	CodeSaturated         trace.Code = "saturated_run"
	codeLossyRun          trace.Code = "lossy_run"
	codeNegativeIntervals trace.Code = "negative_intervals"
	codeClockJump         trace.Code = "clock_jump"
	codeSparseSteps       trace.Code = "sparse_steps"
	codeUnlinkedRequests  trace.Code = "unlinked_requests"
	codeStopStringEnds    trace.Code = "stop_string_ends"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeTeaches, Kind: "finding", Meaning: "what the recording of an unmodified engine can teach, and which option would teach more",
		Action: "Record with the option named, or nothing."},
	{
		Code: CodeSaturated, Kind: "finding",
		Meaning: "two or more of the five saturation checks hit: the server was overloaded",
		Action:  "record at a lower rate; the run is left out of the gates",
	},
	{
		Code: codeLossyRun, Kind: "finding",
		Meaning: "span events or records were lost while recording",
		Action:  "raise OTEL_SPAN_EVENT_COUNT_LIMIT and the exporter's queue",
	},
	{
		Code: codeNegativeIntervals, Kind: "finding",
		Meaning: "stamps of one request run backwards",
		Action:  "check that all spans come from one machine and one boot",
	},
	{
		Code: codeClockJump, Kind: "finding",
		Meaning: "wall clock minus monotonic clock moves by more than 100 ms: the wall clock was stepped or several engines are mixed",
		Action:  "use --split-engines, or ignore wall-clock figures",
	},
	{
		Code: codeSparseSteps, Kind: "finding",
		Meaning: "fewer than half of the recorded steps have a recorded successor",
		Action:  "raise --step-tracing-sample-rate to 1 for training runs",
	},
	{
		Code: codeUnlinkedRequests, Kind: "finding",
		Meaning: "more than 5 % of the core spans have no API span: their arrival and success are unknown",
		Action:  "export the API server's spans too",
	},
	{
		Code: codeStopStringEnds, Kind: "finding",
		Meaning: "requests whose core span says aborted although the API departed: a stop string ended them",
		Action:  "none; they count as successes",
	},
}
