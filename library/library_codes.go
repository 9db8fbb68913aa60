package library

import "github.com/blis-train/blis-train/trace"

// Codes of building the library.
const (
	noFamily trace.Code = "no_library_family"
)

// Codes describes the codes of this package.
var LibraryCodes = []trace.CodeEntry{
	{Code: noFamily, Kind: "error", Meaning: "measured points or runs are of a GPU or weights whose kernel tables are not in the folder",
		Action: "add the tables of that GPU, or leave the measurements out"},
}
