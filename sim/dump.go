package sim

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Dump is an observer that writes the run. Close writes what is still open.
type Dump struct {
	opt  DumpOptions
	dep  *deploy.Deployment
	reqs []Request
	out  *bufio.Writer
	kv   *kvWriter // nil = no KV events

	journeyCoin, stepCoin, richCoin *rand.Rand
	live                            map[int]*journey
	step                            stepSpan
	core, api, steps                []span   // ended spans of the next line
	spare                           []buffer // memory for the events of step spans
	lastLine                        int64    // wall ns of the last line

	at    int64 // simulated us of the last event
	order int64 // events within that us
}

// journey is one sampled request: its API span and its core span.
type journey struct {
	apiID, coreID, traceID, apiSpan, coreSpan string
	arrivedWall, queuedWall                   int64
	apiEvents                                 buffer
	events                                    []buffer
	dropped                                   int64
	finishedWall                              int64
}

// NewDump returns a dump of the workload's run. kv may be nil.
func NewDump(w, kv io.Writer, d *deploy.Deployment, reqs []Request, opt DumpOptions) (*Dump, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	seed := uint64(opt.Seed)
	p := &Dump{opt: opt, dep: d, reqs: reqs, out: bufio.NewWriterSize(w, 1<<18), live: map[int]*journey{}, lastLine: opt.WallNs,
		journeyCoin: rand.New(rand.NewPCG(seed, 1)), stepCoin: rand.New(rand.NewPCG(seed, 2)), richCoin: rand.New(rand.NewPCG(seed, 3))}
	if kv != nil && d.Engine.PrefixCaching {
		p.kv = &kvWriter{p: p, out: bufio.NewWriterSize(kv, 1<<16)}
	}
	p.openStepSpan(1)
	return p, nil
}

// CoreID is the internal id of request i: what core span, snapshots and KV
// events carry.
func (p *Dump) CoreID(i int) string {
	suffix := "-" + fmt.Sprintf("%08x", uint32(mix(uint64(p.opt.Seed)^0xc0, uint64(i))))
	if !p.opt.Chat {
		suffix = "-0" + suffix
	}
	return p.apiID(i) + suffix
}

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

// Places of the producer's doings inside one simulated microsecond, in ns.
const (
	placeToken  = 100
	placeQueued = 500
	placeStart  = 999
)

// stamp is the monotonic ns of an event, in the producer's order.
func (p *Dump) stamp(us int64, kind eventKind) int64 {
	if us != p.at {
		p.at, p.order = us, 0
	}
	p.order++
	base := p.opt.MonotonicNs + us*1000
	within := min(p.order, 390)
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

func (p *Dump) wall(ns int64) int64 { return p.opt.WallNs + ns - p.opt.MonotonicNs }

// Event writes a request's event into its spans.
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
		traceID: id(1) + id(2), apiSpan: id(3), coreSpan: id(4),
	}
	p.apiEvent(j, ns, "api.ARRIVED", "")
	p.live[e.Request] = j
}

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
			p.apiEvent(j, ns+60_000, "api.FIRST_RESPONSE_FROM_CORE", "")
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

func phaseOf(e *Event) string {
	switch {
	case e.Kind == Queued:
		return "WAITING"
	case e.OutputTokens == 0:
		return "PREFILL"
	}
	return "DECODE"
}

func maxTokens(r *Request) int64 {
	if r.MaxTokens > 0 {
		return r.MaxTokens
	}
	return r.OutputTokens
}

func (p *Dump) endCore(j *journey) {
	var b buffer
	spanHead(&b, j.traceID, j.coreSpan, j.apiSpan, 768, "llm_core", 1, j.queuedWall, j.finishedWall)
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

// departed ends the API span of a request that was answered or given up.
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
	var b buffer
	spanHead(&b, j.traceID, j.apiSpan, "", 256, "llm_request", 2, j.arrivedWall, p.wall(ns))
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
	p.line(p.wall(ns), false)
}

