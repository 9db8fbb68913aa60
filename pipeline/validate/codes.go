package validate

import "github.com/blis-train/blis-train/trace"

// Codes of a validation and of an inspection.
const (
	nothingToJudge trace.Code = "nothing_to_validate"
	NoReplay       trace.Code = "no_replay"
	ReplayAssumes  trace.Code = "replay_assumption"
	notHeldOut     trace.Code = "not_held_out"
	notTheFit      trace.Code = "not_the_fits_coefficients"
	figuresLeftOut trace.Code = "figures_left_out"
	badGate        trace.Code = "bad_gate"
	GateLoosened   trace.Code = "gate_loosened"
	incomplete     trace.Code = "incomplete_recording"
	clockJump      trace.Code = "clock_jump"
	stopStringEnds trace.Code = "stop_string_ends"
	EngineLog      trace.Code = "engine_log"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: nothingToJudge, Kind: "error", Meaning: "no run is left to validate on", Action: "check --only, --exclude and the tables"},
	{Code: NoReplay, Kind: "error",
		Meaning: "a replay is skipped or not judged: the coefficients hold no overhead that may be added, no request has an arrival stamp, " +
			"sampled journeys hide the rest of the load, or the simulator refused a phase",
		Action: "give --overhead-us or fit the overhead target; record API spans or client timings of every request; otherwise see the message"},
	{Code: ReplayAssumes, Kind: "finding",
		Meaning: "a replay takes something that was not recorded as known: arrivals, the requests of sampled journeys, cached tokens, the " +
			"overhead at an idle server, or that clients wait for their answers",
		Action: "record what the message names, give --overhead-us, or write `load: closed` on the phase in run.yaml"},
	{Code: notHeldOut, Kind: "warning", Meaning: "the fit used the key refit-all, so no row of its runs was held out",
		Action: "validate on other runs, or without the key"},
	{Code: notTheFit, Kind: "warning",
		Meaning: "the judged coefficient file differs from the fit's report: it was edited, or made by another fit",
		Action:  "compare the two with blis-train diff; give the fit.json that belongs to the file"},
	{Code: figuresLeftOut, Kind: "warning",
		Meaning: "so many runs were compared that validation.json holds the curves of some only; the metrics of all are there",
		Action:  "validate fewer runs at a time with --only where their curves are wanted"},
	{Code: badGate, Kind: "error", Meaning: "a threshold was given for a gate that does not exist, or is no finite number",
		Action: "see validate --gate list"},
	{Code: GateLoosened, Kind: "warning", Meaning: "a gate's threshold is looser than its default",
		Action: "read the verdict with it; leave the threshold out of --gate and pipeline.yaml for the default"},
	{Code: incomplete, Kind: "finding",
		Meaning: "span events, steps or API spans are missing: events were lost while recording, fewer than half of the steps have a recorded " +
			"successor, or more than 5 % of the core spans have no API span",
		Action: "raise OTEL_SPAN_EVENT_COUNT_LIMIT and the exporter's queue, set --step-tracing-sample-rate to 1, export the API server's spans"},
	{Code: clockJump, Kind: "finding",
		Meaning: "stamps of one request run backwards, or wall clock minus monotonic clock moves by more than 100 ms: " +
			"several machines, boots or " +
			"engines are mixed, or the wall clock was stepped",
		Action: "check that all spans come from one machine and one boot; use --split-engines, or ignore wall-clock figures"},
	{Code: stopStringEnds, Kind: "finding",
		Meaning: "requests whose core span says aborted although the API departed: a stop string ended them",
		Action:  "none; they count as successes"},
	{Code: EngineLog, Kind: "finding",
		Meaning: "what the recording of an unmodified engine can be used for, and which option would give more",
		Action:  "record with the option named, or nothing"},
}
