package gates

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeUnknownGate  trace.Code = "unknown_gate"
	codeBadThreshold trace.Code = "bad_threshold"
	CodeLoosened     trace.Code = "gate_loosened"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{
		Code: codeUnknownGate, Kind: "error",
		Meaning: "a threshold was given for a gate that does not exist",
		Action:  "see validate --gates list",
	},
	{Code: codeBadThreshold, Kind: "error", Meaning: "a threshold is no finite number", Action: "give a number"},
	{
		Code: CodeLoosened, Kind: "warning",
		Meaning: "a gate's threshold is looser than its default",
		Action:  "read the verdict with it; leave the threshold out of --gate and pipeline.yaml for the default",
	},
}
