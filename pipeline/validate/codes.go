package validate

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	CodeMachineDrift      trace.Code = "machine_drift"
	CodeSaturated         trace.Code = "saturated_run"
	CodeNoArrivals        trace.Code = "no_arrivals"
	CodeArrivedAssumed    trace.Code = "arrival_assumed"
	CodeNoOverhead        trace.Code = "no_replay_overhead"
	CodeCachedAssumed     trace.Code = "cached_tokens_assumed"
	CodeLossyRun          trace.Code = "lossy_run"
	CodeNegativeIntervals trace.Code = "negative_intervals"
	CodeClockJump         trace.Code = "clock_jump"
	CodeSparseSteps       trace.Code = "sparse_steps"
	CodeUnlinkedRequests  trace.Code = "unlinked_requests"
	CodeStopStringEnds    trace.Code = "stop_string_ends"
	CodeUnknownGate       trace.Code = "unknown_gate"
	CodeBadThreshold      trace.Code = "bad_threshold"
	CodeBadOption         trace.Code = "bad_option"
	CodeNothingToJudge    trace.Code = "nothing_to_validate"
	CodeReplayFailed      trace.Code = "replay_failed"
	CodeRefit             trace.Code = "refitted_on_all_rows"
	CodeNotTheFit         trace.Code = "not_the_fits_coefficients"
	CodeNoIdleRequests    trace.Code = "no_idle_requests"
	CodeGateLoosened      trace.Code = "gate_loosened"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: CodeMachineDrift, Kind: "finding", Meaning: "the median of measured/predicted step time of a 20-second block lies outside 0.9-1.1", Action: "look at the drift curve; if it swings, repeat the recording on a quiet machine; if it is flat, the model is biased on this run"},
	{Code: CodeSaturated, Kind: "finding", Meaning: "two or more of the five saturation checks hit: the server was overloaded", Action: "record at a lower rate; the run is left out of the gates"},
	{Code: CodeNoArrivals, Kind: "finding", Meaning: "no request of the phase has an arrival stamp, so nothing can be replayed", Action: "record API spans or client timings"},
	{Code: CodeArrivedAssumed, Kind: "finding", Meaning: "ARRIVED is missing for some requests; QUEUED minus half a step was taken as the arrival", Action: "trace the API server too"},
	{Code: CodeNoOverhead, Kind: "error", Meaning: "the coefficients hold no overhead that may be added in a replay", Action: "give --overhead-us, or fit the overhead target"},
	{Code: CodeCachedAssumed, Kind: "finding", Meaning: "prefix caching is on and the cached tokens of some requests are unknown; they were taken from the simulator's own cache or as 0", Action: "record snapshots or KV events"},
	{Code: CodeLossyRun, Kind: "finding", Meaning: "span events or records were lost while recording", Action: "raise OTEL_SPAN_EVENT_COUNT_LIMIT and the exporter's queue"},
	{Code: CodeNegativeIntervals, Kind: "finding", Meaning: "stamps of one request run backwards", Action: "check that all spans come from one machine and one boot"},
	{Code: CodeClockJump, Kind: "finding", Meaning: "wall clock minus monotonic clock moves by more than 100 ms: the wall clock was stepped or several engines are mixed", Action: "use --split-engines, or ignore wall-clock figures"},
	{Code: CodeSparseSteps, Kind: "finding", Meaning: "fewer than half of the recorded steps have a recorded successor", Action: "raise --step-tracing-sample-rate to 1 for training runs"},
	{Code: CodeUnlinkedRequests, Kind: "finding", Meaning: "more than 5 % of the core spans have no API span: their arrival and success are unknown", Action: "export the API server's spans too"},
	{Code: CodeStopStringEnds, Kind: "finding", Meaning: "requests whose core span says aborted although the API departed: a stop string ended them", Action: "none; they count as successes"},
	{Code: CodeGateLoosened, Kind: "warning", Meaning: "a gate's threshold is looser than its default", Action: "read the verdict with it; leave the threshold out of --gate and pipeline.yaml for the default"},
	{Code: CodeUnknownGate, Kind: "error", Meaning: "a threshold was given for a gate that does not exist", Action: "see validate --gates list"},
	{Code: CodeBadThreshold, Kind: "error", Meaning: "a threshold is no finite number", Action: "give a number"},
	{Code: CodeBadOption, Kind: "error", Meaning: "an option is out of its range", Action: "see the message for the range"},
	{Code: CodeNothingToJudge, Kind: "error", Meaning: "no run is left to validate on", Action: "check --only, --exclude and the tables"},
	{Code: CodeReplayFailed, Kind: "finding", Meaning: "the simulator refused to replay a phase", Action: "see the message; often a deployment the simulator does not model"},
	{Code: CodeRefit, Kind: "warning", Meaning: "the fit used --refit-all, so no row of its runs was held out", Action: "validate on other runs, or without --refit-all"},
	{Code: CodeNotTheFit, Kind: "warning", Meaning: "the judged coefficient file differs from the fit's report: it was edited, or made by another fit", Action: "compare the two with blis-train diff; give the fit.json that belongs to the file"},
	{Code: CodeNoIdleRequests, Kind: "finding", Meaning: "no request met an idle server, so the overhead cannot be measured from this run alone", Action: "give --overhead-us"},
}
