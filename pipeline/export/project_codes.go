package export

import "github.com/blis-train/blis-train/trace"

// PoorProjection is a projection that does not hold what it stands for, or cannot be made.
const PoorProjection trace.Code = "poor_projection"

// Codes describes every code of this package.
var ProjectCodes = []trace.CodeEntry{
	{Code: PoorProjection, Kind: "error", Meaning: "The consumer's terms, line or formula cannot follow the step-time model: too far off " +
		"in the mean, for one kind of batch, or in simulation (spec#projection). A projection needs lengths and seats above 0.",
		Action: "Give the lengths of your own traffic, use a consumer that reads the native file, or accept it with --force poor_projection."},
}
