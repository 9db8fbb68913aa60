package enginelog

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads forward-pass metrics, one pass a line (spec#wire-fpm): Dynamo's trace and our
// recorder's, which put an envelope around each pass, and passes alone. A pass is an object or,
// as msgspec writes these structs when asked for lists, a list in the order of the struct:
//
//   - of Dynamo and SGLang today: the fifth element is a number, the time;
//   - of vLLM itself: the fifth is a text, what the time covers;
//   - of older SGLang, without version and counter: the first is a text.
//
// Sums over requests mean different things: sum_prefill_tokens are the tokens of this pass,
// var_prefill_length is the variance of whole prompts, and the *_kv_tokens were in the KV cache
// before the pass (read in Dynamo's instrumented scheduler).

// FPMSchema names Dynamo's trace. An envelope of another schema is a fault of its line.
const FPMSchema = "dynamo.fpm.trace.v1"

// sniffFPM reports whether a file has forward-pass metrics: its first line is a list that can be read as
// a pass, or its beginning has the schema or two keys that only passes have.
func sniffFPM(head []byte) bool {
	switch {
	case bytes.HasPrefix(head, []byte("[")):
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return newFPMDecoder().Line(line, &passLines{}) == nil
	case bytes.Contains(head, []byte(`"`+FPMSchema+`"`)):
		return true
	}
	return bytes.Contains(head, []byte(`"sum_prefill_kv_tokens"`)) && bytes.Contains(head, []byte(`"wall_time"`))
}

// fpmDecoder decodes lines of forward-pass metrics (JSON) to passes of the engine.
type fpmDecoder struct{ passDecoder }

// newFPMDecoder returns a decoder of the lines of forward-pass metrics.
func newFPMDecoder() source.Decoder[*passLines] { return &fpmDecoder{newPassDecoder()} }

// Line reads one pass into out. It returns a fault if the line is no pass.
func (d *fpmDecoder) Line(line []byte, out *passLines) *source.Error {
	r := fpmReader{Cursor: source.Cursor{B: line}, sequence: unnumbered}
	if r.Peek() == '[' {
		r.readPass()
	} else {
		r.readObject(fpmLine)
	}
	r.Space()
	if r.Err == nil && r.I < len(r.B) {
		r.Unexpected("the end of the line")
	}
	if r.Err == nil {
		r.checkRecord()
	}
	if r.Err != nil {
		return r.Err
	}
	r.it.Form = trace.IterationFPM
	if !r.hasCounter { // the number of the message is the best that there is; without it, Lives counts
		r.it.Index = r.sequence
	}
	out.Rows = append(out.Rows, passRecord{Iteration: r.it, Engine: d.names.Get([]byte(r.engine()))})
	return nil
}

// fpmReader reads one line.
type fpmReader struct {
	source.Cursor
	it       trace.Iteration
	schema   string           // of the envelope; FPMSchema for a pass alone
	producer string           // producer_id of the envelope
	worker   string           // worker_id of the pass
	version  trace.Opt[int64] // of the pass
	rank     int64            // dp_rank
	sequence int64            // of the message; unnumbered without one

	// What was in the line; checkRecord refuses a line that lacks one of the first three.
	isPass       bool
	hasScheduled bool
	hasTime      bool
	hasCounter   bool // counter_id, which is the index of the pass
}

// fpmFields are the members of an object that are read; others are skipped.
type fpmFields map[string]func(r *fpmReader)

// Orders of the structs' fields.
var (
	fpmPassStart    = []string{"version", "worker_id", "dp_rank", "counter_id"}
	fpmOldPassStart = []string{"worker_id", "dp_rank"} // SGLang before it had the others
	fpmPassRest     = []string{"wall_time", "scheduled_requests", "queued_requests"}
	fpmBatchOrder   = []string{"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length",
		"sum_prefill_kv_tokens",
		"num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens"}
	fpmQueueOrder = []string{"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "num_decode_requests",
		"sum_decode_kv_tokens", "var_decode_kv_tokens"}
)

// readPass reads a pass that is an object, or a list in the order of its struct. Which of the three
// orders it is shows in the first and the fifth element (see the top of this file), so the names of the
// fields are chosen while the list is read.
func (r *fpmReader) readPass() {
	r.isPass = true
	if r.Peek() != '[' {
		r.readObject(fpmPass)
		return
	}
	first := r.Take('[')
	var names []string
	for k := 0; r.More(']', &first); k++ {
		isText := r.Peek() == '"'
		switch {
		case k == 0 && isText: // the worker's id: SGLang before it had a version
			names = slices.Concat(fpmOldPassStart, fpmPassRest)
		case k == 0: // the version
			names = slices.Concat(fpmPassStart, fpmPassRest)
		case k == len(fpmPassStart) && isText && names[0] == fpmPassStart[0]: // vLLM's, in place of the time
			names = slices.Concat(fpmPassStart, []string{"timing_scope"}, fpmPassRest)
		}
		if k >= len(names) {
			r.Fail("got more than %d fields of a pass", len(names))
			return
		}
		fpmPass[names[k]](r)
	}
}

// readBatch reads the requests of a pass or of the queue: an object, or a list whose elements have the
// names in order.
func (r *fpmReader) readBatch(order []string, fields fpmFields) {
	if r.Peek() != '[' {
		r.readObject(fields)
		return
	}
	first := r.Take('[')
	k := 0 // elements read
	for r.More(']', &first) && k < len(order) {
		if read := fields[order[k]]; read != nil {
			read(r)
		} else {
			r.Skip(0)
		}
		k++
	}
	isClosed := first || r.B[r.I-1] == ']' // More has read the bracket, and not a further element
	if r.Err == nil && (k < len(order) || !isClosed) {
		r.Fail("got fewer or more than %d counts of a batch", len(order))
	}
}

// readObject reads the fields of an object.
func (r *fpmReader) readObject(fields fpmFields) {
	for key := range r.MembersOrNull {
		if read := fields[string(key)]; read != nil {
			read(r)
		} else {
			r.Skip(0)
		}
	}
}

// fpmEnvelope is the event that Dynamo's trace puts around a pass.
var fpmEnvelope = fpmFields{
	"schema": func(r *fpmReader) { r.schema = r.readWord() },
	"source": func(r *fpmReader) {
		r.readObject(fpmFields{"producer_id": func(r *fpmReader) { r.producer = r.readWord() }})
	},
	"capture_mode":        func(r *fpmReader) { r.it.Sampled = r.readWord() != "full" },
	"observed_at_unix_ms": (*fpmReader).readUnixMs,
	"sequence":            func(r *fpmReader) { r.sequence, _ = r.Int64() },
	"fpm":                 (*fpmReader).readPass,
}

// fpmPass is a pass.
var fpmPass = fpmFields{
	"version":    func(r *fpmReader) { r.version = trace.Some(r.readCount()) },
	"worker_id":  func(r *fpmReader) { r.worker = r.readWord() },
	"dp_rank":    func(r *fpmReader) { r.rank, _ = r.Int64() },
	"counter_id": func(r *fpmReader) { r.it.Index, r.hasCounter = r.Int64() },
	"timing_scope": func(r *fpmReader) {
		if r.Peek() != '"' {
			r.Unexpected("what the time covers")
		}
		r.Skip(0)
	},
	"wall_time": (*fpmReader).readWallTime,
	"scheduled_requests": func(r *fpmReader) {
		r.hasScheduled = true
		r.readBatch(fpmBatchOrder, fpmScheduled)
	},
	"queued_requests": func(r *fpmReader) { r.readBatch(fpmQueueOrder, fpmQueued) },
}

// fpmScheduled are the requests of the pass. A decode gets one token.
var fpmScheduled = fpmFields{
	"num_prefill_requests":  func(r *fpmReader) { r.it.ContextReqs = r.readCount() },
	"sum_prefill_tokens":    func(r *fpmReader) { r.it.ContextTokens = r.readCount() },
	"var_prefill_length":    func(r *fpmReader) { r.it.PromptVariance = r.readVariance() },
	"sum_prefill_kv_tokens": func(r *fpmReader) { r.it.ContextKVTokens = trace.Some(r.readCount()) },
	"num_decode_requests": func(r *fpmReader) {
		r.it.GenerationReqs = r.readCount()
		r.it.GenerationTokens = r.it.GenerationReqs
	},
	"sum_decode_kv_tokens": func(r *fpmReader) { r.it.DecodeKVTokens = trace.Some(r.readCount()) },
	"var_decode_kv_tokens": func(r *fpmReader) { r.it.DecodeKVVariance = r.readVariance() },
}

// fpmQueued are the requests that wait.
var fpmQueued = fpmFields{
	"num_prefill_requests": func(r *fpmReader) { r.it.QueuedContext = trace.Some(r.readCount()) },
	"sum_prefill_tokens":   func(r *fpmReader) { r.it.QueuedTokens = trace.Some(r.readCount()) },
	"num_decode_requests":  func(r *fpmReader) { r.it.QueuedDecode = trace.Some(r.readCount()) },
}

// fpmLine is a line: an envelope ("event"), or a pass alone, recognised by its wall_time. Both can be read
// with one table because their keys differ.
var fpmLine = func() fpmFields {
	both := maps.Clone(fpmPass)
	both["event"] = func(r *fpmReader) { r.readObject(fpmEnvelope) }
	both["wall_time"] = func(r *fpmReader) {
		r.isPass = true
		r.schema = FPMSchema // it names none
		r.readWallTime()
	}
	return both
}()

// readWallTime sets the elapsed time of the pass from seconds.
func (r *fpmReader) readWallTime() {
	var seconds float64
	seconds, r.hasTime = r.Float()
	r.it.ElapsedUs = seconds * 1e6
}

// readUnixMs reads the stamp of an envelope.
func (r *fpmReader) readUnixMs() {
	const nsPerMs = 1_000_000
	ms, ok := r.Int64()
	switch {
	case ok && (ms < 0 || ms >= math.MaxInt64/nsPerMs):
		r.Fail("observed_at_unix_ms: got %d, want ms since 1970", ms)
	case ok && ms > 0:
		stamp{ns: ms * nsPerMs, stepNs: nsPerMs, isWall: true}.set(&r.it)
	}
}

// readWord returns a string, or a number as text; "" for null.
func (r *fpmReader) readWord() string {
	if r.Null() {
		return ""
	}
	v, _ := r.Scalar("a string")
	return string(v)
}

// readCount returns a number of requests or tokens.
func (r *fpmReader) readCount() int64 {
	v, ok := r.Int64()
	if ok && v < 0 {
		r.Fail("got %d, want a count", v)
	}
	return v
}

// readVariance returns a variance; unknown if it is not a number. A negative one is a fault.
func (r *fpmReader) readVariance() trace.Opt[float64] {
	v, ok := r.Float()
	if ok && (v < 0 || math.IsNaN(v) || math.IsInf(v, 0)) {
		r.Fail("got %v, want a variance", v)
	}
	return trace.Some(v)
}

// checkRecord records a fault for a line that is no pass of this schema, or whose time no pass takes.
func (r *fpmReader) checkRecord() {
	const mostUs = 1e12 // eleven days: it is in another unit
	us := r.it.ElapsedUs
	switch {
	case r.schema != FPMSchema && r.B[0] != '[':
		r.Fail("schema: got %.40q, want %q", r.schema, FPMSchema)
	case !r.isPass || !r.hasScheduled || !r.hasTime:
		r.Fail("got no fpm with wall_time and scheduled_requests")
	case r.version.OK && r.version.V != 1:
		r.Fail("fpm version: got %d, want 1", r.version.V)
	case math.IsNaN(us) || us < 0 || us > mostUs:
		r.Fail("wall_time: got %v s, want seconds of one pass", us/1e6)
	}
}

// engine returns the name of the worker, or else of the producer, with its data-parallel rank unless that
// is 0, as in worker.dp1.
func (r *fpmReader) engine() string {
	name := r.worker
	if name == "" {
		name = r.producer
	}
	if r.rank != 0 {
		name += ".dp" + strconv.FormatInt(r.rank, 10)
	}
	return name
}
