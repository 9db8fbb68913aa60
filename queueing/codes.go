package queueing

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	unknownFlavour   trace.Code = "unknown_queue_flavour"
	BadModel         trace.Code = "bad_queue_model"
	TargetBelowRange trace.Code = "target_below_range"
	targetAboveRange trace.Code = "target_above_range"
	badFleet         trace.Code = "bad_fleet"
	notMonotone      trace.Code = "latency_not_monotone"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: unknownFlavour, Kind: "error", Meaning: "The queueing model is not one of wva-4p, wva-3p, inferno-3p, corrected.",
		Action: "Pick one of the four; docs/queueing.md says which consumer reads which."},
	{Code: BadModel, Kind: "error", Meaning: "A parameter, length or limit of a queueing model is one that no server can have.",
		Action: "Correct the named value."},
	{Code: TargetBelowRange, Kind: "error", Meaning: "A latency target is missed even at the smallest load.",
		Action: "Raise the target, or use a faster accelerator or a shorter prompt."},
	{Code: targetAboveRange, Kind: "finding", Meaning: "A latency target is met up to the largest throughput, so it limits nothing.",
		Action: "Nothing, or lower the target; the throughput limits the rate."},
	{Code: badFleet, Kind: "error", Meaning: "A server, accelerator or capacity of an allocation problem is one that cannot be.",
		Action: "Correct the named value."},
	{Code: notMonotone, Kind: "finding", Meaning: "A latency falls somewhere as the load grows, because prompts are cut into another " +
		"number of chunks.", Action: "Nothing: the smallest rate that misses the target counts."},
}
