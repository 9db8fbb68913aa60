package trace

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"unsafe"
)

// OverheadBound is what a request's stamps say about its overhead (spec#overhead).
type OverheadBound struct {
	LoUs, HiUs float64 // us; HiUs = QUEUED - ARRIVED and may be negative (clocks)
	Exact      bool    // the overhead equals HiUs; then LoUs = HiUs
	OK         bool    // ARRIVED and QUEUED are known
}

// overheadInterval bounds the overhead between ARRIVED and QUEUED, ns:
//
//	[max(0, prior - arrived), queued - arrived]   us
//
// prior is the start of the last recorded step before QUEUED; unknown gives 0.
// An exact interval is the single point queued - arrived.
func overheadInterval(arrivedNs, queuedNs int64, priorNs Opt[int64], exact bool) (loUs, hiUs float64) {
	hiUs = float64(queuedNs-arrivedNs) / 1000
	switch {
	case exact:
		loUs = hiUs
	case priorNs.OK:
		loUs = math.Max(0, float64(priorNs.V-arrivedNs)/1000)
	}
	return loUs, hiUs
}

// OverheadStamps are the stamps of a request that bound its overhead.
type OverheadStamps struct {
	ArrivedNs, QueuedNs, FinishedNs Opt[int64]
}

// StepMark is what bounding overheads needs of a recorded step.
type StepMark struct {
	StartNs int64
	IsIdle  bool // nobody ran or waited
}

// Mark is the step as bounding overheads sees it.
func (s *Step) Mark() StepMark {
	return StepMark{s.TsStartNs, s.RunningDepth == 0 && s.WaitingDepth == 0}
}

// Stamps are those that bound the request's overhead.
func (r *Request) Stamps() OverheadStamps {
	return OverheadStamps{r.ArrivedNs, r.QueuedNs, r.FinishedNs}
}

// BoundOverheads bounds the overhead of each of n requests of one engine run; steps
// in id order, asked for once. complete says that journeys are sampled at 1.0 and no core span
// is lost; only then is any bound exact: no other request was queued and
// unfinished at QUEUED, and either nothing ran or waited in the last recorded
// step or none was recorded since the previous FINISHED. The last step is the
// one that starts before QUEUED: a step that starts at that very moment is the
// one that follows the pick-up.
func BoundOverheads(n int, stamps func(i int) OverheadStamps, steps iter.Seq[StepMark], complete bool) []OverheadBound {
	order := make([]int32, 0, n)
	for i := range n {
		if stamps(i).QueuedNs.OK {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(stamps(int(a)).QueuedNs.V, stamps(int(b)).QueuedNs.V) })
	var prior Opt[int64]              // the last step before the request at hand
	isIdle := true                    // nothing ran or waited in it
	busyUntil := int64(math.MinInt64) // latest FINISHED of the requests queued so far
	out := make([]OverheadBound, n)
	bound := func(k int) {
		i := int(order[k])
		q := stamps(i)
		isTied := k+1 < len(order) && stamps(int(order[k+1])).QueuedNs.V == q.QueuedNs.V
		isAlone := busyUntil <= q.QueuedNs.V && !isTied
		if q.ArrivedNs.OK {
			exact := complete && isAlone && (isIdle || prior.V <= busyUntil)
			lo, hi := overheadInterval(q.ArrivedNs.V, q.QueuedNs.V, prior, exact)
			out[i] = OverheadBound{LoUs: lo, HiUs: hi, Exact: exact, OK: true}
		}
		busyUntil = max(busyUntil, q.FinishedNs.Or(math.MaxInt64))
	}
	k := 0
	for s := range steps {
		for ; k < len(order) && stamps(int(order[k])).QueuedNs.V <= s.StartNs; k++ {
			bound(k)
		}
		prior, isIdle = Some(s.StartNs), s.IsIdle
	}
	for ; k < len(order); k++ {
		bound(k)
	}
	return out
}

// This file reads requests as a recording tells them: which clock and stamps say when they
// came, produced and left, whatever recorded them.

// TTFTMs is FIRST_TOKEN - ARRIVED in ms, or a stock span's time to first token.
func (r *Request) TTFTMs() (float64, bool) {
	if r.Source == SourceStock {
		return r.StockTTFTUs.V / 1e3, r.StockTTFTUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.FirstTokenNs)
}

