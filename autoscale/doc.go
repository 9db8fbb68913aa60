// Package autoscale has the queueing models with which autoscalers of LLM servers size replicas, in one
// closed form for all of them; the estimation of their parameters; sizing and allocation with them; and
// the files that autoscalers read.
//
// # The model
//
// Parameters give the duration of an engine iteration, a shape the mean lengths of requests, [Limits] how
// many requests fit. Times are in milliseconds and rates in requests per second, as autoscalers state
// them. An engine that serves at most N requests (max_num_seqs) with a waiting room of Q is a birth-death
// chain with arrivals at rate lambda and departures at rate n/tau(n) with n <= N requests in service,
// N/tau(N) above. A [Flavour] defines tau(n), the time in service at concurrency n, and the latencies
// derived from it:
//
//	wva-4p      workload-variant-autoscaler v0.0.1 to v0.4.2: prefill gamma + delta*k*n, decode alpha + beta*n
//	wva-3p      its successor from 2026-02, and queue-analysis v0.2 to v0.6
//	inferno-3p  llm-inferno's queue-analysis from v0.7: prefill in chunks, a request's own work counted once
//	corrected   ours: inferno-3p plus the rest of the running step that an arrival waits for, the API
//	            overhead, m-1 token gaps, the spread of lengths and the KV cache
//
// docs/queueing.md lists which consumer reads which, with the commits.
//
// Solve computes throughput, queueing delays, concurrency, TTFT and ITL at a rate. It is exact for the
// chain, allocates nothing, takes O(N + log Q), and has an answer above capacity too, where requests are
// blocked. Size gives the largest rate that meets targets, [Fleet.Allocate] the replicas of a fleet.
// Parameters, lengths and limits that no server can have are refused by name and value, and so are targets
// that even the smallest load misses.
//
// # Estimation
//
// [FitQueues] turns recordings and benchmark sweeps into the document queue.json:
//
//	model.go, corrected.go    the formulas of each flavour; chain.go and seat_wait.go solve them at a rate
//	input.go, sweep_input.go  recordings, output folders and sweeps -> servers
//	window.go                 requests -> windows: rate, lengths, mean TTFT and ITL with standard errors
//	batch.go, marquardt.go    windows -> effective parameters: robust least squares in log parameters
//	identify.go               directions that the windows do not determine, and the sweep that would
//	physical.go               recorded steps -> physical parameters and floors
//	replica.go, sliding.go    the autoscalers' own online tuners, with their bugs
//	robust.go, kalman.go      our filter: measured noise, log state, iterated update, a gate that opens
//	domain.go                 lengths that a server rejects, and lengths and loads unlike the fitted ones
//	size_queues.go            targets -> rates; allocate.go, optimum.go: a fleet -> replicas
//	validate_queues.go        parameters on other windows, and the same server in the simulator
//	document.go               queue.json; page_sections.go: its page
//
// A window gives two numbers, the means of TTFT and ITL, for three or four parameters. At one operating
// point (rate, prompt and output length fixed) the two numbers stay the same in every window, so one
// direction of the parameters is not determined. [Fit] names that direction, holds it at physical values
// where they are given, and otherwise returns an error that names the sweep that would determine it.
//
// Physical parameters come from step traces alone, effective ones from latencies, with the physical ones
// as a prior. The shift between the two is the error of the queueing model and is printed. Every window is
// kept or dropped for a counted reason. The same input gives the same bytes for any number of workers.
// Nothing panics above capacity, where the autoscalers' own code returns nothing.
//
// # Files of autoscalers
//
// Files are written from a physics fit (wva.go, inferno.go: fit.json) or from a queueing calibration
// (calibration.go, tuner.go, slo.go: queue.json). formats.go is the table of formats, their options and the
// versions of their readers. Refused, with the reason: a version of the reader that no longer takes the
// file, a queueing model that the reader does not have, a server without parameters.
// docs/contracts/autoscaler.yaml is the contract against which the files are tested.
package autoscale
