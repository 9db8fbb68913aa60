package extract

import (
	"math"
	"path/filepath"
	"strconv"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// spanKey identifies a span (OTLP: trace id and span id together).
type spanKey struct {
	trace [16]byte
	span  [8]byte
}

// core is one engine request as collected: its ids, and its journey events
// packed, since most requests of a long dump are finished and only wait for
// the end.
type core struct {
	id        string
	key       spanKey
	parent    [8]byte
	hasParent bool
	startNs   int64
	endNs     int64
	dropped   int64
	resource  uint64
	order     int64 // position of the span in the input
	engine    int32
	file      int32
	line      int64
	lastNs    int64 // last event, monotonic
	schedNs   int64 // first SCHEDULED
	schedStep int64
	lastStep  int64 // step of the last event
	events    []byte
	ends      []uint32
	// from snapshots
	cached    trace.Opt[int64]
	hit       trace.Opt[int64]
	apiIndex  int32
	linkWay   string
	oldForm   bool // llm_request of the oldest forks: API and core in one span
	model     trace.Opt[string]
	maxTokens trace.Opt[int64]
}

// api is one llm_request span of the API process, or a stock span.
type api struct {
	key      spanKey
	id       string
	hasID    bool
	route    trace.Opt[string]
	model    trace.Opt[string]
	stamps   [numEvents]trace.Opt[int64] // apiArrived .. apiAborted
	reason   trace.Opt[string]
	prompt   trace.Opt[int64]
	outputs  trace.Opt[int64]
	max, n   trace.Opt[int64]
	stock    [6]trace.Opt[float64]
	startNs  int64
	endNs    int64
	order    int64
	file     int32
	line     int64
	resource uint64
	kept     int64
	linked   bool
	isStock  bool
	engine   int32
}

// collector gathers the spans of one run folder in input order.
type collector struct {
	names   []input
	acc     *account
	mem     *memory
	stage   string // folder of the tables while they are written
	format  table.Format
	seen    map[spanKey]uint64
	cores   []*core
	byID    map[string]int32
	apis    []*api
	engines []*engine
	order   int64
	codec   *table.Codec[trace.JourneyEvent]
	offsets offsetSample
	maxWall int64
}

func newCollector(names []input, acc *account, mem *memory, format table.Format) *collector {
	return &collector{names: names, acc: acc, mem: mem, stage: mem.dir, format: format, seen: map[spanKey]uint64{}, byID: map[string]int32{}, codec: table.NewCodec[trace.JourneyEvent]()}
}

// engineDir is where the tables of the n-th engine found are written.
func (c *collector) engineDir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// tablesDir is where the tables of an engine, as partition numbers them, stand.
func (c *collector) tablesDir(engine int) string {
	if len(c.engines) == 0 {
		return c.engineDir(0)
	}
	return c.engines[engine].tables.dir
}

// finishSteps completes the tables of steps and snapshots.
func (c *collector) finishSteps() error {
	for _, e := range c.engines {
		if err := e.tables.close(); err != nil {
			return err
		}
	}
	c.cached()
	return nil
}

// cached tells requests their cached tokens: num_computed_tokens of the first
// snapshot with scheduled tokens when that is the step that admitted them,
// else what effective_prompt_len says (both are fixed at admission).
func (c *collector) cached() {
	for at, k := range c.cores {
		if c.byID[k.id] != int32(at) {
			continue
		}
		for _, e := range c.engines {
			o := e.tables.owners[k.id]
			if o == nil || !o.isSeen {
				continue
			}
			k.hit, k.cached = o.hit, o.hit
			if o.step == k.schedStep {
				k.cached = trace.Some(o.computed)
			}
			break
		}
	}
}

// close gives up what is still being written.
func (c *collector) close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.close()
}

func (c *collector) at(s *span) place { return place{file: c.names[s.file].name, line: s.line} }

// add takes the result of one batch.
func (c *collector) add(p *parsed) error {
	c.acc.take(p, c.names[p.batch.file].name)
	for _, s := range p.msg.spans {
		if err := c.span(s); err != nil {
			return err
		}
	}
	return c.acc.err
}

// span takes one span.
func (c *collector) span(s *span) error {
	c.order++
	a := c.acc
	a.seen(s)
	if s.class == classForeign {
		a.drop(CodeForeignScope, 1+s.events(), c.at(s), "span %q of scope %q", s.name, s.scope)
		return nil
	}
	if s.farTime {
		a.drop(CodeBadAttribute, 1+s.events(), c.at(s), "%s: a time of more than 63 bits", s.name)
		return nil
	}
	key := spanKey{s.traceID, s.spanID}
	if first, dup := c.seen[key]; dup {
		code := CodeDuplicate
		if first != s.hash {
			code = CodeConflict
		}
		a.duplicates++
		a.drop(code, 1+s.events(), c.at(s), "span %x of trace %x (%s)", s.spanID, s.traceID, s.name)
		return nil
	}
	c.seen[key] = s.hash
	a.lostEvents += s.droppedEvents
	for _, n := range s.others {
		a.drop(CodeUnknownEvent, 1, c.at(s), "event %q in %s", n, s.name)
	}
	for _, f := range s.faults {
		a.drop(f.code, 1, c.at(s), "%s", f.msg)
	}
	c.maxWall = max(c.maxWall, s.endNs)
	switch s.class {
	case classCore:
		return c.core(s, key)
	case classStep:
		return c.steps(s)
	}
	c.api(s, key)
	return nil
}