// E2EMs is DEPARTED - ARRIVED in ms, or a stock span's e2e. Only requests that
// succeeded have one.
func (r *Request) E2EMs() (float64, bool) {
	if r.Success.OK && !r.Success.V {
		return 0, false
	}
	if r.Source == SourceStock {
		return r.StockE2EUs.V / 1e3, r.StockE2EUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.DepartedNs)
}

// BetweenMs is the time between two stamps, in ms.
func BetweenMs(from, to Opt[int64]) (float64, bool) {
	if !from.OK || !to.OK {
		return 0, false
	}
	return float64(to.V-from.V) / 1e6, true
}

// ArrivalNs is ARRIVED, else QUEUED, else the stock span's wall-clock start.
func (r *Request) ArrivalNs() (int64, bool) {
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return r.StartWallNs.V, r.StartWallNs.OK && r.Source == SourceStock
}

// clientDisconnect is the reason of an abort that the client asked for.
const clientDisconnect = "client_disconnect"

// Failed reports whether the request ended without success through no wish of its client.
func (r *Request) Failed() bool {
	return r.Success.OK && !r.Success.V && !r.ClientAborted()
}

// ClientAborted reports whether its client gave the request up.
func (r *Request) ClientAborted() bool {
	if !r.Success.OK || r.Success.V {
		return false
	}
	if r.AbortReason.OK {
		return r.AbortReason.V == clientDisconnect
	}
	return r.FinishStatus.Or("") == FinishAborted
}

// DepartureNs is when the request left, on the clock of ArrivalNs.
func (r *Request) DepartureNs() (int64, bool) {
	if r.Source == SourceStock {
		return r.StartWallNs.V + Ns(r.StockE2EUs.V), r.StockE2EUs.OK && r.StartWallNs.OK
	}
	for _, at := range []Opt[int64]{r.DepartedNs, r.FinishedNs, r.AbortedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return 0, false
}

// RunsBackwards reports whether a later event of the request has an earlier stamp.
func (r *Request) RunsBackwards() bool {
	last := int64(math.MinInt64)
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs, r.ScheduledNs, r.FirstTokenNs, r.FinishedNs, r.DepartedNs} {
		if !at.OK {
			continue
		}
		if at.V < last {
			return true
		}
		last = at.V
	}
	return false
}

// Forms of upstream's per-iteration records.
const (
	IterationLog = "log" // vLLM's --enable-logging-iteration-details
	IterationFPM = "fpm" // forward-pass metrics: dynamo.fpm.trace.v1, native ones

	IterationSGLang   = "sglang"   // batches in SGLang's log
	IterationTensorRT = "tensorrt" // TensorRT-LLM's print_iter_log

	IterationChunks = "chunks" // recovered from the chunks of all clients
)

