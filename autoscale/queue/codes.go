package queue

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	badOption     trace.Code = "bad_queue_option"
	noPhysical    trace.Code = "no_physical_parameters"
	fasterThanHW  trace.Code = "faster_than_hardware"
	largeShift    trace.Code = "large_shift"
	badProblem    trace.Code = "bad_allocation_problem"
	NoServer      trace.Code = "no_such_server"
	noParameters  trace.Code = "no_queue_parameters"
	atFloor       trace.Code = "parameter_at_floor"
	notInSteady   trace.Code = "closed_benchmark"
	beyondLoads   trace.Code = "beyond_loads"
	overheadGuess trace.Code = "overhead_unknown"
	widened       trace.Code = "interval_widened"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: badOption, Kind: trace.KindUsage, Meaning: "An option of a queue command is out of its range.",
		Action: "Correct the value the message names."},
	{Code: noPhysical, Kind: "finding",
		Meaning: "A recording gives no physical parameters, so that nothing holds what its windows do not show.",
		Action:  "Record step traces, or a sweep over lengths and loads."},
	{Code: fasterThanHW, Kind: "finding", Meaning: "A fitted parameter is below what the hardware allows.",
		Action: "Check the hardware figures of run.yaml; else the fit has moved cost between terms, and other lengths will be off."},
	{Code: largeShift, Kind: "finding", Meaning: "An effective parameter is more than twice, or less than half, its physical value.",
		Action: "Read the direction it moved in: the queueing model makes up for something it leaves out."},
	{Code: widened, Kind: "finding",
		Meaning: "A physical parameter stood outside the interval of the fit without penalty; the interval now reaches to it.",
		Action:  "Trust the parameter no further than the interval says; more steps of other composition narrow it."},
	{Code: badProblem, Kind: "error", Meaning: "A value of an allocation problem is missing or impossible.",
		Action: "Correct it; blis-train queue allocate --help shows the form."},
	{Code: NoServer, Kind: "error", Meaning: "No server of queue.json has the name or model asked for.",
		Action: "Use one of those the message lists."},
	{Code: noParameters, Kind: "error", Meaning: "A server of queue.json lacks the parameters or the lengths that are needed.",
		Action: "Read its reason in queue.json, and fit it again."},
	{Code: atFloor, Kind: "finding", Meaning: "The steps do not show a parameter (0 at its bound); the hardware's limit stands in for it.",
		Action: "Nothing for this workload; record steps that differ in the named quantity to learn it."},
	{Code: notInSteady, Kind: "drop",
		Meaning: "A benchmark sends requests as fast as they are answered; the models assume arrivals that do not wait.",
		Action:  "Nothing; use constant or Poisson rates."},
	{Code: beyondLoads, Kind: "drop", Meaning: "A benchmark of a sweep comes after the number of loads asked for.",
		Action: "Nothing, or another --loads."},
	{Code: overheadGuess, Kind: "finding",
		Meaning: "The recording has no API spans, so the time from arrival to the engine is unknown and taken as 0.",
		Action:  "Trace the API server too."},
}
