package measured

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeArrivedAssumed trace.Code = "arrival_assumed"
	codeLoadRebuilt    trace.Code = "load_rebuilt"
	codeLoadUnknown    trace.Code = "load_unknown"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: codeArrivedAssumed, Kind: "finding",
		Meaning: "ARRIVED is missing for some requests; QUEUED minus half a step was taken as the arrival",
		Action:  "trace the API server too",
	},
	{
		Code: codeLoadRebuilt, Kind: "finding",
		Meaning: "journeys are sampled; the others were rebuilt from what every step counts, and load the replay without being compared",
		Action:  "none needed; record every journey to compare all requests",
	},
	{
		Code: codeLoadUnknown, Kind: "finding",
		Meaning: "journeys are sampled and the steps do not tell what the other requests were: the replay lacks them and is not judged",
		Action:  "record every journey, or every step of a server that does not queue",
	},
}