func (p *Dump) route() string {
	if p.opt.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// DumpOptions say how the run is recorded.
type DumpOptions struct {
	JourneyRate     float64 // share of API requests with spans, 0..1
	StepRate        float64 // share of steps with a summary, 0..1
	RichRate        float64 // share of those with snapshots, 0..1
	ClosureInterval int64   // schedule() calls per step span, >= 1
	EventLimit      int64   // events kept per span, the oldest are dropped; >= 1
	Chat            bool    // /v1/chat/completions instead of /v1/completions
	Seed            int64
	MonotonicNs     int64 // CLOCK_MONOTONIC at simulated time 0
	WallNs          int64 // wall clock at simulated time 0
	ServiceName     string
	ScheduleNs      int64 // CPU time of schedule() with an empty queue
	ScheduleSeqNs   int64 // and for each running request
}

// DefaultDumpOptions are those of the tracing fork for a recording that keeps everything.
func DefaultDumpOptions(d *deploy.Deployment) DumpOptions {
	t := &d.Tracing
	return DumpOptions{
		JourneyRate: t.JourneySampleRate.Or(1), StepRate: t.StepSampleRate.Or(1), RichRate: t.RichSubsampleRate.Or(1),
		ClosureInterval: t.ClosureInterval.Or(100), EventLimit: t.EventCountLimit.Or(100000), Chat: t.API == "chat", Seed: 1,
		MonotonicNs: 100_000_000_000_000, WallNs: 1_776_100_000_000_000_000, ServiceName: "vllm-simulated",
		ScheduleNs: 60_000, ScheduleSeqNs: 1500,
	}
}

// Check verifies the options.
func (o *DumpOptions) Check() error {
	for _, r := range []float64{o.JourneyRate, o.StepRate, o.RichRate} {
		if !(r >= 0 && r <= 1) {
			return trace.Errorf(CodeBadConfig, "sampling rate: got %g, want in 0..1", r)
		}
	}
	if o.ClosureInterval < 1 || o.EventLimit < 1 || o.MonotonicNs <= 0 || o.WallNs <= 0 || o.ScheduleNs < 0 || o.ScheduleSeqNs < 0 {
		return trace.Errorf(CodeBadConfig, "closure interval %d, event limit %d, clocks %d and %d ns, scheduler time %d + %d ns: "+
			"want >= 1, >= 1, > 0, > 0, >= 0", o.ClosureInterval, o.EventLimit, o.MonotonicNs, o.WallNs, o.ScheduleNs, o.ScheduleSeqNs)
	}
	return nil
}

// Attributes and events as OTLP JSON: 64-bit integers are strings, wall stamps
// are strings, doubles are numbers.

type buffer []byte

func (b *buffer) raw(s string) { *b = append(*b, s...) }

func (b *buffer) num(n int64) { *b = strconv.AppendInt(*b, n, 10) }

func (b *buffer) quoted(s string) { *b = strconv.AppendQuote(*b, s) }

func (b *buffer) key(name string) {
	if n := len(*b); n > 0 && (*b)[n-1] == '}' {
		b.raw(",")
	}
	b.raw(`{"key":"`)
	b.raw(name)
	b.raw(`","value":{"`)
}

func (b *buffer) int(name string, v int64) {
	b.key(name)
	b.raw(`intValue":"`)
	b.num(v)
	b.raw(`"}}`)
}

func (b *buffer) text(name, v string) {
	b.key(name)
	b.raw(`stringValue":`)
	b.quoted(v)
	b.raw(`}}`)
}

func (b *buffer) double(name string, v float64) {
	b.key(name)
	b.raw(`doubleValue":`)
	*b = strconv.AppendFloat(*b, v, 'g', -1, 64)
	b.raw(`}}`)
}

// event starts an event; the attributes and "]}" follow.
func (b *buffer) event(wallNs int64, name string) {
	b.raw(`{"timeUnixNano":"`)
	b.num(wallNs)
	b.raw(`","name":"`)
	b.raw(name)
	b.raw(`","attributes":[`)
}

func (b *buffer) end() { b.raw(`]}`) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// span is one ended span in its three parts: the events of a step span are large
// and never copied.
type span struct{ head, events, tail buffer }

func spanHead(b *buffer, traceID, spanID, parent string, flags int64, name string, kind, start, end int64) {
	b.raw(`{"traceId":"` + traceID + `","spanId":"` + spanID + `"`)
	if parent != "" {
		b.raw(`,"parentSpanId":"` + parent + `"`)
	}
	b.raw(`,"flags":` + decimal(flags) + `,"name":"` + name + `","kind":` + decimal(kind))
	b.raw(`,"startTimeUnixNano":"` + decimal(start) + `","endTimeUnixNano":"` + decimal(max(start, end)) + `"`)
}

func spanTail(b *buffer, dropped int64) {
	if dropped > 0 {
		b.raw(`,"droppedEventsCount":` + decimal(dropped))
	}
	b.raw(`,"status":{}}`)
}

// The producer's exporter: a line every five seconds, or when it holds many spans.
const (
	lineNs    = 5_000_000_000
	lineSpans = 512
)

// line writes the ended spans as one line when it is time, or when forced. The
// engine and the API server are two processes: two resources.
func (p *Dump) line(wall int64, force bool) {
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

func (p *Dump) write(s string) {
	p.out.WriteString(s) // the writer keeps its first error until Close
}

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

// Close ends the open step span, as the producer's shutdown does, and writes
// what is left. Requests still inside are lost, as they are there.
func (p *Dump) Close(lastStep int64) error {
	if len(p.step.starts) > 0 {
		p.closeStepSpan(lastStep, p.lastWall())
	}
	p.line(0, true)
	err := p.out.Flush()
	if p.kv != nil {
		err = errors.Join(err, p.kv.out.Flush())
	}
	return err
}

// kvWriter writes KV-event lines: [ts, events, dp rank, null].
type kvWriter struct {
	p    *Dump
	out  *bufio.Writer
	line buffer
}

// KV collects an event; Published ends the line.
func (p *Dump) KV(e *KVEvent) {
	if p.kv == nil {
		return
	}
	p.kv.add(e)
}

func (k *kvWriter) add(e *KVEvent) {
	b := &k.line
	if e.Kind == published {
		if len(*b) == 0 {
			return
		}
		wall := float64(k.p.opt.WallNs+e.AtUs*1000) / 1e9
		head := strconv.AppendFloat([]byte("["), wall, 'f', 6, 64)
		head = append(head, ",["...)
		head = append(head, *b...)
		head = append(head, "],0,null]\n"...)
		k.out.Write(head)
		*b = (*b)[:0]
		return
	}
	copies := int64(1)
	if e.Kind == transferInitiated || e.Kind == transferCompleted {
		copies = max(1, k.p.dep.TP) // every worker of the group reports
	}
	for range copies {
		if len(*b) > 0 {
			b.raw(",")
		}
		k.event(b, e)
	}
}

func (k *kvWriter) event(b *buffer, e *KVEvent) {
	b.raw(`["` + string(e.Kind) + `"`)
	medium := `"GPU"`
	if e.CPU {
		medium = `"CPU"`
	}
	switch e.Kind {
	case blockStored:
		k.hashes(b, e)
		parent := "null"
		if e.HasParent {
			parent = strconv.FormatUint(e.Parent, 10)
		}
		b.raw("," + parent + ",")
		k.tokens(b, e)
		b.raw("," + decimal(k.p.dep.Engine.BlockSize) + ",null," + medium + ",null")
	case blockRemoved:
		k.hashes(b, e)
		b.raw("," + medium)
	case cacheLoadCommitted, cacheStored:
		b.raw(",")
		b.quoted(k.p.CoreID(e.Request))
		b.raw("," + medium + "," + decimal(e.Blocks) + "," + decimal(e.Step))
	case cacheEviction:
		b.raw("," + medium + "," + decimal(e.Blocks) + `,"lru",` + decimal(e.Step) + ",null")
	case transferInitiated, transferCompleted:
		k.transfer(b, e)
	}
	b.raw("]")
}

func (k *kvWriter) transfer(b *buffer, e *KVEvent) {
	route := `"CPU","GPU"`
	if e.ToCPU {
		route = `"GPU","CPU"`
	}
	b.raw("," + decimal(e.Transfer) + ",")
	b.quoted(k.p.CoreID(e.Request))
	b.raw("," + route + "," + decimal(e.Blocks))
	if e.Kind == transferCompleted {
		b.raw(",true")
	}
	b.raw("," + decimal(e.Step))
}

// hashes are integers on the GPU and base64 text in the CPU tier.
func (k *kvWriter) hashes(b *buffer, e *KVEvent) {
	b.raw(",[")
	for i, h := range e.Hashes {
		if i > 0 {
			b.raw(",")
		}
		if !e.CPU {
			*b = strconv.AppendUint(*b, h, 10)
			continue
		}
		var raw [32]byte
		for w := range uint64(4) {
			binary.BigEndian.PutUint64(raw[8*w:], mix(h, w))
		}
		b.quoted(base64.StdEncoding.EncodeToString(raw[:]))
	}
	b.raw("]")
}

// tokens are placeholders: a count of tokens has no ids.
func (k *kvWriter) tokens(b *buffer, e *KVEvent) {
	b.raw("[")
	if !e.CPU {
		for i := range e.Blocks * k.p.dep.Engine.BlockSize {
			if i > 0 {
				b.raw(",")
			}
			b.num(int64(mix(e.Hashes[i/k.p.dep.Engine.BlockSize], uint64(i)) % 30000))
		}
	}
	b.raw("]")
}

// stepSpan is the open scheduler_steps span.
type stepSpan struct {
	sequence, first int64
	openedWall      int64
	events          buffer // one after the other, commas between them
	starts          []int  // where each begins
	dropped         int64
	calls           int64 // schedule() calls since the last closure
	emitted         bool
}

func (p *Dump) openStepSpan(first int64) {
	p.step = stepSpan{sequence: p.step.sequence + 1, first: first, openedWall: p.lastWall(), starts: p.step.starts[:0]}
	if n := len(p.spare); n > 0 {
		p.step.events = p.spare[n-1]
		p.spare = p.spare[:n-1]
	}
}

func (p *Dump) lastWall() int64 { return p.opt.WallNs + p.at*1000 }

// Step writes the summary and the snapshots of a sampled step, and closes the
// span at its interval.
func (p *Dump) Step(v *StepView) {
	ts := p.opt.MonotonicNs + v.StartUs*1000 + placeStart
	cpu := min(p.opt.ScheduleNs+p.opt.ScheduleSeqNs*v.Running, max(1000, (v.EndUs-v.StartUs)*500))
	sampled := p.stepCoin.Float64() < p.opt.StepRate
	if sampled {
		p.summary(v, ts, ts+cpu)
		if p.richCoin.Float64() < p.opt.RichRate {
			p.snapshots(v, ts+cpu)
		}
		p.step.emitted = true
	}
	p.step.calls++
	if p.step.calls < p.opt.ClosureInterval {
		return
	}
	if p.step.emitted {
		p.closeStepSpan(v.StepID, p.wall(ts+cpu))
		p.openStepSpan(v.StepID + 1)
	}
	p.step.calls, p.step.emitted = 0, false
}

// nextEvent is where the next event of the open span is written. Beyond the
// limit the oldest one is dropped.
func (p *Dump) nextEvent() *buffer {
	s := &p.step
	if len(s.starts) > 0 {
		s.events.raw(",")
	}
	s.starts = append(s.starts, len(s.events))
	if int64(len(s.starts)) > p.opt.EventLimit+s.dropped {
		s.dropped++
	}
	return &s.events
}

func (p *Dump) summary(v *StepView, start, end int64) {
	b := p.nextEvent()
	b.event(p.wall(end), "step.BATCH_SUMMARY")
	b.int("step.id", v.StepID)
	b.int("step.ts_start_ns", start)
	b.int("step.ts_end_ns", end)
	b.int("step.duration_us", (end-start)/1000)
	b.int("queue.running_depth", v.Running)
	b.int("queue.waiting_depth", v.Waiting)
	b.int("batch.num_prefill_reqs", v.LabelledPrefillReqs)
	b.int("batch.num_decode_reqs", v.LabelledDecodeReqs)
	b.int("batch.scheduled_tokens", v.Tokens())
	b.int("batch.prefill_tokens", v.LabelledPrefillTokens)
	b.int("batch.decode_tokens", v.LabelledDecodeTokens)
	b.int("batch.num_finished", v.Finished)
	b.int("batch.num_preempted", v.Preempted)
	b.double("kv.usage_gpu_ratio", 1-float64(v.FreeBlocks)/float64(v.TotalBlocks))
	b.int("kv.blocks_total_gpu", v.TotalBlocks)
	b.int("kv.blocks_free_gpu", v.FreeBlocks)
	b.end()
}

func (p *Dump) snapshots(v *StepView, at int64) {
	for i := range v.Members {
		m := &v.Members[i]
		phase := "DECODE"
		if m.OutputTokens == 0 {
			phase = "PREFILL"
		}
		b := p.nextEvent()
		b.event(p.wall(at)+int64(i)*1000, "step.REQUEST_SNAPSHOT")
		b.int("step.id", v.StepID)
		b.text("request.id", p.CoreID(m.Request))
		b.text("request.phase", phase)
		b.int("request.num_prompt_tokens", m.Prompt)
		b.int("request.num_computed_tokens", m.Computed)
		b.int("request.num_output_tokens", m.OutputTokens)
		b.int("request.num_preemptions", m.Preemptions)
		b.int("request.scheduled_tokens_this_step", m.New)
		b.int("kv.blocks_allocated_gpu", m.Blocks)
		b.int("kv.blocks_cached_gpu", m.Registered)
		if m.CachedTokens < m.Prompt {
			b.int("request.effective_prompt_len", m.Prompt-m.CachedTokens)
		}
		b.end()
	}
}

// closeStepSpan ends the span; the next line carries it.
func (p *Dump) closeStepSpan(last, endWall int64) {
	s := &p.step
	var b buffer
	id := func(salt uint64) string {
		return fmt.Sprintf("%016x", mix(uint64(p.opt.Seed)^salt, uint64(s.sequence)))
	}
	spanHead(&b, id(5)+id(6), id(7), "", 256, "scheduler_steps_"+decimal(s.sequence), 1, s.openedWall, endWall)
	b.raw(`,"attributes":[`)
	b.int("scheduler.span_sequence", s.sequence)
	b.int("scheduler.step_range_start", s.first)
	b.int("scheduler.closure_interval", p.opt.ClosureInterval)
	b.int("scheduler.step_range_end", last)
	b.raw(`],"events":[`)
	var tail buffer
	tail.raw(`]`)
	spanTail(&tail, s.dropped)
	p.steps = append(p.steps, span{b, s.events[s.starts[s.dropped]:], tail})
	p.line(endWall, false)
}
