package replay

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeNoArrivals   trace.Code = "no_arrivals"
	codeReplayFailed trace.Code = "replay_failed"
	codeClosedLoop   trace.Code = "closed_loop_detected"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: codeNoArrivals, Kind: "finding",
		Meaning: "no request of the phase has an arrival stamp, so nothing can be replayed",
		Action:  "record API spans or client timings",
	},
	{
		Code: codeClosedLoop, Kind: "finding",
		Meaning: "a phase is sent by clients that wait for their answers, though run.yaml calls its load open",
		Action:  "write `load: closed` on the phase in run.yaml",
	},
	{
		Code: codeReplayFailed, Kind: "finding",
		Meaning: "the simulator refused to replay a phase",
		Action:  "see the message; often a deployment the simulator does not model",
	},
}
