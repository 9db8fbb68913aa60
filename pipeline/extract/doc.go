// Package extract turns the recordings of a run folder into trace tables and extract.json.
//
// Other packages read the files, and this one joins their records:
//
//	source     files -> decompressed batches of whole lines or messages, on several workers; sorting
//	           in bounded memory; the account of records read, kept and dropped
//	otlp       messages of trace dumps -> spans
//	clients    results of load clients and benchmarks -> requests and load levels
//	enginelog  engine logs, forward-pass traces, KV events and metrics -> typed records
//	pairing    requests of clients and passes of a log -> the pass in which each prompt ended
//
// Start with [Discover], which finds run folders, and [Run], which extracts them into an output
// folder; [One] and [Assemble] do the same in several processes, [Piece] on parts of large files.
// The extraction of one run folder (run.go) finds the input files (found.go), streams them into a
// collector of spans (collect.go), divides step spans among engines (engine.go), joins requests with
// their API spans and with the clients' records (join.go), writes the tables of each engine run under
// temporary names, and at the end renames them to their final names together with extract.json
// (publish.go).
//
// The form of a file is recognised by its content, not by its name: JSON lines or one document,
// length-prefixed protobuf, zstd in both framings of the OpenTelemetry collector's file exporter,
// gzip. The parts of a rotated set are read
// in time order as one stream, in which a line may continue in the next file.
//
// The package promises:
//   - Every record read is kept, or dropped for a counted reason with a place (file and line). An
//     extraction fails if read is not kept + dropped.
//   - Damage in a file drops the damaged records alone: those before and after are kept if the framing
//     (line ends, length prefixes, zstd frames) shows where the next begins.
//   - Memory is bounded by the number of workers times the longest line, and about a kilobyte a
//     request; requests of clients have a limit (Options.ClientMemory). It does not grow with the bytes
//     of the input.
//   - A file has its final name only once it is complete.
//   - The same input gives the same bytes for any number of workers and either form of OTLP.
//
// Errors: engine runs that overlap in time, unless Options.SplitEngines is set; input of which more
// than the given share is unreadable; files that contain no recording.
package extract

import (
	"github.com/blis-train/blis-train/trace"
)

// Warnings and errors.
const (
	codeNoInput        trace.Code = "no_input"
	codeFoundBelow     trace.Code = "found_below"
	codeNotSearched    trace.Code = "not_searched"
	codeInvalidText    trace.Code = "invalid_unicode"
	codeStopString     trace.Code = "stop_string_finish"
	codeNotRebuilt     trace.Code = "batches_not_counted"
	codeTooManyBad     trace.Code = "too_many_bad_records"
	codeDuplicateRunID trace.Code = "duplicate_run_id"
	CodeNoRuns         trace.Code = "no_runs"
	CodeNotOurs        trace.Code = "not_our_file"
	codeClockOffset    trace.Code = "clock_offset_spread"
	codeChunkSteps     trace.Code = "chunk_steps"
	codeInputsChanged  trace.Code = "inputs_changed"
	codeIncomplete     trace.Code = "incomplete_trace" // which records of a run are missing
)
