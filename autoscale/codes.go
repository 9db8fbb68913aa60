package autoscale

import "github.com/blis-train/blis-train/trace"

// Codes of the queueing product.
const (
	badOption         trace.Code = "bad_queue_option"
	badModel          trace.Code = "bad_queue_model"
	targetBelowRange  trace.Code = "target_below_range"
	sizingRemark      trace.Code = "sizing_remark"
	noWindows         trace.Code = "no_windows"
	heldParameter     trace.Code = "held_parameter"
	fewRequests       trace.Code = "few_requests"
	saturatedWindow   trace.Code = "saturated_window"
	closedLoop        trace.Code = "closed_loop_window"
	noLatency         trace.Code = "no_latency"
	unlikelyParameter trace.Code = "unlikely_parameter"
	noParameters      trace.Code = "no_queue_parameters"
	beyondLoads       trace.Code = "beyond_loads"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: badOption, Kind: trace.KindUsage, Meaning: "An option of a queue command, of the window cut or of the estimation is out of its " +
		"range, or the queueing model is none of wva-4p, wva-3p, inferno-3p, corrected.",
		Action: "Correct the value the message names; docs/queueing.md says which consumer reads which model."},
	{Code: badModel, Kind: "error", Meaning: "A parameter, length or limit of a queueing model, or a server, accelerator, capacity or value " +
		"of an allocation problem is missing or impossible.",
		Action: "Correct the named value; blis-train queue allocate --help shows the form of a problem."},
	{Code: targetBelowRange, Kind: "error", Meaning: "A latency target is missed even at the smallest load.",
		Action: "Raise the target, or use a faster accelerator or a shorter prompt."},
	{Code: sizingRemark, Kind: "finding", Meaning: "A latency target is met up to the largest throughput, so that the throughput limits the " +
		"rate; or a latency falls somewhere as the load grows, because prompts are cut into another number of chunks.",
		Action: "Nothing, or a lower target; the smallest rate that misses the target counts."},
	{Code: noWindows, Kind: "error", Meaning: "No window is left to estimate from, or the windows differ too little to tell the parameters " +
		"apart and there are no physical values to hold the rest at.",
		Action: "Read the drops: a shorter --window or a smaller --min-requests gives more. Else record the sweep the hint names, " +
			"or fit a run with step traces."},
	{Code: heldParameter, Kind: "finding", Meaning: "The data do not show a parameter, a combination of them, or the overhead: a physical " +
		"value, the hardware's limit or 0 stands in, or an interval was widened to reach the value.",
		Action: "Nothing, as long as the server is used where it was recorded; else record the proposed sweep, step traces or API spans."},
	{Code: fewRequests, Kind: "drop",
		Meaning: "A window holds fewer requests than asked for, or the rest of a phase is shorter than a window.",
		Action:  "A longer or shorter --window, or a smaller --min-requests."},
	{Code: saturatedWindow, Kind: "drop",
		Meaning: "A window overlaps a saturated stretch, in which the queue grows and no steady state exists.",
		Action:  "Nothing; record below capacity."},
	{Code: closedLoop, Kind: "drop", Meaning: "A window or benchmark has arrivals that wait for the server, as a closed loop's do; the " +
		"models assume that they do not.",
		Action: "Nothing; record an open loop with constant or Poisson rates."},
	{Code: noLatency, Kind: "drop", Meaning: "A window has no time to first token or no gap between tokens, or a benchmark no usable mean.",
		Action: "Record requests with two output tokens or more; medians of a sweep are the default."},
	{Code: unlikelyParameter, Kind: "finding", Meaning: "A fitted parameter is below what the hardware allows, or more than twice or less " +
		"than half its physical value.",
		Action: "Check the hardware figures of run.yaml; else the fit has moved cost between terms, or the queueing model makes up for " +
			"something it leaves out: other lengths will be off."},
	{Code: noParameters, Kind: "error", Meaning: "queue.json has no server of the name or model asked for, or it lacks the parameters or " +
		"the lengths that are needed.",
		Action: "Use one of those the message lists; read the server's reason in queue.json, and fit it again."},
	{Code: beyondLoads, Kind: "drop", Meaning: "A benchmark of a sweep comes after the number of loads asked for.",
		Action: "Nothing, or another --loads."},
}
