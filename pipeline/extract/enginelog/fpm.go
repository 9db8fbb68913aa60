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

// FPMSchema names Dynamo's trace; an envelope of another schema is a fault of its line.
const FPMSchema = "dynamo.fpm.trace.v1"

// fpmDecoder reads lines of forward-pass metrics: Dynamo's trace, our recorder's (both envelopes
// around a pass), and passes alone. A pass is an object, as msgspec writes these structs unless
// asked for lists, or a list in the order of the struct: Dynamo's and SGLang's of today (a number
// is fifth), native vLLM's (a text is fifth, what its time covers) and SGLang's before version
// and counter (a text is first). Of a sum over requests the fields say which:
// sum_prefill_tokens are the tokens of this pass, var_prefill_length is the variance of whole
// prompts, the *_kv_tokens stood in KV before the pass (read in Dynamo's instrumented scheduler).
type fpmDecoder struct{ iterationLines }

// IsPassTrace says that a file holds forward-pass metrics, by its beginning.
func IsPassTrace(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if len(line) == 0 || line[0] != '[' {
		return bytes.Contains(head, []byte(`"`+FPMSchema+`"`)) ||
			bytes.Contains(head, []byte(`"sum_prefill_kv_tokens"`)) && bytes.Contains(head, []byte(`"wall_time"`))
	}
	return newFPMDecoder().Line(line, &Iterations{}) == nil
}

// newFPMDecoder reads the lines of forward-pass metrics.
func newFPMDecoder() source.Decoder[*Iterations] { return &fpmDecoder{newIterationLines()} }

func (d *fpmDecoder) Line(line []byte, out *Iterations) *source.Error {
	r := fpmReader{Cursor: source.Cursor{B: line}, sequence: unnumbered}
	if r.Peek() == '[' {
		r.pass()
	} else {
		r.object(fpmRecord)
	}
	if r.Space(); r.Err == nil && r.I < len(r.B) {
		r.Unexpected("the end of the line")
	}
	if r.Err == nil {
		r.check()
	}
	if r.Err != nil {
		return r.Err
	}
	r.it.Form = trace.IterationFPM
	if !r.hasCounter {
		r.it.Index = r.sequence
	}
	out.Rows = append(out.Rows, row{Iteration: r.it, Engine: d.text.Get([]byte(r.engine()))})
	return nil
}

// fpmReader reads one record.
type fpmReader struct {
	source.Cursor
	it                           trace.Iteration
	schema, producer, worker     string
	version                      trace.Opt[int64]
	rank, sequence               int64 // sequence: of the message, of one whose pass has no counter
	hasScheduled, hasTime, isFPM bool
	hasCounter                   bool
}

// fpmFields are the members of an object that are read; others are skipped.
type fpmFields map[string]func(r *fpmReader)

// Orders of the structs' fields.
var (
	fpmFirst = []string{"version", "worker_id", "dp_rank", "counter_id"}
	fpmOld   = []string{"worker_id", "dp_rank"} // SGLang before it had the others
	fpmRest  = []string{"wall_time", "scheduled_requests", "queued_requests"}
	fpmBatch = []string{"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "sum_prefill_kv_tokens",
		"num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens"}
	fpmWaiting = []string{"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "num_decode_requests",
		"sum_decode_kv_tokens", "var_decode_kv_tokens"}
)

// pass reads a pass by names, or in the order of its struct.
func (r *fpmReader) pass() {
	if r.isFPM = true; r.Peek() != '[' {
		r.object(fpmPass)
		return
	}
	names, first := []string(nil), r.Take('[')
	for k := 0; r.More(']', &first); k++ {
		switch isText := r.Peek() == '"'; {
		case k == 0 && isText:
			names = slices.Concat(fpmOld, fpmRest)
		case k == 0:
			names = slices.Concat(fpmFirst, fpmRest)
		case k == len(fpmFirst) && isText && len(names) > len(fpmOld)+len(fpmRest):
			names = slices.Concat(fpmFirst, []string{"timing_scope"}, fpmRest)
		}
		if k >= len(names) {
			r.Fail("got more than %d fields of a pass", len(names))
			return
		}
		fpmPass[names[k]](r)
	}
}

// batch reads the requests of a pass.
func (r *fpmReader) batch(order []string, fields fpmFields) {
	if r.Peek() != '[' {
		r.object(fields)
		return
	}
	k, first := 0, r.Take('[')
	for ; r.More(']', &first) && k < len(order); k++ {
		if fields[order[k]] == nil {
			r.Skip(0)
		} else {
			fields[order[k]](r)
		}
	}
	if r.Err == nil && (k < len(order) || !first && r.B[r.I-1] != ']') {
		r.Fail("got fewer or more than %d counts of a batch", len(order))
	}
}

// object reads an object of the fields.
func (r *fpmReader) object(fields fpmFields) {
	for key := range r.MembersOrNull {
		if read := fields[string(key)]; read != nil {
			read(r)
		} else {
			r.Skip(0)
		}
	}
}

