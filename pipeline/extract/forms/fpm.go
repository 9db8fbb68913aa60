package forms

import (
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// FPMSchema names the trace this reader understands; a record of another schema
// is a fault of its line.
const FPMSchema = "dynamo.fpm.trace.v1"

// fpmDecoder reads lines of Dynamo's forward-pass trace. Of a sum over requests
// the fields say which: sum_prefill_tokens are the tokens of this pass,
// var_prefill_length is the variance of whole prompts, the *_kv_tokens stood in
// KV before the pass (read in Dynamo's instrumented scheduler).
type fpmDecoder struct{ iterationLines }

// newFPMDecoder reads the lines of dynamo.fpm.trace.v1.
func newFPMDecoder() source.Decoder[*Iterations] { return &fpmDecoder{newIterationLines()} }

func (d *fpmDecoder) Line(line []byte, out *Iterations) *source.Error {
	r := fpmReader{Cursor: source.Cursor{B: line}}
	r.object(fpmRecord)
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
	out.Rows = append(out.Rows, row{Iteration: r.it, Engine: d.text.Get([]byte(r.engine()))})
	return nil
}

// fpmReader reads one record.
type fpmReader struct {
	source.Cursor
	it                           trace.Iteration
	schema, producer, worker     string
	version, rank                int64
	hasScheduled, hasTime, isFPM bool
}

// fpmFields are the members of an object that are read; others are skipped.
type fpmFields map[string]func(r *fpmReader)

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
	fpmRecord = fpmFields{"event": func(r *fpmReader) { r.object(fpmEvent) }}
	fpmEvent  = fpmFields{
		"schema": func(r *fpmReader) { r.schema = r.word() },
		"source": func(r *fpmReader) {
			r.object(fpmFields{"producer_id": func(r *fpmReader) { r.producer = r.word() }})
		},
		"capture_mode": func(r *fpmReader) { r.it.Sampled = r.word() != "full" },
		"observed_at_unix_ms": func(r *fpmReader) {
			ms, ok := r.Int64()
			switch {
			case ok && (ms < 0 || ms >= math.MaxInt64/1_000_000):
				r.Fail("observed_at_unix_ms: got %d, want ms since 1970", ms)
			case ok && ms > 0:
				r.it.StampNs, r.it.StampStepNs, r.it.StampWall = trace.Some(ms*1_000_000), trace.Some[int64](1_000_000), true
			}
		},
		"fpm": func(r *fpmReader) { r.isFPM = true; r.object(fpmPass) },
	}
	fpmPass = fpmFields{
		"version":    func(r *fpmReader) { r.version, _ = r.Int64() },
		"worker_id":  func(r *fpmReader) { r.worker = r.word() },
		"dp_rank":    func(r *fpmReader) { r.rank, _ = r.Int64() },
		"counter_id": func(r *fpmReader) { r.it.Index, _ = r.Int64() },
		"wall_time": func(r *fpmReader) {
			var seconds float64
			seconds, r.hasTime = r.Float()
			r.it.ElapsedUs = seconds * 1e6
		},
		"scheduled_requests": func(r *fpmReader) { r.hasScheduled = true; r.object(fpmScheduled) },
		"queued_requests":    func(r *fpmReader) { r.object(fpmQueued) },
	}
	fpmScheduled = fpmFields{
		"num_prefill_requests":  func(r *fpmReader) { r.it.ContextReqs = r.count() },
		"sum_prefill_tokens":    func(r *fpmReader) { r.it.ContextTokens = r.count() },
		"var_prefill_length":    func(r *fpmReader) { r.it.PromptVariance = r.variance() },
		"sum_prefill_kv_tokens": func(r *fpmReader) { r.it.ContextKVTokens = trace.Some(r.count()) },
		"num_decode_requests": func(r *fpmReader) {
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
	case r.schema != FPMSchema:
		r.Fail("schema: got %.40q, want %q", r.schema, FPMSchema)
	case !r.isFPM || !r.hasScheduled || !r.hasTime:
		r.Fail("got no fpm with wall_time and scheduled_requests")
	case r.version != 1:
		r.Fail("fpm version: got %d, want 1", r.version)
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
