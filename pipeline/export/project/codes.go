package project

import "github.com/blis-train/blis-train/trace"

const badRegion trace.Code = "bad_projection_region"

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: badRegion, Kind: "error", Meaning: "Lengths, seats or a predicted step time leave nothing to project a step-time model on.",
		Action: "Give the mean lengths of your traffic with --prompt-tokens and --output-tokens."},
}
