package enginelog

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// lineForm is how an engine writes one kind of line into its log: a text that every such line
// holds, and its figures behind the texts that name them. A record ends where the next begins,
// at its mark or, where figures stand before the mark, with the line or its JSON object.
type lineForm struct {
	form    string
	mark    []byte
	isFirst bool // the mark stands before all figures
	isJSON  bool // objects, or arrays of them, stamped when a pass begins
	stamp   func(before, text []byte) stamp
	engine  func(before, text []byte) (engine, process []byte) // no engine: a copy of another rank's
	fields  []lineField
}

// lineField is a figure of a line: the text before it (with its space, where neither comma, point nor
// bracket stands there), or, behind a bar, another one; its unit behind it.
type lineField struct {
	label, unit string
	needed      bool
	most        float64
	to          func(r *row, v float64)
}

const (
	mostFigure = 1 << 40
	mostMs     = 1e9
)

// lineForms are vLLM's iterations and the line of statistics that it logs every ten seconds (hits
// of the last 1000 requests; 0.14 to 0.33, v1/engine/core.py, v1/metrics/loggers.py), SGLang's
// batches (sgl-project/sglang metrics_reporter.py and scheduler_metrics_mixin.py; fields are found
// by name, since their order and company vary by version), TensorRT-LLM's print_iter_log
// (NVIDIA/TensorRT-LLM py_executor.py) and its iteration statistics, of get_stats or /metrics (its
// InflightBatchingStats since PR 13199).
var lineForms = []lineForm{
	{trace.IterationLog, []byte("Iteration("), true, false, vllmStamp, engineOf, []lineField{
		{"Iteration(", "): ", true, 1 << 53, func(r *row, v float64) { r.Index = int64(v) }},
		{"): ", " context requests, ", true, mostFigure, func(r *row, v float64) { r.ContextReqs = int64(v) }},
		{" context requests, ", " context tokens, ", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{" context tokens, ", " generation requests, ", true, mostFigure, func(r *row, v float64) { r.GenerationReqs = int64(v) }},
		{" generation requests, ", " generation tokens, ", true, mostFigure, func(r *row, v float64) { r.GenerationTokens = int64(v) }},
		{"iteration elapsed time: ", " ms", true, math.MaxFloat64, func(r *row, v float64) { r.ElapsedUs = 1000 * v }},
		{" KV cache usage: ", "%", false, mostMs, func(r *row, v float64) { r.KVUsage = trace.Some(v / 100) }},
		{"encoder inputs: ", "", false, mostFigure, func(r *row, v float64) { r.EncoderInputs = trace.Some(int64(v)) }},
		{"encoder output embeddings: ", "", false, mostFigure, func(r *row, v float64) { r.EncoderOutputs = trace.Some(int64(v)) }},
	}}, {"", []byte("Avg prompt throughput: "), true, false, vllmStamp, engineOf, []lineField{
		{"Prefix cache hit rate: ", "%", false, 100, func(r *row, v float64) { r.Rate = trace.Some(v / 100) }},
	}}, {trace.IterationSGLang, []byte("Prefill batch"), true, false, bracketStamp, sglangRank, []lineField{
		{"#new-seq: ", "", true, mostFigure, func(r *row, v float64) { r.ContextReqs, r.DecodeKVTokens = int64(v), trace.Some(int64(0)) }},
		{"#new-token: ", "", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{"#cached-token: ", "", true, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
		{"token usage: ", "", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"#queue-req: ", "", false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{"#pending-token: ", "", false, mostFigure, func(r *row, v float64) { r.QueuedTokens = trace.Some(int64(v)) }},
	}}, {trace.IterationSGLang, []byte("Decode batch"), true, false, bracketStamp, sglangRank, []lineField{
		{"#running-req: ", "", true, mostFigure, func(r *row, v float64) {
			r.GenerationReqs = int64(v)
			r.GenerationTokens = int64(v)
		}},
		{"#token: |#full token: ", "", true, mostFigure, func(r *row, v float64) { r.DecodeKVTokens = trace.Some(int64(v)) }},
		{"token usage: ", "", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"#queue-req: ", "", false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{"gen throughput (token/s): ", "", false, mostMs, func(r *row, v float64) { r.PerS = v }},
		{"accept len: ", "", false, 1000, func(r *row, v float64) { r.Accepted = v }},
	}}, {trace.IterationTensorRT, []byte("host_step_time = "), false, false, namedStamp, tensorrtRank, []lineField{
		{"iter = ", "", true, mostFigure, func(r *row, v float64) { r.Index = int64(v) }},
		{"host_step_time = ", "ms", true, mostMs, func(r *row, v float64) { r.ElapsedUs = 1000 * v }},
		{"prev_device_step_time = ", "ms", false, mostMs, func(r *row, v float64) { r.BeforeUs = trace.Some(1000 * v) }},
		{"num_scheduled_requests = |num_scheduled_requests: ", "", false, mostFigure, func(r *row, v float64) { r.GenerationReqs += int64(v) }},
		{"kv_cache_util = ", "", false, 1, func(r *row, v float64) { r.KVUsage = trace.Some(v) }},
		{"'num_ctx_requests': ", "", true, mostFigure, func(r *row, v float64) {
			r.ContextReqs = int64(v)
			r.GenerationReqs -= int64(v) // the line counts both together
		}},
		{"'num_ctx_tokens': ", "", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{"'num_generation_tokens': ", "", true, mostFigure, func(r *row, v float64) { r.GenerationTokens = int64(v) }},
		{"'cached_kv_tokens': ", "", false, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
	}}, {trace.IterationTensorRT, []byte(`"iterLatencyMS"`), false, true, nil, tensorrtRank, []lineField{
		{`"iter":`, "", true, mostFigure, func(r *row, v float64) { r.Index = int64(v) }},
		{`"iterLatencyMS":`, "", true, mostMs, func(r *row, v float64) { r.ElapsedUs = 1000 * v }},
		{`"numContextRequests":`, "", true, mostFigure, func(r *row, v float64) { r.ContextReqs = int64(v) }},
		{`"numCtxTokens":`, "", true, mostFigure, func(r *row, v float64) { r.ContextTokens = int64(v) }},
		{`"numCtxKvTokens":`, "", false, mostFigure, func(r *row, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }},
		{`"numGenRequests":`, "", true, mostFigure, func(r *row, v float64) {
			r.GenerationReqs = int64(v)
			r.GenerationTokens = int64(v)
		}},
		{`"numGenKvTokens":`, "", false, mostFigure, func(r *row, v float64) { r.DecodeKVTokens = trace.Some(int64(v)) }},
		{`"numQueuedRequests":`, "", false, mostFigure, func(r *row, v float64) { r.QueuedContext = trace.Some(int64(v)) }},
		{`"numDraftTokens":`, "", false, mostFigure, func(r *row, v float64) { r.GenerationTokens += int64(v) }},
	}},
}

// formOf is the form of a record that a line holds.
func formOf(text []byte) *lineForm {
	for i := range lineForms {
		if bytes.Contains(text, lineForms[i].mark) {
			return &lineForms[i]
		}
	}
	return nil
}

// passes reads the records of a line.
func (d *logDecoder) passes(f *lineForm, text []byte, outer stamp, out *Iterations) {
	if f.isJSON {
		for _, part := range objects(text) {
			d.pass(f, nil, part, outer, out)
		}
		return
	}
	for from := 0; from < len(text); {
		at := from + bytes.Index(text[from:], f.mark)
		to := len(text)
		if next := bytes.Index(text[at+len(f.mark):], f.mark); next >= 0 {
			to = at + len(f.mark) + next
		}
		if f.isFirst {
			d.pass(f, text[:at], text[at:to], outer, out)
		} else {
			d.pass(f, text[from:at], text[from:to], outer, out)
		}
		from = to
	}
}

// pass reads one record, whose figures stand in text.
func (d *logDecoder) pass(f *lineForm, before, text []byte, outer stamp, out *Iterations) {
	var r row
	engine, process := f.engine(before, text)
	what, ok := f.read(text, &r)
	switch {
	case !ok || engine == nil || f.form == "" && !r.Rate.OK: // other words, or a copy of another rank's
	case what != "":
		out.Bad = append(out.Bad, source.BadLine{What: what})
	default:
		if r.Form = f.form; f.stamp != nil {
			outer.better(f.stamp(before, text)).set(&r.Iteration)
		}
		if r.Engine = d.text.Get(engine); f.form != trace.IterationLog && f.form != "" {
			r.Engine = d.text.Get(append([]byte(f.form+" "), engine...))
		}
		r.Process = d.text.Get(process)
		out.Rows = append(out.Rows, r)
	}
}

// read reads the figures of a record; what says which is wrong, "" for none. ok is false for
// other words.
func (f *lineForm) read(text []byte, r *row) (what string, ok bool) {
	switch rest := text[min(len(text), len(f.mark)):]; {
	case f.form == trace.IterationLog:
		r.Dummy = bytes.Contains(text, []byte(" (dummy)"))
		if digits(rest) == 0 && !bytes.Contains(text, elapsedMark) {
			return "", false // another program's
		}
	case f.form == trace.IterationSGLang && bytes.HasPrefix(rest, []byte(" [")) && digits(rest[2:]) > 0 && digits(rest[2:]) < 19:
		r.Index, _ = strconv.ParseInt(source.Text(rest[2:2+digits(rest[2:])]), 10, 64)
	default:
		r.Index = unnumbered
	}
	found := 0
	for _, l := range f.fields {
		label, other, _ := strings.Cut(l.label, "|")
		figure, known := behind(text, label)
		if !known && other != "" {
			figure, known = behind(text, other)
		}
		if !known {
			if l.needed && what == "" {
				what = "no " + label
			}
			continue
		}
		found += 1
		figure = bytes.TrimLeft(figure, " ")
		if (bytes.HasPrefix(figure, []byte("N/A")) || bytes.HasPrefix(figure, []byte("null"))) && !l.needed {
			continue
		}
		n := 0
		for n < len(figure) && (digits(figure[n:n+1]) == 1 || bytes.IndexByte([]byte(".-+eE"), figure[n]) >= 0) {
			n++
		}
		v, err := strconv.ParseFloat(source.Text(figure[:n]), 64)
		isTorn := !bytes.HasPrefix(figure[n:], []byte(l.unit))
		if isTorn && !l.needed && n == len(figure) { // the line was cut there
			continue
		}
		if isPart := l.most >= mostFigure && l.most <= 1<<53 && v != math.Trunc(v); err != nil || isTorn || isPart || n > 0 && figure[0] == '+' ||
			!(v >= 0 && v <= l.most) {
			return label + strconv.Quote(string(figure[:min(len(figure), n+len(l.unit), mostShown)])), true
		}
		l.to(r, v)
	}
	if what == "" && (r.GenerationReqs < 0 || r.ContextReqs > r.ContextTokens && r.Form != trace.IterationLog) {
		what = "counts that contradict each other"
	}
	return what, found > 0
}

// behind is the text behind a label; one that is a word stands by itself.
func behind(text []byte, label string) ([]byte, bool) {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(label))
		if i < 0 {
			return nil, false
		}
		at := from + i
		if before := bytes.TrimRight(text[:at], " "); label[0] == ' ' || label[0] == ')' || len(before) == 0 ||
			bytes.IndexByte([]byte(",.{[]"), before[len(before)-1]) >= 0 {
			return text[at+len(label):], true
		}
		from = at + len(label)
	}
}

// bracketStamp is SGLang's `[YYYY-MM-DD HH:MM:SS DPk TPk]`, whose seconds have a fraction with SGLANG_LOG_MS.
func bracketStamp(before, _ []byte) stamp {
	if words := ranks(before); len(words) > 1 {
		return parseStamp(bytes.Join(words[:2], []byte(" ")))
	}
	return stamp{}
}

// ranks are the words in the last bracket: a stamp of two, and ranks such as DP0.
func ranks(before []byte) [][]byte {
	return bytes.Fields(bytes.TrimRight(before[bytes.LastIndexByte(before, '[')+1:], "] "))
}

// sglangRank is SGLang's data-parallel rank; of its stages the first one's lines count. Several of
// its tensor-parallel ranks may write them.
func sglangRank(before, _ []byte) (rank, process []byte) {
	rank, process = []byte("0"), []byte("0")
	for _, word := range ranks(before) {
		n := word[min(len(word), 2):]
		if len(n) == 0 || digits(n) < len(n) {
			continue
		}
		switch n = logNumber(n); string(word[:2]) {
		case "DP":
			rank = n
		case "TP":
			process = n
		case "PP":
			if n[0] != '0' {
				return nil, nil
			}
		}
	}
	return rank, process
}

// tensorrtRank is a rank of TensorRT-LLM's attention in data parallel; of tensor-parallel ranks the first one's lines count.
func tensorrtRank(_, text []byte) (rank, process []byte) {
	if v, known := behind(text, `"attentionDpRank":`); known && digits(bytes.TrimLeft(v, " ")) > 0 {
		v = bytes.TrimLeft(v, " ")
		return logNumber(v[:digits(v)]), nil
	}
	if v, known := behind(text, "rank = "); known && digits(v) > 0 && !bytes.HasPrefix(v, []byte("0,")) {
		return nil, nil
	}
	return []byte("0"), nil
}

// namedStamp is TensorRT-LLM's `timestamp = YYYY-MM-DD HH:MM:SS`, or MM-DD-YYYY.
func namedStamp(_, text []byte) stamp {
	const form = "2006-01-02 15:04:05"
	rest, _ := behind(text, "timestamp = ")
	if rest = rest[:min(len(rest), len(form))]; len(rest) > 10 && rest[2] == '-' {
		rest = slices.Concat(rest[6:10], []byte("-"), rest[:5], rest[10:])
	}
	return parseStamp(rest)
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

// leastDecodes are enough for their throughputs to tell.
const leastDecodes = 5

// unnumbered is the index of a pass whose engine numbers none unless asked to.
const unnumbered = math.MinInt64

// follow completes a pass by the one that comes behind it: TensorRT-LLM tells a pass's device
// time in the next line; SGLang logs one decode in --decode-log-interval, which the KV tokens
// between two decodes show, less those of the prompts between, where no request ended, and the
// tokens that most throughputs make of the time between precise stamps.
func follow(last, next *row) {
	if next.BeforeUs.OK && next.Index == last.Index+1 {
		last.ElapsedUs = next.BeforeUs.V
	}
	if next.Form != trace.IterationSGLang {
		return
	}
	if next.GenerationReqs == 0 {
		next.Running = last.Running + next.ContextReqs
		next.Held = last.Held + next.ContextTokens + next.ContextKVTokens.V
		next.Pace = last.Pace
		return
	}
	t := &next.Pace
	reqs := float64(next.GenerationReqs)
	one := max(1, next.Accepted)
	if *t = last.Pace; t.Ns > 0 && next.StampStepNs.V < 1e9 && next.PerS != t.PerS {
		if t.Decodes++; next.PerS*float64(next.StampNs.V-t.Ns)/1e9 > 1.5*one*reqs {
			t.Several++
		}
	}
	t.Ns, t.PerS = next.StampNs.V, next.PerS
	next.Sampled = t.Decodes >= leastDecodes && 2*t.Several > t.Decodes
	if last.Running == next.GenerationReqs {
		each := float64(next.DecodeKVTokens.V-last.Held) / reqs
		next.Sampled = next.Sampled || each >= 2*one || last.ContextReqs == 0 && next.Index > last.Index+1
	}
	next.Running = next.GenerationReqs
	next.Held = next.DecodeKVTokens.V
}

// logDecoder finds the passes in lines of a server's log. Nothing is expected at a line's
// start: two processes may write into one line, and collectors, colours and progress bars
// stand before the text.
type logDecoder struct {
	iterationLines
	plain []byte // the line without colours
}

// mostShown is how much of a torn line a message shows.
const mostShown = 120

// newLogDecoder reads the lines of a server's log.
func newLogDecoder() source.Decoder[*Iterations] {
	return &logDecoder{iterationLines: newIterationLines()}
}

// Texts of vLLM's lines: up to 0.25 the engine core writes them, from 0.26 on the front end does,
// with the engine before them.
var (
	elapsedMark = []byte("iteration elapsed time:")
	engineMark  = []byte("Engine ")
	coreMark    = []byte("(EngineCore")
	frontMarks  = [][]byte{[]byte("(APIServer"), []byte("(ApiServer_")} // one, several
	byteMark    = []byte(`"MESSAGE":[`)                                 // journald, when the text holds escape sequences
)

// HasPass reports whether a line holds a pass of an engine's log.
func HasPass(line []byte) bool {
	out := &Iterations{}
	newLogDecoder().Line(line, out)
	return slices.ContainsFunc(out.Rows, func(r row) bool { return !r.Rate.OK })
}

func (d *logDecoder) Line(line []byte, out *Iterations) *source.Error {
	rows, bad := len(out.Rows), len(out.Bad)
	if formOf(line) != nil || bytes.Contains(line, byteMark) {
		text, inner := unwrap(line)
		text = d.uncoloured(text)
		if f := formOf(text); f != nil {
			d.passes(f, text, leading(line).better(inner), out)
		}
	} else if bytes.Contains(line, elapsedMark) { // its beginning is lost
		out.Bad = append(out.Bad, source.BadLine{What: string(line[:min(len(line), mostShown)])})
	}
	if len(out.Rows) == rows && len(out.Bad) == bad {
		out.Other++
	}
	return nil
}

// uncoloured is text without ANSI sequences (ESC [ ... letter).
func (d *logDecoder) uncoloured(text []byte) []byte {
	if bytes.IndexByte(text, 0x1b) < 0 {
		return text
	}
	d.plain = d.plain[:0]
	for i := 0; i < len(text); i++ {
		if text[i] != 0x1b {
			d.plain = append(d.plain, text[i])
			continue
		}
		if i++; i < len(text) && text[i] == '[' {
			for i++; i < len(text) && (text[i] < 0x40 || text[i] > 0x7e); i++ {
			}
		}
	}
	return d.plain
}

// engineOf names the engine core that stands last before an iteration: `Engine
// NNN: ` of the front end, else `(EngineCore_DPk pid=N)`; the number alone, so
// that both forms agree. Process is who wrote the line, nothing where it does not say.
func engineOf(before, _ []byte) (engine, process []byte) {
	if at := bytes.LastIndex(before, engineMark); at >= 0 {
		rest := before[at+len(engineMark):]
		if n := digits(rest); n > 0 && bytes.Equal(bytes.TrimRight(rest[n:], " "), []byte(":")) {
			front := max(bytes.LastIndex(before, frontMarks[0]), bytes.LastIndex(before, frontMarks[1]))
			return logNumber(rest[:n]), bracketed(before, front)
		}
	}
	at := bytes.LastIndex(before, coreMark)
	process = bracketed(before, at)
	if rest, ok := bytes.CutPrefix(process, []byte("EngineCore_DP")); ok && digits(rest) > 0 {
		return logNumber(rest[:digits(rest)]), process
	}
	return []byte("0"), process
}

// bracketed is the text in the parentheses that open at a place of text; nothing below 0.
func bracketed(text []byte, at int) []byte {
	if at < 0 {
		return nil
	}
	name, _, _ := bytes.Cut(text[at+1:], []byte(")"))
	return name
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && b[n]-'0' <= 9 {
		n++
	}
	return n
}

// logNumber is a decimal without leading zeros.
func logNumber(b []byte) []byte {
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	return b
}
