package fit

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeOverheadUnknown trace.Code = "overhead_not_identified"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeOverheadUnknown, Kind: "warning", Meaning: "no overhead interval is informative, so the overhead is not identified",
		Action: "record journeys and steps at rate 1.0 on a server that idles now and then, or give --overhead-us"},
}
