// Package extract turns recordings of other programs into trace tables. What it
// stands on:
//
//	source            files -> decompressed batches of whole lines or messages, on several workers; rows sorted in
//	                  bounded memory; read = kept + dropped for a reason with a place
//	forms             files of every other form -> typed records
//
// In this package otlp_*.go turn lines and messages of OTLP dumps into spans, and the rest run folders into inputs by
// form, and spans, KV events and requests into tables and extract.json under final names.
//
// What comes in: run folders found by Discover, each with the dumps its
// run.yaml names. What a file is decides its content: JSON lines or one
// document, length-prefixed protobuf, zstd in both framings of the collector's
// file exporter, gzip; the parts of a rotated set are read in time order as one
// stream, in which a line may go on from file to file.
//
// What goes out: tables/run=<id>/ and extract.json. The same input gives the
// same bytes for any number of workers and either parser.
//
// It promises that every record read is kept or dropped for a counted reason
// with a place (read = kept + dropped is asserted), that damage costs what it
// damaged and no more (the records before and after survive where the framing
// tells where they are), that memory is bounded by workers times the longest
// line and about a kilobyte a request and not by the bytes of the input, and
// that nothing half-written has a final name.
//
// It refuses engine runs that overlap in time unless told to split them, input
// of which more than a stated share is unreadable, and files that are no dump.
package extract

import (
	"github.com/blis-train/blis-train/trace"
)

// Warnings and errors.
const (
	codeNoInput        trace.Code = "no_input"
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
	codeSeveralEngines trace.Code = "several_engines"
)
