package enginelog

import (
	"bytes"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// This file has the forms of TensorRT-LLM's log lines.

// tensorrtLine is its line of a pass (print_iter_log, a Python dictionary behind named figures), and
// tensorrtStatistics its iteration statistics, JSON of get_stats or /metrics (of its
// InflightBatchingStats, since PR 13199).
//
// Source: NVIDIA/TensorRT-LLM py_executor.py.
var (
	tensorrtLine = lineForm{
		form:   trace.IterationTensorRT,
		mark:   []byte("host_step_time = "),
		stamp:  tensorrtStamp,
		engine: tensorrtRank,
		fields: []lineField{
			{label: "iter = ", isNeeded: true, value: count, set: setIndex},
			{label: "host_step_time = ", unit: "ms", isNeeded: true, value: milliseconds, set: setElapsedMs},
			{label: "prev_device_step_time = ", unit: "ms", value: milliseconds, set: func(r *passRecord, v float64) {
				r.BeforeUs = trace.Some(1000 * v)
			}},
			{label: "num_scheduled_requests = ", otherLabel: "num_scheduled_requests: ", value: count,
				set: func(r *passRecord, v float64) {
					r.GenerationReqs += int64(v) // context requests too, which the next figure takes away
				}},
			{label: "kv_cache_util = ", value: fraction, set: setKVUsage},
			{label: "'num_ctx_requests': ", isNeeded: true, value: count, set: func(r *passRecord, v float64) {
				r.ContextReqs = int64(v)
				r.GenerationReqs -= int64(v)
			}},
			{label: "'num_ctx_tokens': ", isNeeded: true, value: count, set: setContextTokens},
			{label: "'num_generation_tokens': ", isNeeded: true, value: count, set: setGenerationTokens},
			{label: "'cached_kv_tokens': ", value: count, set: setContextKVTokens},
		},
	}
	tensorrtStatistics = lineForm{
		form:   trace.IterationTensorRT,
		mark:   []byte(`"iterLatencyMS"`),
		isJSON: true,
		engine: tensorrtRank, // the statistics are stamped when a pass begins: no stamp
		fields: []lineField{
			{label: `"iter":`, isNeeded: true, value: count, set: setIndex},
			{label: `"iterLatencyMS":`, isNeeded: true, value: milliseconds, set: setElapsedMs},
			{label: `"numContextRequests":`, isNeeded: true, value: count, set: setContextReqs},
			{label: `"numCtxTokens":`, isNeeded: true, value: count, set: setContextTokens},
			{label: `"numCtxKvTokens":`, value: count, set: setContextKVTokens},
			{label: `"numGenRequests":`, isNeeded: true, value: count, set: setDecodes},
			{label: `"numGenKvTokens":`, value: count, set: setDecodeKVTokens},
			{label: `"numQueuedRequests":`, value: count, set: setQueuedReqs},
			{label: `"numDraftTokens":`, value: count, set: func(r *passRecord, v float64) {
				r.GenerationTokens += int64(v)
			}},
		},
	}
)

// tensorrtRank returns the rank in data-parallel attention as engine. The lines of all
// tensor-parallel ranks except the first are copies.
func tensorrtRank(_, text []byte) (engine, process []byte) {
	if v, ok := behindLabel(text, `"attentionDpRank":`); ok {
		v = bytes.TrimLeft(v, " ")
		if n := digits(v); n > 0 {
			return withoutZeros(v[:n]), nil
		}
	}
	if v, ok := behindLabel(text, "rank = "); ok && digits(v) > 0 && !bytes.HasPrefix(v, []byte("0,")) {
		return nil, nil
	}
	return []byte("0"), nil
}

// tensorrtStamp returns the stamp `timestamp = YYYY-MM-DD HH:MM:SS`, or with MM-DD-YYYY.
func tensorrtStamp(_, text []byte) stamp {
	const layout = "2006-01-02 15:04:05"
	text, _ = behindLabel(text, "timestamp = ")
	text = text[:min(len(text), len(layout))]
	if len(text) > 10 && text[2] == '-' {
		text = slices.Concat(text[6:10], []byte("-"), text[:5], text[10:])
	}
	return parseStamp(text)
}
