// Package extract turns recordings of other programs into trace tables. It is
// the only room that knows OTLP, KV-event lines and the files of load clients.
//
// What comes in: run folders found by Discover, each with the dumps its
// run.yaml names. What a file is decides its content: JSON lines or one
// document, length-prefixed protobuf, zstd in both framings of the collector's
// file exporter, gzip; the parts of a rotated set are read in time order as one
// stream, in which a line may go on from file to file.
//
// The steps, in the order of the files:
//
//	discover.go          arguments -> run folders -> files in reading order
//	input.go, frames.go  file -> decompressed bytes and their form, within limits
//	stream.go, reader.go bytes -> batches of whole lines or messages, by workers in turn
//	json.go, proto.go    message -> spans; pdata.go is the reference for both
//	kv.go, client.go     KV events and observed requests
//	collect.go, join.go  spans -> requests, linked to their API spans
//	engine.go, steps.go  step spans -> engine runs, their tables written at once
//	request.go           requests, packed until the end
//	write.go             the other tables, sorted, under a temporary name until whole
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
