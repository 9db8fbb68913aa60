package queueing

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	UnknownFlavour   trace.Code = "unknown_queue_flavour"
	BadModel         trace.Code = "bad_queue_model"
	TargetBelowRange trace.Code = "target_below_range"
	TargetAboveRange trace.Code = "target_above_range"
	BadFleet         trace.Code = "bad_fleet"
	NotMonotone      trace.Code = "latency_not_monotone"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: UnknownFlavour, Kind: "error", Meaning: "The queueing model is not one of wva-4p, wva-3p, inferno-3p, corrected.", Action: "Pick one of the four; docs/queueing.md says which consumer reads which."},
	{Code: BadModel, Kind: "error", Meaning: "A parameter, length or limit of a queueing model is one that no server can have.", Action: "Correct the named value."},
	{Code: TargetBelowRange, Kind: "error", Meaning: "A latency target is missed even at the smallest load.", Action: "Raise the target, or use a faster accelerator or a shorter prompt."},
	{Code: TargetAboveRange, Kind: "finding", Meaning: "A latency target is met up to the largest throughput, so it limits nothing.", Action: "Nothing, or lower the target; the throughput limits the rate."},
	{Code: BadFleet, Kind: "error", Meaning: "A server, accelerator or capacity of an allocation problem is one that cannot be.", Action: "Correct the named value."},
	{Code: NotMonotone, Kind: "finding", Meaning: "A latency falls somewhere as the load grows, because prompts are cut into another number of chunks.", Action: "Nothing: the smallest rate that misses the target counts."},
}
