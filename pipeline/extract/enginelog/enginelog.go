// Package enginelog reads the records that an unmodified inference engine writes: its forward passes
// (trace.Iteration, a pass for short) from log lines and from forward-pass traces, the events of its
// KV cache (trace.KVEvent), and its metrics.
//
// A life is the time from one start of an engine to its end; a log that was appended to after a
// restart has several. Lives turns files of passes into one table for each life of each engine.
// lines.go reads log lines by the table lineForms (vLLM, SGLang, TensorRT-LLM);
// fpm.go reads forward-pass traces; stamp.go and wrapped.go read the times and the JSON that log
// collectors put around a line. KVCollector collects KV events (kvevents.go). ReadCounters and
// ReadSnapshot read an answer of /metrics (metrics.go).
//
// Stamps are int64 ns, times float64 us. Every record that is read is kept, or dropped and
// counted with a reason and a place.
package enginelog

import (
	"bytes"
	"cmp"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// passRecord is one line of a log: a pass, or statistics instead of a pass.
type passRecord struct {
	trace.Iteration
	Engine string // engine core, rank or producer that ran the pass
	// Process wrote the line: of vLLM its name and pid, such as "EngineCore_DP0 pid=7", which change with a restart; of
	// SGLang the tensor-parallel rank, which may stay the same; "" of other engines and where the line does not name it.
	Process string

	HitRate                trace.Opt[float64] // of the prefix cache, 0..1, in place of a pass
	PromptRate, OutputRate float64            // tokens/s, beside a hit rate
	Drafts                 DraftCounts        // of some ten seconds, in place of a pass
	BeforeUs               trace.Opt[float64] // time of the pass before this one (TensorRT-LLM)

	// Of SGLang, to find decodes that were logged for several passes (followSGLang).
	TokensPerS     float64 // throughput since the decode before
	AcceptedTokens float64 // that a request got of a pass, with drafts
	Running        int64   // requests of the next decode, if none ends before it
	HeldTokens     int64   // of these requests in the KV cache, before the next decode
	Pace           decodePace
}

// isStatistics reports whether the line has figures of many passes.
func (r *passRecord) isStatistics() bool { return r.HitRate.OK || r.Drafts.Drafted > 0 }

// DraftCounts counts the tokens that a drafter proposed and those that the model accepted.
type DraftCounts struct {
	Drafted  int64
	Accepted int64
}

// passLines are the passes of one batch of lines, and the lines that hold none.
type passLines = source.Lines[passRecord]

// passDecoder is the common part of the decoders of passes.
type passDecoder struct {
	source.LineDecoder[passRecord]
	names *files.Interner // one copy of each engine's name
}

// newPassDecoder returns the part of a decoder that the decoders of passes have in common. LineDecoder
// sets the number of the line in each record, in the field that the function returns.
func newPassDecoder() passDecoder {
	return passDecoder{
		LineDecoder: func(r *passRecord) *int64 { return &r.Line },
		names:       files.NewInterner(),
	}
}

// passTraceDecoder makes the decoder of a worker.
type passTraceDecoder func() source.Decoder[*passLines]

// passTraces are the forms of files that hold one pass a line and nothing else.
var passTraces = []source.Format[passTraceDecoder]{
	{Name: FPMSchema, Sniff: sniffFPM, Read: newFPMDecoder},
}

// IsPassTrace reports whether a file is a trace of forward passes, by its beginning.
func IsPassTrace(head []byte) bool {
	return source.IsProven(passTraces, bytes.TrimLeft(head, " \t\r\n\ufeff"))
}

// passTraceOf returns the form of a file. A file that cannot be read twice, or of no known form, gets
// the first form, whose reader counts lines that it cannot read.
func passTraceOf(in *source.Input, how source.Options) *source.Format[passTraceDecoder] {
	first := &passTraces[0]
	if in.Path == "-" || in.IsPipe || len(passTraces) == 1 {
		return first
	}
	src, _ := source.Open(in, nil, how.Limits)
	if src == nil {
		return first
	}
	defer src.Close()
	head, _ := src.R.Peek(source.HeadBytes)
	return cmp.Or(source.FormatOf(passTraces, bytes.TrimLeft(head, " \t\r\n")), first)
}

// completePass adds what only two consecutive lines of an engine show: TensorRT-LLM logs the device time
// of a pass (last) in the next line, and whether SGLang logged one decode (next) for several follows
// from the one before.
func completePass(last, next *passRecord) {
	if next.BeforeUs.OK && next.Index == last.Index+1 {
		last.ElapsedUs = next.BeforeUs.V
	}
	if next.Form == trace.IterationSGLang {
		followSGLang(last, next)
	}
}
