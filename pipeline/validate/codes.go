package validate

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	CodeNoOverhead     trace.Code = "no_replay_overhead"
	CodeIdleTaken      trace.Code = "idle_delays_taken"
	codeCachedAssumed  trace.Code = "cached_tokens_assumed"
	codeBadOption      trace.Code = "bad_option"
	codeNothingToJudge trace.Code = "nothing_to_validate"
	codeRefit          trace.Code = "refitted_on_all_rows"
	codeNotTheFit      trace.Code = "not_the_fits_coefficients"
	codeNoIdleRequests trace.Code = "no_idle_requests"
	codeFiguresLeftOut trace.Code = "figures_left_out"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: CodeIdleTaken, Kind: "warning",
		Meaning: "an unmodified engine gives no rows of the overhead: replays take what its clients' requests met at an idle server",
		Action:  "nothing, or give --overhead-us",
	},
	{
		Code: CodeNoOverhead, Kind: "error",
		Meaning: "the coefficients hold no overhead that may be added in a replay",
		Action:  "give --overhead-us, or fit the overhead target",
	},
	{
		Code: codeCachedAssumed, Kind: "finding",
		Meaning: "prefix caching is on and the cached tokens of some requests are unknown; they were taken from the simulator's " +
			"own cache or as 0",
		Action: "record snapshots or KV events",
	},
	{Code: codeBadOption, Kind: trace.KindUsage, Meaning: "an option is out of its range", Action: "see the message for the range"},
	{Code: codeNothingToJudge, Kind: "error", Meaning: "no run is left to validate on", Action: "check --only, --exclude and the tables"},
	{
		Code: codeRefit, Kind: "warning",
		Meaning: "the fit used --refit-all, so no row of its runs was held out",
		Action:  "validate on other runs, or without --refit-all",
	},
	{
		Code: codeNotTheFit, Kind: "warning",
		Meaning: "the judged coefficient file differs from the fit's report: it was edited, or made by another fit",
		Action:  "compare the two with blis-train diff; give the fit.json that belongs to the file",
	},
	{
		Code: codeFiguresLeftOut, Kind: "warning",
		Meaning: "so many runs were compared that validation.json holds the curves of some only; the metrics of all are there",
		Action:  "validate fewer runs at a time with --only where their curves are wanted",
	},
	{
		Code: codeNoIdleRequests, Kind: "finding",
		Meaning: "no request met an idle server, so the overhead cannot be measured from this run alone",
		Action:  "give --overhead-us",
	},
}
