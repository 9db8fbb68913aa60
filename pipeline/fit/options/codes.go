package options

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	CodeBadOption trace.Code = "bad_option"
	CodeNoRows    trace.Code = "no_rows"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: CodeBadOption, Kind: trace.KindUsage, Meaning: "an option of the fit is out of range", Action: "see blis-train fit --help"},
	{Code: CodeNoRows, Kind: "error", Meaning: "no training row is left after joins and cleaning",
		Action: "look at rows.dropped in fit.json: the largest reason says what is missing from the dump"},
}
