package forms

import (
	"bytes"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// lineForm is how an engine writes one kind of pass into its log: a text that every such
// line holds, and its figures behind the texts that name them.
type lineForm struct {
	form   string
	mark   []byte
	stamp  func(text []byte, mark int) stamp // nil: JSON objects, or arrays of them, stamped when a pass begins
	fields []lineField
}

// lineField is a figure of a line.
type lineField struct {
	label  string
	needed bool
	most   float64
	to     func(r *row, v float64)
}

const (
	mostFigure = 1 << 40
	mostMs     = 1e9
)

// lineForms are SGLang's batches (sgl-project/sglang metrics_reporter.py and
// scheduler_metrics_mixin.py; fields are found by name, since their order and company vary by
// version), TensorRT-LLM's print_iter_log (NVIDIA/TensorRT-LLM py_executor.py) and its iteration
// statistics, of get_stats or /metrics (its InflightBatchingStats since PR 13199). vLLM's
// iterations, which every line of a long log is searched for, have a reader of their own.
var lineForms = []lineForm{
	{trace.IterationSGLang, []byte("Prefill batch"), bracketStamp, []lineField{
		{"#new-seq: ", true, mostFigure, func(r *row, v float64) { r.ContextReqs, r.DecodeKVTokens = int64(v), trace.Some(int64(0)) }},
		{"#new-token: ", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{"#cached-token: ", true, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
		{"token usage: ", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"#queue-req: ", false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{"#pending-token: ", false, mostFigure, func(r *row, v float64) { r.QueuedTokens = trace.Some(int64(v)) }},
	}},
	{trace.IterationSGLang, []byte("Decode batch"), bracketStamp, []lineField{
		{"#running-req: ", true, mostFigure, func(r *row, v float64) { r.GenerationReqs, r.GenerationTokens = int64(v), int64(v) }},
		{"#token: ", true, mostFigure, func(r *row, v float64) { r.DecodeKVTokens = trace.Some(int64(v)) }},
		{"token usage: ", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"#queue-req: ", false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{"accept len: ", false, 1000, func(r *row, v float64) { r.Accepted = v }},
	}},
	{trace.IterationTensorRT, []byte("host_step_time = "), namedStamp, []lineField{
		{"iter = ", true, mostFigure, func(r *row, v float64) { r.Index = int64(v) }},
		{"host_step_time = ", true, mostMs, func(r *row, v float64) { r.ElapsedUs = 1000 * v }},
		{"prev_device_step_time = ", false, mostMs, func(r *row, v float64) { r.BeforeUs = trace.Some(1000 * v) }},
		{"num_scheduled_requests = ", false, mostFigure, func(r *row, v float64) { r.GenerationReqs += int64(v) }},
		{"num_scheduled_requests: ", false, mostFigure, func(r *row, v float64) { r.GenerationReqs += int64(v) }},
		{"kv_cache_util = ", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"'num_ctx_requests': ", true, mostFigure, func(r *row, v float64) {
			r.ContextReqs = int64(v)
			r.GenerationReqs -= int64(v) // the line counts both together
		}},
		{"'num_ctx_tokens': ", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{"'num_generation_tokens': ", true, mostFigure, func(r *row, v float64) { r.GenerationTokens = int64(v) }},
		{"'cached_kv_tokens': ", false, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
	}},
	{trace.IterationTensorRT, []byte(`"iterLatencyMS"`), nil, []lineField{
		{`"iter":`, true, mostFigure, func(r *row, v float64) { r.Index = int64(v) }},
		{`"iterLatencyMS":`, true, mostMs, func(r *row, v float64) { r.ElapsedUs = 1000 * v }},
		{`"numContextRequests":`, true, mostFigure, func(r *row, v float64) { r.ContextReqs = int64(v) }},
		{`"numCtxTokens":`, true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{`"numCtxKvTokens":`, false, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
		{`"numGenRequests":`, true, mostFigure, func(r *row, v float64) { r.GenerationReqs, r.GenerationTokens = int64(v), int64(v) }},
		{`"numGenKvTokens":`, false, mostFigure, func(r *row, v float64) { r.DecodeKVTokens = trace.Some(int64(v)) }},
		{`"numQueuedRequests":`, false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{`"numDraftTokens":`, false, mostFigure, func(r *row, v float64) { r.GenerationTokens += int64(v) }},
	}},
}

// formOf is the form of a pass that a line holds, and where.
func formOf(text []byte) (*lineForm, int) {
	for i := range lineForms {
		if at := bytes.Index(text, lineForms[i].mark); at >= 0 {
			return &lineForms[i], at
		}
	}
	return nil, -1
}

// read reads the figures of a line; what says which is wrong, "" for none. ok is false for a
// line that merely holds the mark.
func (f *lineForm) read(text []byte, at int, r *row) (what string, ok bool) {
	r.Form, r.Index = f.form, unnumbered
	if f.form == trace.IterationSGLang {
		text = text[at:]
		if rest := text[len(f.mark):]; bytes.HasPrefix(rest, []byte(" [")) {
			if n := digits(rest[2:]); n > 0 && n < 19 {
				r.Index, _ = strconv.ParseInt(source.Text(rest[2:2+n]), 10, 64)
			}
		}
	}
	found := 0
	for _, l := range f.fields {
		figure, known := behind(text, l.label)
		if !known {
			if l.needed && what == "" {
				what = "no " + l.label
			}
			continue
		}
		found, figure = found+1, bytes.TrimLeft(figure, " ")
		if (bytes.HasPrefix(figure, []byte("N/A")) || bytes.HasPrefix(figure, []byte("null"))) && !l.needed {
			continue
		}
		n := 0
		for n < len(figure) && (digits(figure[n:n+1]) == 1 || bytes.IndexByte([]byte(".-+eE"), figure[n]) >= 0) {
			n++
		}
		v, err := strconv.ParseFloat(string(figure[:n]), 64)
		if err != nil || v < 0 || v > l.most || math.IsNaN(v) {
			return l.label + strconv.Quote(string(figure[:min(len(figure), 12)])), true
		}
		l.to(r, v)
	}
	if what == "" && (r.GenerationReqs < 0 || r.ContextReqs > r.ContextTokens) {
		what = "counts that contradict each other"
	}
	return what, found > 0
}

// behind is the text behind a label that stands by itself.
func behind(text []byte, label string) ([]byte, bool) {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(label))
		if i < 0 {
			return nil, false
		}
		at := from + i
		if before := bytes.TrimRight(text[:at], " "); len(before) == 0 || bytes.IndexByte([]byte(",.{[]"), before[len(before)-1]) >= 0 {
			return text[at+len(label):], true
		}
		from = at + len(label)
	}
}

const secondsForm = "2006-01-02 15:04:05"

// bracketStamp is SGLang's `[YYYY-MM-DD HH:MM:SS DPk TPk]` before a mark.
func bracketStamp(text []byte, mark int) stamp {
	if at := bytes.LastIndexByte(text[:mark], '['); at >= 0 && at+1+len(secondsForm) <= mark {
		return parseStamp(text[at+1 : at+1+len(secondsForm)])
	}
	return stamp{}
}

// namedStamp is TensorRT-LLM's `timestamp = YYYY-MM-DD HH:MM:SS`.
func namedStamp(text []byte, _ int) stamp {
	if rest, ok := behind(text, "timestamp = "); ok && len(rest) >= len(secondsForm) {
		return parseStamp(rest[:len(secondsForm)])
	}
	return stamp{}
}

// objects are the JSON objects of a line; one that is cut is the last.
func objects(text []byte) (out [][]byte) {
	depth, from := 0, 0
	for i, b := range text {
		switch {
		case b == '{':
			if depth++; depth == 1 {
				from = i
			}
		case b == '}' && depth > 0:
			if depth--; depth == 0 {
				out = append(out, text[from:i+1])
			}
		}
	}
	if depth > 0 {
		out = append(out, text[from:])
	}
	return out
}

// rankOf is the number behind a word such as DP in the last bracket, "0" without.
func rankOf(text []byte, word string) string {
	if at := bytes.LastIndexByte(text, '['); at >= 0 {
		for _, part := range bytes.Fields(bytes.TrimRight(text[at:], "] ")) {
			if rest, ok := bytes.CutPrefix(part, []byte(word)); ok && len(rest) > 0 && digits(rest) == len(rest) {
				return string(logNumber(rest))
			}
		}
	}
	return "0"
}

// other reads a pass of another engine than vLLM.
func (d *logDecoder) other(text []byte, outer stamp, out *Iterations) {
	f, _ := formOf(text)
	if f == nil {
		return
	}
	parts := [][]byte{text}
	if f.stamp == nil {
		parts = objects(text)
	}
	for _, part := range parts {
		d.pass(f, part, max(0, bytes.Index(part, f.mark)), outer, out)
	}
}

// pass reads one pass, whose mark stands at a place of the text.
func (d *logDecoder) pass(f *lineForm, text []byte, at int, outer stamp, out *Iterations) {
	var r row
	what, ok := f.read(text, at, &r)
	rank, isFirst := "0", true
	if f.form == trace.IterationSGLang {
		rank, isFirst = rankOf(text[:at], "DP"), rankOf(text[:at], "TP") == "0"
	} else if v, known := behind(text, `"attentionDpRank":`); known && digits(bytes.TrimLeft(v, " ")) > 0 {
		v = bytes.TrimLeft(v, " ")
		rank = string(logNumber(v[:digits(v)]))
	} else if v, known := behind(text, "rank = "); known {
		isFirst = bytes.HasPrefix(v, []byte("0,"))
	}
	switch {
	case !ok || !isFirst: // other words, or a copy of another tensor-parallel rank
	case what != "":
		out.Bad = append(out.Bad, source.BadLine{What: what})
	default:
		if f.stamp != nil {
			outer.better(f.stamp(text, at)).set(&r.Iteration)
		}
		r.Engine = d.text.Get([]byte(f.form + " " + rank))
		out.Rows = append(out.Rows, r)
	}
}

// unnumbered is the index of a pass whose engine numbers none unless asked to.
const unnumbered = math.MinInt64

// follow completes a pass by the one that comes behind it: TensorRT-LLM tells a pass's device
// time in the next line; SGLang logs one decode in --decode-log-interval, which the KV tokens
// between two decodes show, less those of the prompts between, where no request ended.
func follow(last, next *row) {
	if next.BeforeUs.OK && next.Index == last.Index+1 {
		last.ElapsedUs = next.BeforeUs.V
	}
	if next.Form != trace.IterationSGLang {
		return
	}
	if next.GenerationReqs == 0 {
		next.Running, next.Held = last.Running+next.ContextReqs, last.Held+next.ContextTokens+next.ContextKVTokens.V
		return
	}
	if last.Running == next.GenerationReqs {
		each := float64(next.DecodeKVTokens.V-last.Held) / float64(next.GenerationReqs)
		next.Sampled = each >= 2*max(1, next.Accepted) || last.ContextReqs == 0 && next.Index > last.Index+1
	}
	next.Running, next.Held = next.GenerationReqs, next.DecodeKVTokens.V
}
