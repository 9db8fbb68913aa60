package grams

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeGramRefused trace.Code = "gram_refused"
	codeGramOnly    trace.Code = "fitted_from_grams"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeGramRefused, Kind: "error",
		Meaning: "the Gram files do not belong together: another feature-set version, recipe or grid",
		Action:  "save them again with this version"},
	{Code: codeGramOnly, Kind: "finding",
		Meaning: "the fit was made from Gram matrices: no reweighting, no interval targets (alpha), no error that needs rows",
		Action:  "fit the tables themselves where the traces are at hand"},
}
