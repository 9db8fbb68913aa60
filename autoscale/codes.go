package autoscale

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	unknownFlavour   trace.Code = "unknown_queue_flavour"
	BadModel         trace.Code = "bad_queue_model"
	TargetBelowRange trace.Code = "target_below_range"
	targetAboveRange trace.Code = "target_above_range"
	badFleet         trace.Code = "bad_fleet"
	notMonotone      trace.Code = "latency_not_monotone"
	BadOption        trace.Code = "bad_track_option"
	NoWindows        trace.Code = "no_windows"
	SinglePoint      trace.Code = "single_operating_point"
	heldDirection    trace.Code = "held_direction"
	partialWindow    trace.Code = "partial_window"
	fewRequests      trace.Code = "few_requests"
	SaturatedWindow  trace.Code = "saturated_window"
	ClosedLoop       trace.Code = "closed_loop_window"
	noLatency        trace.Code = "no_latency"
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
	{Code: BadOption, Kind: trace.KindUsage, Meaning: "An option of the window cut or of the estimation is out of its range.",
		Action: "Correct the value the message names."},
	{Code: NoWindows, Kind: "error", Meaning: "No window is left to estimate from.",
		Action: "Read the drops; a shorter --window or a smaller --min-requests gives more."},
	{Code: SinglePoint, Kind: "error",
		Meaning: "The windows are too much alike to tell the parameters apart, and there are no physical values to hold the rest at.",
		Action:  "Record the sweep the hint names, or fit a run with step traces."},
	{Code: heldDirection, Kind: "finding", Meaning: "The windows do not show some combination of parameters; it is held at physical values.",
		Action: "Nothing, as long as the server is used where it was recorded; else record the proposed sweep."},
	{Code: partialWindow, Kind: "drop", Meaning: "A rest of a phase is shorter than a window.", Action: "Nothing, or a shorter --window."},
	{Code: fewRequests, Kind: "drop", Meaning: "A window holds fewer requests than asked for.",
		Action: "A longer --window, or a smaller --min-requests."},
	{Code: SaturatedWindow, Kind: "drop",
		Meaning: "A window overlaps a saturated stretch, in which the queue grows and no steady state exists.",
		Action:  "Nothing; record below capacity."},
	{Code: ClosedLoop, Kind: "drop",
		Meaning: "A window lies in a closed loop, whose arrivals wait for the server; the models assume that they do not.",
		Action:  "Nothing; record an open loop."},
	{Code: noLatency, Kind: "drop", Meaning: "A window has no time to first token or no gap between tokens.",
		Action: "Record requests with two output tokens or more."},
	{Code: accepted, Kind: "tag", Meaning: "The window moved the filter's state.", Action: "Nothing."},
	{Code: acceptedOpening, Kind: "tag",
		Meaning: "The second window in a row was beyond the gate: something has changed, and the filter follows it.",
		Action:  "Look what changed at that time."},
	{Code: rejectedNIS, Kind: "tag", Meaning: "The window's innovation is too large for the filter's noise, so the window was not used.",
		Action: "Nothing for single windows; many of them mean that the noise is set too small, or that the server changed."},
	{Code: rejectedSign, Kind: "tag", Meaning: "The update would have made a parameter negative or zero.",
		Action: "Nothing; the robust tracker cannot get there."},
	{Code: rejectedModel, Kind: "tag",
		Meaning: "The queueing model has no answer at this window's rate and the filter's state, or beside it (there the original " +
			"dereferences a nil).", Action: "Look at the rate: above the capacity that the state implies the autoscaler learns nothing."},
	{Code: heldBack, Kind: "tag", Meaning: "The last windows do not tell the parameters apart; the last good refit is kept.",
		Action: "Vary the load, or record a sweep."},
	{Code: filling, Kind: "tag", Meaning: "There are too few windows yet for a refit.", Action: "Nothing."},
}
