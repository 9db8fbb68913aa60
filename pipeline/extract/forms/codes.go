package forms

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	incomplete      trace.Code = "incomplete_benchmark"
	CodeUnknownFile trace.Code = "unknown_client_file"

	// Of what files of clients are known to get wrong (spec#client-traps).
	CodeClientFile  trace.Code = "client_file"
	RunContradicted trace.Code = "run_contradicted"
	CodeCapped      trace.Code = "capped_client" // arrivals followed the server: a replay of them informs only
)
