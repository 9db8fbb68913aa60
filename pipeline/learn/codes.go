package learn

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: NothingMeasured, Kind: "error", Meaning: "no request of a load has a measured time",
		Action: "save the benchmark with per-request times"},
}
