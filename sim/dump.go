package sim

// This file and dump_*.go write a simulated run as the tracing fork of vLLM (the producer) would
// have recorded it. OTLP spans: an API span and a core span for each sampled request (its journey),
// and step spans with summaries of scheduler steps. Stamps are wall-clock ns unless a name or
// comment states that they are monotonic.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/blis-train/blis-train/deploy"
)

// Dump is an observer that writes the run as a trace dump (see Dumps in the package comment). Close
// must be called at the end of the run.
type Dump struct {
	opt  DumpOptions
	dep  *deploy.Deployment
	reqs []Request
	out  *bufio.Writer
	kv   *kvWriter // nil = no KV events

	journeyCoin, stepCoin, richCoin *rand.Rand       // decide what is sampled: DumpOptions.JourneyRate, ...
	live                            map[int]*journey // sampled requests that have not left, by index
	step                            stepSpan         // the open step span
	core, api, steps                []span           // ended spans of the line that is collected, by tracer
	spare                           []buffer         // memory for the events of step spans
	lastLine                        int64            // wall-clock time of the last line, ns

	at    int64 // simulated time of the last event, us
	order int64 // number of events within that microsecond
}

// journey is one sampled request: its API span and its core span.
type journey struct {
	apiID, coreID                         string   // ids of the request in the API and in the engine
	traceID, apiSpan, coreSpan            string   // OTLP ids, hexadecimal
	arrivedWall, queuedWall, finishedWall int64    // wall-clock ns
	apiEvents                             buffer   // events of the API span, separated by commas
	events                                []buffer // of the core span, at most DumpOptions.EventLimit
	dropped                               int64    // number of older events of the core span
}

// NewDump returns a dump of a run of reqs that writes spans to w, and KV events to kv unless it is
// nil or the deployment has no prefix caching.
func NewDump(w, kv io.Writer, d *deploy.Deployment, reqs []Request, opt DumpOptions) (*Dump, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	seed := uint64(opt.Seed)
	p := &Dump{opt: opt, dep: d, reqs: reqs, out: bufio.NewWriterSize(w, 1<<18), live: map[int]*journey{},
		lastLine:    opt.WallNs,
		journeyCoin: rand.New(rand.NewPCG(seed, 1)), stepCoin: rand.New(rand.NewPCG(seed, 2)),
		richCoin: rand.New(rand.NewPCG(seed, 3))}
	if kv != nil && d.Engine.PrefixCaching {
		p.kv = &kvWriter{p: p, out: bufio.NewWriterSize(kv, 1<<16)}
	}
	p.openStepSpan(1)
	return p, nil
}

// CoreID returns the engine's id of request i, which core spans, snapshots and KV events contain: the
// API's id, for completions the index of the prompt in the call (0), and eight random digits, which
// vLLM adds so that ids are unique (input_processor.py: assign_request_id()).
func (p *Dump) CoreID(i int) string {
	suffix := "-" + fmt.Sprintf("%08x", uint32(mix(uint64(p.opt.Seed)^0xc0, uint64(i))))
	if !p.opt.Chat {
		suffix = "-0" + suffix
	}
	return p.apiID(i) + suffix
}

// apiID returns the id of request i in the API.
func (p *Dump) apiID(i int) string {
	id := p.reqs[i].ID
	if id == "" {
		id = fmt.Sprintf("%016x", mix(uint64(p.opt.Seed), uint64(i)))
	}
	if p.opt.Chat {
		return "chatcmpl-" + id
	}
	return "cmpl-" + id
}

// Offsets, ns, that order the producer's events inside one simulated microsecond.
const (
	placeToken  = 100
	placeQueued = 500
	placeStart  = 999
)

// stamp returns the monotonic time, ns, of an event at us. Events of one microsecond get increasing
// stamps in the order in which the producer writes them.
func (p *Dump) stamp(us int64, kind eventKind) int64 {
	if us != p.at {
		p.at, p.order = us, 0
	}
	p.order++
	base := p.opt.MonotonicNs + us*1000
	within := min(p.order, 390) // less than the distance of two places, so that their order is kept
	switch kind {
	case FirstToken, Finished:
		return base + placeToken + within
	case Queued:
		return base + placeQueued + within
	case Scheduled, Preempted:
		return base + placeStart + min(20*p.order, 900) // a schedule() lasts at least 1000 ns
	}
	return base
}

// wall converts a monotonic stamp to wall-clock time, both ns.
func (p *Dump) wall(ns int64) int64 { return p.opt.WallNs + ns - p.opt.MonotonicNs }

// Event writes an event of a request into its spans.
func (p *Dump) Event(e *Event) {
	if e.Kind == Arrived {
		p.arrived(e)
		return
	}
	j := p.live[e.Request]
	if j == nil {
		return
	}
	switch e.Kind {
	case Queued, Scheduled, FirstToken, Preempted, Finished:
		p.journeyEvent(j, e)
	case Departed:
		p.departed(j, e)
		delete(p.live, e.Request)
	}
}

