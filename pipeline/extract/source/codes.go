package source

import "github.com/blis-train/blis-train/trace"

// Codes that the readers of several forms share.
const (
	// CodeUnknownFile is the error of a client's file, a benchmark's load levels or a copy of vLLM's
	// /metrics that has none of the forms that are read; of the last two also for an invalid value.
	CodeUnknownFile trace.Code = "unknown_client_file"
	// CodeRunContradicted is the warning that a recording or a client's file contradicts run.yaml.
	CodeRunContradicted trace.Code = "run_contradicted"

	// CodeSeveralEngines is the error of a dump of several engines at once, and the warning that each became a run of its own.
	CodeSeveralEngines trace.Code = "several_engines"

	// CodeAPITokens is the warning that API spans state other tokens than the journeys of their requests.
	CodeAPITokens trace.Code = "api_tokens"

	// CodeFirstToken is the warning that times of first tokens are not used.
	CodeFirstToken trace.Code = "first_token_unknown"
	// CodeClientTotals is the warning that the totals or means that a client's file states are not those of its requests.
	CodeClientTotals trace.Code = "client_totals"

	// CodeClientSummary is the warning that a summary beside a client's requests, or a figure that its file states and that is
	// not used, is not that of the requests.
	CodeClientSummary trace.Code = "client_summary"

	// CodeClientSample is the warning that a client's file has a sample of the requests that it sent.
	CodeClientSample trace.Code = "client_sample"

	// CodeClientLoad is the warning that a client's requests were not sent at the rate or up to the limit that its file states.
	CodeClientLoad trace.Code = "client_load"

	// CodeClientRate is the warning that a client's requests were sent at a higher rate than its file states.
	CodeClientRate trace.Code = "client_rate"
)
