package machine

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeMachineDrift trace.Code = "machine_drift"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: codeMachineDrift, Kind: "finding",
		Meaning: "the median of measured/predicted step time of a block of 5 to 20 seconds, longer ones of thinned rows, lies outside 0.9-1.1",
		Action:  "look at the drift curve; if it swings, repeat the recording on a quiet machine; if it is flat, the model is biased on this run",
	},
}
