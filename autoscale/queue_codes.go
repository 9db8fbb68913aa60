package autoscale

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	unlikelyParameter trace.Code = "unlikely_parameter"
	noParameters      trace.Code = "no_queue_parameters"
	beyondLoads       trace.Code = "beyond_loads"
)

// Codes describes every code of this package.
var QueueCodes = []trace.CodeEntry{
	{Code: unlikelyParameter, Kind: "finding", Meaning: "A fitted parameter is below what the hardware allows, or more than twice or less " +
		"than half its physical value.",
		Action: "Check the hardware figures of run.yaml; else the fit has moved cost between terms, or the queueing model makes up for " +
			"something it leaves out: other lengths will be off."},
	{Code: noParameters, Kind: "error", Meaning: "queue.json has no server of the name or model asked for, or it lacks the parameters or " +
		"the lengths that are needed.",
		Action: "Use one of those the message lists; read the server's reason in queue.json, and fit it again."},
	{Code: beyondLoads, Kind: "drop", Meaning: "A benchmark of a sweep comes after the number of loads asked for.",
		Action: "Nothing, or another --loads."},
}