// Iteration is one row of `iterations`: one pass of an engine as unmodified vLLM
// logs it, or as Dynamo's forward-pass trace does. Counts and sums of the batch
// stand here, single requests do not.
type Iteration struct {
	Index            int64        `col:"iteration" doc:"the engine's counter: of logged iterations (log) or of passes (fpm)"`
	Form             string       `col:"form" doc:"log (vLLM), sglang, tensorrt, fpm, or chunks: recovered from the chunks of all clients"`
	StampNs          Opt[int64]   `col:"stamp_ns" unit:"ns" doc:"when the record was written; wall clock when stamp_wall, else local time counted from 1 January of a year not written"`
	StampStepNs      Opt[int64]   `col:"stamp_step_ns" unit:"ns" doc:"resolution of stamp_ns: 1 s for vLLM's own stamp, the digits written for that of docker, kubectl, CRI, journald, ts or JSON logs"`
	StampWall        bool         `col:"stamp_wall" doc:"stamp_ns counts from 1970 UTC"`
	ElapsedUs        float64      `col:"elapsed_us" unit:"us" doc:"iteration elapsed time (log) or wall_time (fpm): waiting for the model and sampling, NOT the step time"`
	ContextReqs      int64        `col:"context_requests" unit:"requests" doc:"requests without an output token yet: whole prompts and chunks of prompts"`
	ContextTokens    int64        `col:"context_tokens" unit:"tokens" doc:"their scheduled tokens, prefix-cache hits excluded"`
	GenerationReqs   int64        `col:"generation_requests" unit:"requests" doc:"all other scheduled requests"`
	GenerationTokens int64        `col:"generation_tokens" unit:"tokens" doc:"their tokens; more than requests after a preemption or with speculative decoding"`
	PromptVariance   Opt[float64] `col:"context_prompt_variance" unit:"tokens^2" doc:"variance of the context requests' whole prompt lengths (fpm)"`
	ContextKVTokens  Opt[int64]   `col:"context_kv_tokens" unit:"tokens" doc:"tokens the context requests had in KV before the pass, summed (fpm)"`
	DecodeKVTokens   Opt[int64]   `col:"decode_kv_tokens" unit:"tokens" doc:"tokens the generation requests had in KV, summed (fpm)"`
	DecodeKVVariance Opt[float64] `col:"decode_kv_variance" unit:"tokens^2" doc:"variance of the same over the generation requests (fpm)"`
	QueuedContext    Opt[int64]   `col:"queued_context_requests" unit:"requests" doc:"requests that wait for their first token (fpm)"`
	QueuedTokens     Opt[int64]   `col:"queued_context_tokens" unit:"tokens" doc:"their prompt tokens (fpm)"`
	QueuedDecode     Opt[int64]   `col:"queued_generation_requests" unit:"requests" doc:"preempted requests that wait (fpm)"`
	KVUsage          Opt[float64] `col:"kv_usage_ratio" doc:"share of KV blocks in use after the update, 0..1 (log from 0.26)"`
	EncoderInputs    Opt[int64]   `col:"encoder_inputs" doc:"inputs of a multimodal encoder (log from 0.26)"`
	EncoderOutputs   Opt[int64]   `col:"encoder_output_embeddings" doc:"their output embeddings (log from 0.26)"`
	Sampled          bool         `col:"sampled" doc:"the producer writes one record in several seconds (fpm, DYN_FPM_MODE=sampled): no time series"`
	Dummy            bool         `col:"dummy" doc:"a pass of data parallelism without load: its time counts, its load does not"`
	File             string       `col:"file" doc:"input file, relative to the run directory"`
	Line             int64        `col:"line" doc:"line in that file"`
}

// Aggregate is what the iterations of a run tell of its steps: where the times
// come from, or why there are none, and the sums of every pass.
type Aggregate struct {
	Refused  *Error // why no step time can be had; nil when Steps were made
	Audit    TimeAudit
	Findings []Finding

	Drafts      bool         // passes verify drafted tokens: speculative decoding
	First       int64        // step id of Totals[0]
	Totals      []StepTotals // by step id: one for each pass, lost ones unknown, empty ones where the engine was idle
	Contexts    string       // where the contexts of decodes come from: trace, client, kv_usage or mean
	MeanContext float64      // tokens; with mean
	OffsetNs    Opt[int64]   // added to the log's clock to reach that of the clients, delivery included
	DelaysUs    []float64    // TTFT less the pass of requests that met an idle server
	ClientShare Opt[float64] // of the passes with decodes whose number the clients explain
	Others      float64      // share of the decodes, while clients ran, that no client's result shows
}

// ContextsMean says that one mean stands for the contexts of all decodes.
const ContextsMean = "mean"

// StepTotals are the sums of one pass, exact or filled in.
type StepTotals struct {
	Known   bool
	NoStart bool // nobody knows when it began

	Prefill, Decode         int64 // tokens
	PrefillReqs, DecodeReqs int64
	Sampled                 int64   // sequences that get logits
	CausalWork              float64 // token pairs of prompts
	PrefillContext          float64 // tokens the prompts had in KV
	DecodeContext           float64 // tokens, each decode's own included
}

// TimeAudit are the figures from which the time of a pass is chosen.
type TimeAudit struct {
	Time        string       // cadence, elapsed or ticks; empty when refused
	ConstantUs  Opt[float64] // between passes, beside elapsed
	SumOverWall Opt[float64] // of elapsed over busy time
	LagErrors   []float64    // of elapsed from the counts of its own line, and of one and two before
}

// Range is what a value may be, both ends included; one that is not finite is never in it.
type Range struct{ From, To float64 }

// day is 24 h in ns.
const day = 24 * 3600e9

