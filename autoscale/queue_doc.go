// Package queue calibrates queueing models, checks them and uses them. It joins
// pipeline/fit (steps), autoscale (windows and models) and sim (what a server with the
// same parameters does).
//
//	servers.go   output folders and benchmark files -> servers
//	input.go     recordings and benchmark sweeps -> servers with windows
//	physical.go  a recording's steps -> parameters, floors, implied utilisation
//	fit.go       windows -> effective parameters, scored on windows the fit has not seen
//	track.go     the online estimators over the same windows
//	windows.go   windows.parquet: what each estimator said of each window
//	simulate.go  one server at one rate in the simulator, with the same parameters
//	size.go      targets -> rates; allocate.go a fleet -> replicas
//	steady.go    a deployment in the simulator -> the parameters that give its latencies
//	use.go       queue size, allocate and validate; sections.go, figures.go the page
//
// The result is result.Queue, written as queue.json.
//
// # What is promised
//
// Physical parameters come from step traces alone and effective ones from latencies alone,
// pulled towards the physical; the shift between the two is the queueing model's error and
// is printed. A direction that the windows do not show is held at the physical value and
// tagged; without physical values such a fit is refused, with the sweep that would cure it.
// Every window is kept or dropped for a counted reason. The same input gives the same
// bytes, for any number of workers.
package autoscale
