package clients

import "github.com/blis-train/blis-train/trace"

// Codes of what files of clients are known to get wrong (spec#client-traps).
const (
	codeIncomplete trace.Code = "incomplete_benchmark"
	CodeClientFile trace.Code = "client_file"
	CodeNoStart    trace.Code = "no_start_time"
	// CodeCapped marks a client that limited the requests in flight: arrivals followed the
	// server, so a replay of them can only inform.
	CodeCapped trace.Code = "capped_client"
)
