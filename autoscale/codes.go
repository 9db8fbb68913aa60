package autoscale

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// Codes of errors, findings and dropped windows of this package.
const (
	badModel         trace.Code = "bad_queue_model"
	targetBelowRange trace.Code = "target_below_range"
	sizingRemark     trace.Code = "sizing_remark"
	noWindows        trace.Code = "no_windows"
	fewRequests      trace.Code = "few_requests"
	closedLoop       trace.Code = "closed_loop_window"
	noLatency        trace.Code = "no_latency"
	beyondLoads      trace.Code = "beyond_loads"
	unknownFormat    trace.Code = "unknown_export_format"
	narrowLine       trace.Code = "narrow_line"
	beyondJudged     trace.Code = "outside_judged"
)

// Codes of other packages with the same meaning here.
const (
	badOption         = rows.BadOption
	heldParameter     = fit.NotIdentified
	unlikelyParameter = fit.Implausible
	saturatedWindow   = rows.Saturated
	outsideTraining   = coeff.OutsideTraining
	judgedOnTraining  = coeff.JudgedOnTraining
)
