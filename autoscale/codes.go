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