// arrived begins the spans of a request if its journey is sampled, by the draw that the producer
// makes.
func (p *Dump) arrived(e *Event) {
	if p.journeyCoin.Float64() >= p.opt.JourneyRate {
		return
	}
	i := uint64(e.Request)
	seed := uint64(p.opt.Seed)
	ns := p.opt.MonotonicNs + e.AtUs*1000
	id := func(salt uint64) string { return fmt.Sprintf("%016x", mix(seed^salt, i)) }
	j := &journey{
		apiID: p.apiID(e.Request), coreID: p.CoreID(e.Request), arrivedWall: p.wall(ns),
		traceID: id(saltTraceHigh) + id(saltTraceLow), apiSpan: id(saltAPISpan), coreSpan: id(saltCoreSpan),
	}
	p.apiEvent(j, ns, "api.ARRIVED", "")
	p.live[e.Request] = j
}

// apiEvent adds an event at monotonic time ns to the API span of j.
func (p *Dump) apiEvent(j *journey, ns int64, name, reason string) {
	b := &j.apiEvents
	if len(*b) > 0 {
		b.raw(",")
	}
	b.event(p.wall(ns), name)
	b.double("event.ts.monotonic", float64(ns)/1e9)
	if reason != "" {
		b.text("reason", reason)
	}
	b.end()
}

// journeyEvent adds event e to the core span of j.
func (p *Dump) journeyEvent(j *journey, e *Event) {
	ns := p.stamp(e.AtUs, e.Kind)
	var b buffer
	b.event(p.wall(ns), "journey."+string(e.Kind))
	b.text("event.type", string(e.Kind))
	b.double("ts.monotonic", float64(ns)/1e9)
	b.int("ts.monotonic_ns", ns)
	b.int("scheduler.step", e.Step)
	b.text("phase", phaseOf(e))
	b.int("prefill.done_tokens", e.PrefillDone)
	b.int("prefill.total_tokens", p.reqs[e.Request].PromptTokens)
	b.int("decode.done_tokens", e.OutputTokens)
	b.int("decode.max_tokens", maxTokens(&p.reqs[e.Request]))
	b.int("num_preemptions", e.Preemptions)
	switch e.Kind {
	case Scheduled:
		kind := "FIRST"
		if e.Resume {
			kind = "RESUME"
		}
		b.text("schedule.kind", kind)
	case Finished:
		b.text("finish.status", e.FinishStatus)
		j.finishedWall = p.wall(ns)
	case Queued:
		j.queuedWall = p.wall(ns)
	case FirstToken:
		if p.opt.Chat {
			const toAPINs = 60_000 // assumed: the simulator has no time for this way
			p.apiEvent(j, ns+toAPINs, "api.FIRST_RESPONSE_FROM_CORE", "")
		}
	}
	b.end()
	j.events = append(j.events, b)
	if int64(len(j.events)) > p.opt.EventLimit {
		j.events = j.events[1:]
		j.dropped++
	}
	if e.Kind == Finished {
		p.endCore(j)
	}
}

// phaseOf returns the producer's label of the phase in which the request of event e is.
func phaseOf(e *Event) string {
	switch {
	case e.Kind == Queued:
		return "WAITING"
	case e.OutputTokens == 0:
		return "PREFILL"
	}
	return "DECODE"
}

// maxTokens returns the request's max_tokens, the output length if it states none.
func maxTokens(r *Request) int64 {
	if r.MaxTokens > 0 {
		return r.MaxTokens
	}
	return r.OutputTokens
}

// endCore writes the core span of a request that the engine has finished.
func (p *Dump) endCore(j *journey) {
	head := spanHead{
		traceID: j.traceID,
		spanID:  j.coreSpan,
		parent:  j.apiSpan,
		flags:   hasIsRemote | parentRemote,
		name:    "llm_core",
		kind:    kindInternal,
		startNs: j.queuedWall,
		endNs:   j.finishedWall,
	}
	var b buffer
	head.appendTo(&b)
	b.raw(`,"attributes":[`)
	b.text("gen_ai.request.id", j.coreID)
	b.raw(`],"events":[`)
	for i, ev := range j.events {
		if i > 0 {
			b.raw(",")
		}
		b = append(b, ev...)
	}
	b.raw(`]`)
	spanTail(&b, j.dropped)
	p.core = append(p.core, span{head: b})
}