// The limits of values that are read (spec#value-limits): by the unit of their column, and by the
// name of columns that have none, or that hold sums, or what was asked for and never ran.
var (
	unitRange = map[string]Range{"tokens": {0, 1 << 24}, "requests": {0, 1 << 24}, "blocks": {0, 1 << 32}, "us": {0, day / 1e3},
		"ms": {0, day / 1e6}, "ns": {0, 1 << 62}, "s": {0, 1 << 32}, "1/s": {0, 1 << 24}, "tokens^2": {0, 1 << 48}}
	count = Range{0, 1 << 24}
	step  = Range{0, 1 << 53}

	columnRange = map[string]Range{"step_id": step, "step": step, "queued_step": step, "scheduled_step": step, "first_token_step": step,
		"finished_step": step, "iteration": step, "span_sequence": step, "kv_usage_ratio": {0, 1}, "num_preemptions": count, "preemptions": count,
		"n": count, "status": {0, 999}, "chunks": count, "copies": count, "encoder_inputs": count, "dp_rank": count, "turn": count,
		"max_tokens": {0, 1 << 32}, "decode_max_tokens": {0, 1 << 32}, "asked_tokens": {0, 1 << 32}, "context_kv_tokens": {0, 1 << 40},
		"decode_kv_tokens": {0, 1 << 40}, "queued_context_tokens": {0, 1 << 40}}
)

// RangeOf is the range of a column of the tables; ok is false where any number will do.
func RangeOf(column, unit string) (r Range, ok bool) {
	if r, ok = columnRange[column]; !ok {
		r, ok = unitRange[unit]
	}
	return r, ok
}

// Check says in words how a value is outside; "" where it is not. The ends of int64 stand for
// what [Int] could not hold.
func (r Range) Check(name string, v float64) string {
	switch {
	case v >= r.From && v <= r.To:
		return ""
	case v == math.MinInt64 || v == math.MaxInt64 || math.IsNaN(v):
		return fmt.Sprintf("%s: got no number, or one beyond 64 bits, want %.10g to %.10g, whole if a count", name, r.From, r.To)
	}
	return fmt.Sprintf("%s: got %.10g, want %.10g to %.10g", name, v, r.From, r.To)
}

// Int is a float rounded to an integer. What none can hold becomes the end of int64 on its side,
// NaN the lower one; both are outside every range. Go leaves such conversions to the machine.
func Int(v float64) int64 {
	switch v = math.Round(v); {
	case v >= -math.MinInt64:
		return math.MaxInt64
	case v > math.MinInt64:
		return int64(v)
	}
	return math.MinInt64
}

// Count is a number of things: what is no whole number is outside every range.
func Count(v float64) int64 {
	if v != math.Trunc(v) {
		return math.MinInt64
	}
	return Int(v)
}

// Ns is a time in us as whole ns, cut towards zero, with the bounds of [Int].
func Ns(us float64) int64 { return Int(math.Trunc(us * 1000)) }

// Ranges finds values of rows of a table that no recording can hold.
type Ranges[T any] struct{ fields []ranged }

// ranged is a numeric column of rows in memory; known is the offset of its flag, 0 for none.
type ranged struct {
	name      string
	at, known uintptr
	kind      reflect.Kind
	Range
}

// RangesOf are the ranges of T's columns, by their tags.
func RangesOf[T any]() *Ranges[T] {
	out := &Ranges[T]{}
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		f := t.Field(i)
		r, ok := RangeOf(f.Tag.Get("col"), f.Tag.Get("unit"))
		if !ok {
			continue
		}
		c := ranged{name: f.Tag.Get("col"), at: f.Offset, kind: f.Type.Kind(), Range: r}
		if flag, isOpt := (reflect.StructField{}), f.Type.Kind() == reflect.Struct; isOpt {
			flag, _ = f.Type.FieldByName("OK")
			c.known, c.kind = f.Offset+flag.Offset, f.Type.Field(0).Type.Kind()
		}
		out.fields = append(out.fields, c)
	}
	return out
}

// Check says in words which value of the row is outside its range first; "" where none is.
func (s *Ranges[T]) Check(row *T) string {
	p := unsafe.Pointer(row)
	for i := range s.fields {
		f := &s.fields[i]
		if f.known != 0 && !*(*bool)(unsafe.Add(p, f.known)) {
			continue
		}
		switch at := unsafe.Add(p, f.at); f.kind {
		case reflect.Int64:
			if v := *(*int64)(at); float64(v) < f.From || float64(v) > f.To {
				return f.Range.Check(f.name, float64(v))
			}
		case reflect.Float64:
			if v := *(*float64)(at); !(v >= f.From && v <= f.To) {
				return f.Range.Check(f.name, v)
			}
		case reflect.Slice:
			for _, v := range *(*[]float64)(at) {
				if why := f.Range.Check(f.name, v); why != "" {
					return why
				}
			}
		}
	}
	return ""
}
