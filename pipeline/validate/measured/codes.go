package measured

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeArrivedAssumed trace.Code = "arrival_assumed"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: codeArrivedAssumed, Kind: "finding",
		Meaning: "ARRIVED is missing for some requests; QUEUED minus half a step was taken as the arrival",
		Action:  "trace the API server too",
	},
}
