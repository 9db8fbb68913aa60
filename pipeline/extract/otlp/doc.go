// Package otlp decodes OpenTelemetry trace dumps, OTLP/JSON and OTLP/protobuf, into the spans
// of an instrumented vLLM.
//
// Start with [NewDecoder]. Package source runs one decoder per worker and gives it the lines or
// messages of a dump; what the decoder finds in one batch is a [Batch] of [Span]. A span has a
// [Class]: the API process's view of a request, the scheduler's view of it, a range of scheduler
// steps, or the single span of an unmodified vLLM. Spans of other programs are decoded far enough
// to be counted.
//
// A line of JSON is decoded in these files, in order:
//
//	decoder.go     the interface to package source
//	wrapper.go     arrays of documents and Tempo's answers are unwrapped
//	json.go        one pass over the bytes; keys in any order and spelling
//	quick.go       attributes in the form that every exporter writes, compared as text without parsing
//	attributes.go  the attributes that a table needs, each with a numbered slot
//	build.go       events and attributes become rows, or drops with a reason
//	span.go        the result
//
// A protobuf message is checked as a whole, its nesting included, before proto.go reads it in place.
// Its rows are made by build.go too, so both forms of a span give equal results. Tests compare
// both readers with OpenTelemetry's own decoders.
//
// Stamps are int64 nanoseconds, durations of stock spans float64 microseconds. A broken message
// gives an error with the byte at which it is broken, and no spans. A broken event is a [Fault]
// of its span, and the rest of the span is kept. The slices and strings of a [Span] do not refer
// to the text that was decoded.
package otlp
