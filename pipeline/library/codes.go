package library

import "github.com/blis-train/blis-train/trace"

// Codes of building the library.
const (
	BadPoints trace.Code = "bad_points"
	pointUnit trace.Code = "bad_point_unit"
	noFamily  trace.Code = "no_library_family"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: BadPoints, Kind: "error", Meaning: "a file of measured points lacks a column, or a row has no valid number in one",
		Action: "add the column or mend the row; a point needs its concurrency, lengths, TTFT and TPOT"},
	{Code: pointUnit, Kind: "error", Meaning: "times of a measured point cannot be milliseconds: they lie below what reading the weights " +
		"takes, or far above",
		Action: "convert ttft_ms and tpot_ms to milliseconds"},
	{Code: noFamily, Kind: "error", Meaning: "measured points or runs are of a GPU or weights whose kernel tables are not in the folder",
		Action: "add the tables of that GPU, or leave the measurements out"},
}
