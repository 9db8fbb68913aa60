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
type fpmDecoder struct{ text *names }

// NewFPMDecoder reads the lines of dynamo.fpm.trace.v1.
func NewFPMDecoder() source.Decoder[*Records] { return &fpmDecoder{source.NewInterner()} }

func (d *fpmDecoder) Records() *Records { return new(Records) }

func (d *fpmDecoder) Message([]byte, *Records) *source.Error {
	return &source.Error{Msg: "got a length-prefixed message, want JSON lines"}
}

func (d *fpmDecoder) Line(line []byte, out *Records) *source.Error {
	r := fpmReader{Cursor: source.Cursor{B: line}}
	r.object(r.outer)
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
	out.Rows = append(out.Rows, Row{Iteration: r.it, Engine: d.text.Get([]byte(r.engine()))})
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

// object walks an object, member by member; a member that field does not take
// is skipped.
func (r *fpmReader) object(field func(key string) bool) {
	for key := range r.MembersOrNull {
		if !field(string(key)) {
			r.Skip(0)
		}
	}
}

func (r *fpmReader) outer(key string) bool {
	if key == "event" {
		r.object(r.event)
		return true
	}
	return false
}

func (r *fpmReader) event(key string) bool {
	switch key {
	case "schema":
		r.schema = r.word()
	case "source":
		r.object(func(key string) bool {
			if key != "producer_id" {
				return false
			}
			r.producer = r.word()
			return true
		})
	case "capture_mode":
		r.it.Sampled = r.word() != "full"
	case "observed_at_unix_ms":
		if ms, ok := r.Int64(); ok && ms > 0 && ms < math.MaxInt64/1_000_000 {
			r.it.StampNs, r.it.StampStepNs, r.it.StampWall = trace.Some(ms*1_000_000), trace.Some[int64](1_000_000), true
		}
	case "fpm":
		r.isFPM = true
		r.object(r.fpm)
	default:
		return false
	}
	return true
}

func (r *fpmReader) fpm(key string) bool {
	switch key {
	case "version":
		r.version, _ = r.Int64()
	case "worker_id":
		r.worker = r.word()
	case "dp_rank":
		r.rank, _ = r.Int64()
	case "counter_id":
		r.it.Index, _ = r.Int64()
	case "wall_time":
		var seconds float64
		seconds, r.hasTime = r.Float()
		r.it.ElapsedUs = seconds * 1e6
	case "scheduled_requests":
		r.hasScheduled = true
		r.object(r.scheduled)
	case "queued_requests":
		r.object(r.queued)
	default:
		return false
	}
	return true
}

func (r *fpmReader) scheduled(key string) bool {
	it := &r.it
	switch key {
	case "num_prefill_requests":
		it.ContextReqs = r.count()
	case "sum_prefill_tokens":
		it.ContextTokens = r.count()
	case "var_prefill_length":
		it.PromptVariance = r.variance()
	case "sum_prefill_kv_tokens":
		it.ContextKVTokens = trace.Some(r.count())
	case "num_decode_requests":
		it.GenerationReqs = r.count()
		it.GenerationTokens = it.GenerationReqs
	case "sum_decode_kv_tokens":
		it.DecodeKVTokens = trace.Some(r.count())
	case "var_decode_kv_tokens":
		it.DecodeKVVariance = r.variance()
	default:
		return false
	}
	return true
}

func (r *fpmReader) queued(key string) bool {
	it := &r.it
	switch key {
	case "num_prefill_requests":
		it.QueuedContext = trace.Some(r.count())
	case "sum_prefill_tokens":
		it.QueuedTokens = trace.Some(r.count())
	case "num_decode_requests":
		it.QueuedDecode = trace.Some(r.count())
	default:
		return false
	}
	return true
}

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
