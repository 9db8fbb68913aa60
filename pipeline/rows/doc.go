// Package rows turns the tables of one engine run into training rows. It is
// the only package that knows what a training row is.
//
// Two stages, because batches are rebuilt once while rows are made for several
// lags, smoothing factors and targets:
//
//	steps, err := rows.Rebuild(run, dep, features.V11)  // batches, section 8
//	beta, err  := steps.Beta(sp, rows.Options{Lag: 1, Gamma: 0.3})
//	alpha, err := steps.Alpha(sp, rows.Options{Target: coeff.Overhead, Gamma: 0.3})
//	rows.Clean(tables, rows.Relative)                   // outliers, pooled
//
// # Stage one: what ran in each step
//
// [Rebuild] gives every step id between the first and the last recorded one a
// [Tag]: rich (a complete set of snapshots), journey (rebuilt from SCHEDULED,
// FIRST_TOKEN and FINISHED, exact), summary (batch totals only, approximate) or
// unknown with a reason. Snapshots win over reconstruction. A reconstruction
// that contradicts a recorded BATCH_SUMMARY is unknown and counted. Steps that
// were not recorded are rebuilt too: sampled runs get their interval rows from
// them.
//
// A request's life is: chunks from its SCHEDULED step to its FIRST_TOKEN step,
// then one decode a step until FINISHED. Chunks fill the token budget greedily
// in scheduling order behind the decodes. Whatever breaks this picture (a
// preemption, an abort, a lost event, a request that is not in the journeys)
// makes the steps it touches unknown unless the step's own summary confirms the
// totals. Under asynchronous scheduling a request that stops by EOS has one
// wasted decode in the step after its last.
//
// # Stage two: rows
//
// A beta row says: the time from the start of recorded step i to the start of
// the next recorded step j is the sum of the step times of steps i-lag ..
// j-1-lag. Adjacent steps make one-step rows; sampled runs make rows of up to
// twenty steps where every one of them is known. An alpha row joins a request
// to the last recorded step before its stamp; the overhead target is an
// interval.
//
// Every candidate row is kept or dropped for exactly one reason: read = kept +
// dropped is asserted. Hold-out, phase, regime, weight factor and physical
// floor travel with the row, so that fitting needs nothing else.
//
// # Engines that write no steps
//
// [Fill] turns the iterations that an unmodified engine writes into
// steps that rows are made from: when each began (fill_audit.go says
// what its time may be taken for, align.go puts the passes on one clock and
// on that of the clients), and what ran in it (contexts.go fills in what counts
// do not tell).
//
// Counts and sums of a pass are exact. What they cannot give gets a value and a
// mark: contexts of decodes come from clients, from the trace's own sums, from KV
// usage, or are one mean for the whole run, and then the term they drive is merged
// with that of decodes. A time that may not be taken for the step's is refused
// with the option that would give one.
//
// # How far predictions are off
//
// [JudgeSteps] and [JudgeDelays] say how far predictions are from training rows, in the form of
// the documents. fit.json and validation.json print what it returns, so that one
// name is one figure in both.
//
// What comes in are samples: the rows of one run with what is predicted of them
// and which of them judge it. Samples of one configuration make a group: they
// share the best constant, made from the rows that trained, and the noise floor,
// made from the nearest rows of the group. A run that the coefficients never saw
// is a group of its own.
//
//	judge  := rows.JudgeSteps(groups, true, workers) // step times
//	errors := judge.Errors(nil)                     // all judged rows
//	cells  := judge.Cells(sample)                   // by regime and stress set
//	delays := rows.JudgeDelays(groups)               // an alpha target
//
// Rows are visited in the order of the groups, so nothing depends on the number
// of workers.
//
// Nothing here depends on the order of a map, on the clock or on the number of
// workers.
package rows

import (
	"github.com/blis-train/blis-train/trace"
)

// Reasons for which a candidate row is dropped. The codes of package features
// (feature_out_of_range, bad_input, inconsistent_*) are reasons too.
const (
	codeWarmUp      trace.Code = "warm_up"
	Saturated       trace.Code = "saturated"
	codeNoInterval  trace.Code = "no_interval"
	UnknownBatch    trace.Code = "unknown_batch"
	codeNoTarget    trace.Code = "no_target"
	codeOutlier     trace.Code = "outlier"
	codeRowsThinned trace.Code = "rows_thinned"
)

// Errors, warnings and findings.
const (
	BadOption              trace.Code = "bad_option"
	codeBadStepIDs         trace.Code = "bad_step_ids"
	codeChunkedNoSnapshots trace.Code = "chunked_without_snapshots"
	codeNotRecorded        trace.Code = "not_recorded"
	OverheadUnknown        trace.Code = "overhead_not_identified"
	codeManyOutliers       trace.Code = "many_outliers"
	codeRegimeAbsent       trace.Code = "regime_absent"
	MachineDrift           trace.Code = "machine_drift"
	codeWindowSums         trace.Code = "window_sums_approximate"
)