// departed writes the API span of a request that was answered, aborted or rejected.
func (p *Dump) departed(j *journey, e *Event) {
	r := &p.reqs[e.Request]
	ns := p.opt.MonotonicNs + e.AtUs*1000 + placeStart
	switch e.Outcome {
	case OutcomeFinished:
		p.apiEvent(j, ns, "api.DEPARTED", "")
	case OutcomeRejected:
		p.apiEvent(j, ns, "api.ABORTED", "validation_error")
	default:
		p.apiEvent(j, ns, "api.ABORTED", "client_disconnect")
	}
	head := spanHead{
		traceID: j.traceID,
		spanID:  j.apiSpan,
		flags:   hasIsRemote,
		name:    "llm_request",
		kind:    kindServer,
		startNs: j.arrivedWall,
		endNs:   p.wall(ns),
	}
	var b buffer
	head.appendTo(&b)
	b.raw(`,"attributes":[`)
	b.text("gen_ai.request.id", j.apiID)
	b.text("http.route", p.route())
	b.text("gen_ai.response.model", p.dep.Model.ID)
	b.int("gen_ai.usage.prompt_tokens", r.PromptTokens)
	b.double("gen_ai.request.temperature", 0)
	b.double("gen_ai.request.top_p", 1)
	b.int("gen_ai.request.max_tokens", maxTokens(r))
	b.int("gen_ai.request.n", 1)
	if p.opt.Chat && e.Outcome == OutcomeFinished {
		b.int("gen_ai.usage.completion_tokens", e.OutputTokens)
	}
	b.raw(`],"events":[`)
	b = append(b, j.apiEvents...)
	b.raw(`]`)
	spanTail(&b, 0)
	p.api = append(p.api, span{head: b})
	p.writeLine(p.wall(ns), false)
}

// route returns the API path of the requests.
func (p *Dump) route() string {
	if p.opt.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// The exporter of the producer writes a line every five seconds, or when it has this many spans.
const (
	lineNs    = 5_000_000_000
	lineSpans = 512
)

// writeLine writes the ended spans as one line if a line is due at wall-clock time wall (ns), or if
// forced. The engine and the API server are two processes and therefore two resources of the line.
// Each resource is closed here, because p.resource only opens it.
func (p *Dump) writeLine(wall int64, force bool) {
	n := len(p.core) + len(p.api) + len(p.steps)
	if n == 0 || !force && n < lineSpans && wall-p.lastLine < lineNs {
		return
	}
	p.lastLine = wall
	p.write(`{"resourceSpans":[`)
	if len(p.core)+len(p.steps) > 0 {
		p.resource()
		p.scope("vllm.scheduler", p.core)
		if len(p.core) > 0 && len(p.steps) > 0 {
			p.write(",")
		}
		p.scope("vllm.scheduler.step", p.steps)
		p.write(`]}`)
		if len(p.api) > 0 {
			p.write(",")
		}
	}
	if len(p.api) > 0 {
		p.resource()
		p.scope("vllm.api", p.api)
		p.write(`]}`)
	}
	p.write("]}\n")
	for _, s := range p.steps {
		p.spare = append(p.spare, s.events[:0])
	}
	clear(p.steps)
	p.core = p.core[:0]
	p.api = p.api[:0]
	p.steps = p.steps[:0]
}

// write writes text to the dump. The buffered writer keeps its first error until Close.
func (p *Dump) write(s string) { p.out.WriteString(s) }

// resource begins a resource with the attributes of the process that produced the spans. Scopes and
// "]}" must follow.
func (p *Dump) resource() {
	var b buffer
	b.raw(`{"resource":{"attributes":[`)
	b.text("telemetry.sdk.language", "python")
	b.text("telemetry.sdk.name", "opentelemetry")
	b.text("telemetry.sdk.version", "1.26.0")
	b.text("service.name", p.opt.ServiceName)
	b.raw(`]},"scopeSpans":[`)
	p.write(string(b))
}

// scope writes the ended spans of one tracer.
func (p *Dump) scope(name string, spans []span) {
	if len(spans) == 0 {
		return
	}
	p.write(`{"scope":{"name":"` + name + `"},"spans":[`)
	for i := range spans {
		if i > 0 {
			p.write(",")
		}
		for _, part := range []buffer{spans[i].head, spans[i].events, spans[i].tail} {
			p.out.Write(part)
		}
	}
	p.write(`]}`)
}

// Close writes the open step span, which ends with step lastStep, and flushes. Spans of requests
// that are still in the engine are lost, as they are when the producer is shut down.
func (p *Dump) Close(lastStep int64) error {
	if len(p.step.starts) > 0 {
		p.closeStepSpan(lastStep, p.lastWall())
	}
	p.writeLine(0, true)
	err := p.out.Flush()
	if p.kv != nil {
		err = errors.Join(err, p.kv.out.Flush())
	}
	return err
}

// lastWall returns the wall-clock time of the last event, ns.
func (p *Dump) lastWall() int64 { return p.opt.WallNs + p.at*1000 }