var (
	fpmEvent = fpmFields{
		"schema": func(r *fpmReader) { r.schema = r.word() }, "source": func(r *fpmReader) {
			r.object(fpmFields{"producer_id": func(r *fpmReader) { r.producer = r.word() }})
		}, "capture_mode": func(r *fpmReader) { r.it.Sampled = r.word() != "full" }, "observed_at_unix_ms": func(r *fpmReader) {
			ms, ok := r.Int64()
			switch {
			case ok && (ms < 0 || ms >= math.MaxInt64/1_000_000):
				r.Fail("observed_at_unix_ms: got %d, want ms since 1970", ms)
			case ok && ms > 0:
				r.it.StampNs, r.it.StampStepNs, r.it.StampWall = trace.Some(ms*1_000_000), trace.Some[int64](1_000_000), true
			}
		},
		"sequence": func(r *fpmReader) { r.sequence, _ = r.Int64() },
		"fpm":      (*fpmReader).pass,
	}
	fpmPass = fpmFields{
		"version":    func(r *fpmReader) { r.version = trace.Some(r.count()) },
		"worker_id":  func(r *fpmReader) { r.worker = r.word() },
		"dp_rank":    func(r *fpmReader) { r.rank, _ = r.Int64() },
		"counter_id": func(r *fpmReader) { r.it.Index, r.hasCounter = r.Int64() }, "timing_scope": func(r *fpmReader) {
			if r.Peek() != '"' {
				r.Unexpected("what the time covers")
			}
			r.Skip(0)
		}, "wall_time": func(r *fpmReader) {
			var seconds float64
			seconds, r.hasTime = r.Float()
			r.it.ElapsedUs = seconds * 1e6
		},
		"scheduled_requests": func(r *fpmReader) { r.hasScheduled = true; r.batch(fpmBatch, fpmScheduled) },
		"queued_requests":    func(r *fpmReader) { r.batch(fpmWaiting, fpmQueued) },
	}
	fpmScheduled = fpmFields{
		"num_prefill_requests":  func(r *fpmReader) { r.it.ContextReqs = r.count() },
		"sum_prefill_tokens":    func(r *fpmReader) { r.it.ContextTokens = r.count() },
		"var_prefill_length":    func(r *fpmReader) { r.it.PromptVariance = r.variance() },
		"sum_prefill_kv_tokens": func(r *fpmReader) { r.it.ContextKVTokens = trace.Some(r.count()) }, "num_decode_requests": func(r *fpmReader) {
			r.it.GenerationReqs = r.count()
			r.it.GenerationTokens = r.it.GenerationReqs
		},
		"sum_decode_kv_tokens": func(r *fpmReader) { r.it.DecodeKVTokens = trace.Some(r.count()) },
		"var_decode_kv_tokens": func(r *fpmReader) { r.it.DecodeKVVariance = r.variance() },
	}
	fpmQueued = fpmFields{
		"num_prefill_requests": func(r *fpmReader) { r.it.QueuedContext = trace.Some(r.count()) },
		"sum_prefill_tokens":   func(r *fpmReader) { r.it.QueuedTokens = trace.Some(r.count()) },
		"num_decode_requests":  func(r *fpmReader) { r.it.QueuedDecode = trace.Some(r.count()) },
	}
	fpmRecord = func() fpmFields { // an envelope, or a pass alone
		both := maps.Clone(fpmPass)
		both["event"] = func(r *fpmReader) { r.object(fpmEvent) }
		both["wall_time"] = func(r *fpmReader) { r.isFPM, r.schema = true, FPMSchema; fpmPass["wall_time"](r) }
		return both
	}()
)

// word is a string or a number as text; null is none.
func (r *fpmReader) word() string {
	if r.Null() {
		return ""
	}
	v, _ := r.Scalar("a string")
	return string(v)
}

// count is a number of requests or tokens.
func (r *fpmReader) count() int64 {
	v, ok := r.Int64()
	if ok && v < 0 {
		r.Fail("got %d, want a count", v)
	}
	return v
}

func (r *fpmReader) variance() trace.Opt[float64] {
	v, ok := r.Float()
	if ok && (v < 0 || math.IsNaN(v) || math.IsInf(v, 0)) {
		r.Fail("got %v, want a variance", v)
	}
	return trace.Some(v)
}

// check refuses what is no record of this schema.
func (r *fpmReader) check() {
	switch e := r.it.ElapsedUs; {
	case r.schema != FPMSchema && r.B[0] != '[':
		r.Fail("schema: got %.40q, want %q", r.schema, FPMSchema)
	case !r.isFPM || !r.hasScheduled || !r.hasTime:
		r.Fail("got no fpm with wall_time and scheduled_requests")
	case r.version.OK && r.version.V != 1:
		r.Fail("fpm version: got %d, want 1", r.version.V)
	case math.IsNaN(e) || e < 0 || e > 1e12:
		r.Fail("wall_time: got %v s, want seconds of one pass", e/1e6)
	}
}

// engine tells producers, workers and ranks apart.
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
