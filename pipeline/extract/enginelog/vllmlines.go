package enginelog

// This file has the forms of vLLM's log lines: a pass, and the statistics of every ten seconds.

import (
	"bytes"
	"math"
	"time"

	"github.com/blis-train/blis-train/trace"
)

// vllmIteration is vLLM's line of a pass, with --enable-logging-iteration-details. Up to 0.25 the
// engine core writes it, from 0.26 on the front end, with the engine before it.
//
// Source: vLLM 0.14 to 0.33, vllm/v1/engine/core.py and vllm/v1/metrics/loggers.py.
var vllmIteration = lineForm{
	form:        trace.IterationLog,
	mark:        []byte("Iteration("),
	isMarkFirst: true,
	stamp:       vllmStamp,
	engine:      vllmEngine,
	fields: []lineField{
		{label: "Iteration(", unit: "): ", isNeeded: true, value: passIndex, set: setIndex},
		{label: "): ", unit: " context requests, ", isNeeded: true, value: count, set: setContextReqs},
		{label: " context requests, ", unit: " context tokens, ", isNeeded: true, value: count, set: setContextTokens},
		{label: " context tokens, ", unit: " generation requests, ", isNeeded: true, value: count,
			set: setGenerationReqs},
		{label: " generation requests, ", unit: " generation tokens, ", isNeeded: true, value: count,
			set: setGenerationTokens},
		{label: "iteration elapsed time: ", unit: " ms", isNeeded: true, value: valueKind{max: math.MaxFloat64},
			set: setElapsedMs},
		{label: " KV cache usage: ", unit: "%", value: valueKind{max: 1e9}, set: func(r *passRecord, v float64) {
			r.KVUsage = trace.Some(v / 100)
		}},
		{label: "encoder inputs: ", value: count, set: func(r *passRecord, v float64) {
			r.EncoderInputs = trace.Some(int64(v))
		}},
		{label: "encoder output embeddings: ", value: count, set: func(r *passRecord, v float64) {
			r.EncoderOutputs = trace.Some(int64(v))
		}},
	},
}

// vllmStatistics is the line that vLLM logs every ten seconds: tokens a second since the line before, where newer releases
// leave cached tokens out of prompts, and the hit rate of the prefix cache over the last 1000 requests.
var vllmStatistics = lineForm{
	mark:        []byte("Avg prompt throughput: "),
	isMarkFirst: true,
	stamp:       vllmStamp,
	engine:      vllmEngine,
	fields: []lineField{
		{label: "Avg prompt throughput: ", unit: " tokens/s", value: rate, set: func(r *passRecord, v float64) { r.PromptRate = v }},
		{label: "Avg generation throughput: ", unit: " tokens/s", value: rate, set: func(r *passRecord, v float64) { r.OutputRate = v }},
		{label: "Waiting: ", unit: " reqs", value: count, set: setQueuedReqs},
		{label: " KV cache usage: ", unit: "%", value: percent, set: func(r *passRecord, v float64) { r.KVUsage = trace.Some(v / 100) }},
		{label: "Prefix cache hit rate: ", unit: "%", value: percent, set: func(r *passRecord, v float64) {
			r.HitRate = trace.Some(v / 100)
		}},
	},
}

// vllmDrafts is the line that vLLM logs every ten seconds of what its drafter proposed and the model
// accepted since the line before.
//
// Source: vLLM 0.14 to 0.33, vllm/v1/spec_decode/metrics.py: SpecDecodingLogging.log().
var vllmDrafts = lineForm{
	mark:        []byte("SpecDecoding metrics: "),
	isMarkFirst: true,
	stamp:       vllmStamp,
	engine:      vllmEngine,
	fields: []lineField{
		{label: "Accepted: ", unit: " tokens", isNeeded: true, value: count, set: func(r *passRecord, v float64) {
			r.Drafts.Accepted = int64(v)
		}},
		{label: "Drafted: ", unit: " tokens", isNeeded: true, value: count, set: func(r *passRecord, v float64) {
			r.Drafts.Drafted = int64(v)
		}},
	},
}

// Texts of vLLM's lines.
var (
	elapsedMark = []byte("iteration elapsed time:")
	engineMark  = []byte("Engine ")
	coreMark    = []byte("(EngineCore")
	frontMarks  = [][]byte{[]byte("(APIServer"), []byte("(ApiServer_")} // of one front end, of several
)

// vllmEngine reads the engine core that is named last before an iteration: `Engine NNN: ` by the
// front end, else `(EngineCore_DPk pid=N)`. It returns the number alone, so that both forms
// agree. The process is empty where the line does not name it.
func vllmEngine(before, _ []byte) (engine, process []byte) {
	if at := bytes.LastIndex(before, engineMark); at >= 0 {
		rest := before[at+len(engineMark):]
		n := digits(rest)
		if n > 0 && bytes.Equal(bytes.TrimRight(rest[n:], " "), []byte(":")) {
			front := max(bytes.LastIndex(before, frontMarks[0]), bytes.LastIndex(before, frontMarks[1]))
			return withoutZeros(rest[:n]), parenthesised(before, front)
		}
	}
	process = parenthesised(before, bytes.LastIndex(before, coreMark))
	rank, isRank := bytes.CutPrefix(process, []byte("EngineCore_DP"))
	if isRank && digits(rank) > 0 {
		return withoutZeros(rank[:digits(rank)]), process
	}
	return []byte("0"), process
}

// parenthesised returns the text in the parentheses that open at a place; nothing where at is below 0.
func parenthesised(text []byte, at int) []byte {
	if at < 0 {
		return nil
	}
	inside, _, _ := bytes.Cut(text[at+1:], []byte(")"))
	return inside
}

// vllmStamp returns the last stamp in vLLM's own prefix, `MM-DD HH:MM:SS [`: local time in whole
// seconds. It counts from 1 January of a year that is not written.
func vllmStamp(before, _ []byte) stamp {
	const layout = "MM-DD HH:MM:SS"
	const leapYear = "2000-" // so that 29 February exists
	bracket := []byte(" [")
	for at := bytes.LastIndex(before, bracket); at >= len(layout); at = bytes.LastIndex(before[:at], bracket) {
		t, err := time.Parse(time.DateTime, leapYear+string(before[at-len(layout):at]))
		if err == nil {
			return stamp{ns: sinceNewYear(t), stepNs: int64(time.Second)}
		}
	}
	return stamp{}
}
