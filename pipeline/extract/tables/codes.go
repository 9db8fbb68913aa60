package tables

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	CodeSeveralEngines trace.Code = "several_engines"
	// CodeUnjoinedObserved counts client requests that no journey belongs to.
	CodeUnjoinedObserved trace.Code = "unjoined_client_requests"
	codeStepConflict     trace.Code = "step_conflict"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeSeveralEngines, Kind: "error", Meaning: "one dump holds several engines or restarts whose stamps overlap",
		Action: "rerun with --split-engines, or give each engine its own file and run.yaml"},
	{Code: CodeUnjoinedObserved, Kind: "warning", Meaning: "client requests without a core span although every journey was sampled",
		Action: "nothing when they failed before the engine; else check that the client sent its ids as X-Request-Id"},
	{Code: codeStepConflict, Kind: "warning", Meaning: "one step id was recorded twice with different stamps; the first record is kept",
		Action: "look for a second engine in the dump"},
}