// core collects an engine request.
func (c *collector) core(s *span, key spanKey) error {
	if !s.requestID.OK {
		c.acc.drop(CodeMissingID, 1+int64(len(s.journey)), c.at(s), "llm_core without gen_ai.request.id")
		return nil
	}
	id := s.requestID.V
	k := &core{}
	if at, ok := c.byID[id]; ok && c.cores[at].resource == s.resource {
		k = c.cores[at]
	} else {
		*k = core{id: id, key: key, parent: s.parent, hasParent: s.hasParent, startNs: s.startNs, resource: s.resource, order: c.order,
			file: s.file, line: s.line, apiIndex: -1, lastNs: math.MinInt64, schedStep: -1, oldForm: s.name == "llm_request", model: s.model, maxTokens: s.maxTokens}
		c.byID[id] = int32(len(c.cores))
		c.cores = append(c.cores, k)
	}
	k.endNs = max(k.endNs, s.endNs)
	k.dropped += s.droppedEvents
	for i := range s.journey {
		ev := &s.journey[i]
		ev.CoreID = ""
		row := c.codec.Append(nil, ev)
		if k.holds(row) {
			c.acc.drop(CodeRepeatedEvent, 1, c.at(s), "%s of %s", ev.Kind, id)
			continue
		}
		k.take(ev, row)
		c.acc.keep(1)
		if ev.TsNs.OK {
			c.offsets.add(ev.WallNs - ev.TsNs.V)
		}
	}
	c.acc.keep(1)
	return nil
}

// holds reports whether the request has the same event already.
func (k *core) holds(row []byte) bool {
	from := uint32(0)
	for _, end := range k.ends {
		if string(k.events[from:end]) == string(row) {
			return true
		}
		from = end
	}
	return false
}

func (k *core) take(ev *trace.JourneyEvent, row []byte) {
	k.events = append(k.events, row...)
	k.ends = append(k.ends, uint32(len(k.events)))
	if ev.TsNs.OK {
		k.lastNs = max(k.lastNs, ev.TsNs.V)
	}
	if ev.Step.OK {
		k.lastStep = ev.Step.V
	}
	if ev.Kind == trace.Scheduled && k.schedStep < 0 && ev.Step.OK && ev.TsNs.OK {
		k.schedNs, k.schedStep = ev.TsNs.V, ev.Step.V
	}
}

// journey unpacks the events of a request in emission order.
func (k *core) journey(codec *table.Codec[trace.JourneyEvent], intern func([]byte) string) ([]trace.JourneyEvent, error) {
	out := make([]trace.JourneyEvent, len(k.ends))
	from := uint32(0)
	for i, end := range k.ends {
		if err := codec.Decode(k.events[from:end], &out[i], intern); err != nil {
			return nil, err
		}
		out[i].CoreID = k.id
		from = end
	}
	return out, nil
}

// api collects a request as the API process saw it, or a stock span.
func (c *collector) api(s *span, key spanKey) {
	p := &api{key: key, id: s.requestID.V, hasID: s.requestID.OK, route: s.route, model: s.model, prompt: s.prompt, outputs: s.completion,
		max: s.maxTokens, n: s.n, stock: s.stock, startNs: s.startNs, endNs: s.endNs, order: c.order, file: s.file, line: s.line,
		resource: s.resource, isStock: s.class == classStock, kept: 1}
	for _, e := range s.api {
		if p.stamps[e.name].OK {
			c.acc.drop(CodeRepeatedEvent, 1, c.at(s), "%s of %s", eventNames[e.name], p.id)
			continue
		}
		p.stamps[e.name] = trace.Some(e.tsNs)
		if e.name == apiAborted {
			p.reason = e.reason
		}
		p.kept++
	}
	c.acc.keep(p.kept)
	c.apis = append(c.apis, p)
}

// offsetSample estimates wall - monotonic from journey events: at most 4096 of
// them, evenly thinned as more arrive.
type offsetSample struct {
	vals  []int64
	n     int64
	every int64
}

func (o *offsetSample) add(v int64) {
	if o.every == 0 {
		o.every = 1
	}
	if o.n%o.every == 0 {
		if len(o.vals) == 4096 {
			for i := range 2048 {
				o.vals[i] = o.vals[2*i]
			}
			o.vals = o.vals[:2048]
			o.every *= 2
		}
		if o.n%o.every == 0 {
			o.vals = append(o.vals, v)
		}
	}
	o.n++
}
