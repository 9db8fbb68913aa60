// Package autoscale holds the queueing models by which autoscalers of LLM
// servers size replicas, one closed form for all of them, the estimation of their
// parameters, the sizing and allocation built on them, and the files of autoscalers.
//
// # What goes in
//
// A [Params] says how long an engine iteration takes, a [Shape] how long
// requests are on average, a [Limits] how many fit. Times are in milliseconds,
// rates in requests per second, as the autoscalers state them.
//
// # The model
//
// An engine with N seats and a waiting room of Q is a birth-death chain with
// arrivals at rate lambda and departures at rate n/tau(n) from n <= N requests
// in service, N/tau(N) above. A [Flavour] says what tau(n), the time in service
// at concurrency n, and the latencies derived from it are:
//
//	wva-4p      workload-variant-autoscaler v0.0.1 to v0.4.2: prefill gamma +
//	            delta*k*n, decode alpha + beta*n
//	wva-3p      its successor from 2026-02, and queue-analysis v0.2 to v0.6
//	inferno-3p  llm-inferno's queue-analysis from v0.7: prefill in chunks, a
//	            request's own work counted once
//	corrected   ours: inferno-3p plus the rest of the running step that an
//	            arrival waits for, the API overhead, m-1 token gaps, the spread
//	            of lengths and the KV cache
//
// docs/queueing.md says which consumer reads which, with the commits.
//
// # What comes out
//
// [Model.Solve] gives throughput, waits, concurrency, TTFT and ITL at a rate; it
// is exact for the chain, allocates nothing, takes O(N + log Q) and has an
// answer above capacity too, where requests are blocked. [Model.Size] gives the
// largest rate that meets targets, [Allocate] replicas for a fleet.
//
// # What is refused
//
// Parameters, lengths and limits that no server can have, by name and value;
// targets that the smallest load already misses.
//
// # Estimation
//
// [Fit] and the online estimators make the parameters from what a server did, window by window.
//
//	window.go   requests -> windows: rate, lengths, mean TTFT and ITL with standard errors; windows.parquet
//	batch.go    windows -> parameters: robust least squares in log parameters; what the windows cannot tell apart, in words,
//	            and the sweep that would
//	replica.go  the autoscalers' online tuner, bug for bug: a refit over the last windows; ours: measured noise, log state,
//	            iterated update, a gate that opens; the extended Kalman filter both share
//
// # What a window can say
//
// Each window gives two numbers, the means of TTFT and ITL, for three or four
// parameters. At one operating point (rate, prompt and output length fixed) the
// two numbers stay the same whatever the number of windows, so one direction of
// the parameters is never seen. [Fit] says which one in words, holds it at
// physical values when it is given some, and refuses without ([NoWindows]).
//
// # What estimation promises
//
// Every window is kept or dropped for a counted reason. The same windows give
// the same numbers. Nothing panics above capacity, where the autoscalers' own
// code returns nothing.
//
// # Calibration
//
// [FitQueues] joins steps, windows and a simulation of the same server into queue.json.
//
//	input.go     recordings, output folders and benchmark sweeps -> servers with windows; a recording's steps -> parameters,
//	             floors, implied utilisation
//	fit.go       windows -> effective parameters, scored on windows the fit has not seen
//	size.go      targets -> rates; allocate.go a fleet -> replicas
//	use.go       queue size, allocate and validate: how well parameters hold on other windows; the server in the simulator
//	document.go  queue.json and its page
//
// The result is Queue, written as queue.json.
//
// # What is promised
//
// Physical parameters come from step traces alone and effective ones from latencies alone,
// pulled towards the physical; the shift between the two is the queueing model's error and
// is printed. A combination of parameters that the windows do not determine is held at the
// physical value and tagged; without physical values such a fit is refused, with the sweep that would cure it.
// Every window is kept or dropped for a counted reason. The same input gives the same
// bytes, for any number of workers.
//
// # Files of autoscalers
//
// They are written whether the numbers come from a
// physics fit (fit.json) or from a queueing calibration (queue.json).
//
//	calibration.go  the formats, their options, which version of which reader takes which file; queue.json -> files
//	wva.go          fit.json -> files
//
// What is refused: a version of the reader that no longer takes the file, a flavour that
// is not the reader's, a server without parameters, and forms that lack what they must
// have; each says why. docs/contracts/autoscaler.yaml is the contract the forms are tested against.
package autoscale
