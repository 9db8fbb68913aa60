package extract

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// How a core span found its API span.
const (
	linkParent = "parent"
	linkPrefix = "prefix"
	linkNone   = "none"
)

// join links core spans to API spans: by parentSpanId within the trace, else
// by the request id's prefix. Stock spans beside API and core spans of the
// same trace are dropped (fork v0.3.0 writes both).
func (c *collector) join() {
	bySpan := make(map[spanKey]int32, len(c.apis))
	byID := map[string]int32{}
	fork := map[[16]byte]bool{}
	for i, p := range c.apis {
		if p.isStock {
			continue
		}
		bySpan[p.key] = int32(i)
		fork[p.key.trace] = true
		if p.hasID {
			if _, dup := byID[p.id]; !dup {
				byID[p.id] = int32(i)
			}
		}
	}
	for _, k := range c.cores {
		fork[k.key.trace] = true
		k.linkWay = linkNone
		if k.hasParent {
			if at, ok := bySpan[spanKey{k.key.trace, k.parent}]; ok {
				k.apiIndex, k.linkWay = at, linkParent
			}
		}
		for _, id := range apiIDs(k.id) {
			if k.apiIndex >= 0 {
				break
			}
			if at, ok := byID[id]; ok {
				k.apiIndex, k.linkWay = at, linkPrefix
			}
		}
		if k.apiIndex >= 0 {
			c.apis[k.apiIndex].linked = true
		}
	}
	c.supersede(fork)
}

func (c *collector) supersede(fork map[[16]byte]bool) {
	kept := c.apis[:0]
	for _, p := range c.apis {
		if p.isStock && fork[p.key.trace] && len(c.cores) > 0 {
			c.acc.keep(-p.kept)
			c.acc.drop(CodeSuperseded, p.kept, place{file: c.names[p.file].name, line: p.line}, "stock span of request %s", p.id)
			continue
		}
		kept = append(kept, p)
	}
	if len(kept) != len(c.apis) {
		at := map[spanKey]int32{}
		for i, p := range kept {
			at[p.key] = int32(i)
		}
		for _, k := range c.cores {
			if k.apiIndex >= 0 {
				k.apiIndex = at[c.apis[k.apiIndex].key]
			}
		}
	}
	c.apis = kept
}

// apiIDs lists the API ids a core id may belong to (design/02 1.3): a leading
// "<k>_" (n > 1) and a trailing "-<8 characters>" go, then "-<i>" of
// completions.
func apiIDs(core string) []string {
	id := core
	if i := strings.IndexByte(id, '_'); i > 0 && isDigits(id[:i]) {
		id = id[i+1:]
	}
	i := strings.LastIndexByte(id, '-')
	if i < 0 {
		return []string{id}
	}
	chat := id[:i]
	out := []string{chat}
	if j := strings.LastIndexByte(chat, '-'); j > 0 && isDigits(chat[j+1:]) {
		out = append(out, chat[:j])
	}
	return append(out, id)
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return s != ""
}

// placeAPIs gives API spans to engines: with their core span, else by the
// nearest core span before them in the input.
func (c *collector) placeAPIs() {
	for _, k := range c.cores {
		if k.apiIndex >= 0 {
			c.apis[k.apiIndex].engine = k.engine
		}
	}
	last, at := int32(0), 0
	byOrder := slices.Clone(c.cores)
	slices.SortFunc(byOrder, func(a, b *core) int { return cmp.Compare(a.order, b.order) })
	for _, p := range c.apis {
		for at < len(byOrder) && byOrder[at].order < p.order {
			last = byOrder[at].engine
			at++
		}
		if !p.linked {
			p.engine = last
		}
	}
}

// requests makes the rows of one engine, journey events summarised, in the
// table's order. Overhead, phase and cached tokens are filled in by others.
func (c *collector) requests(engine int32) ([]trace.Request, error) {
	var rows []trace.Request
	str := newInterner()
	for _, k := range c.cores {
		if k.engine != engine {
			continue
		}
		row, err := c.coreRow(k, str)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for _, p := range c.apis {
		if p.engine == engine && !p.linked {
			rows = append(rows, c.apiRow(p))
		}
	}
	slices.SortStableFunc(rows, byArrival)
	return rows, nil
}

// byArrival orders requests by arrival, pick-up, wall-clock start and id;
// unknown stamps come last.
func byArrival(a, b trace.Request) int {
	last := func(v trace.Opt[int64]) int64 { return v.Or(math.MaxInt64) }
	return cmp.Or(
		cmp.Compare(last(a.ArrivedNs), last(b.ArrivedNs)), cmp.Compare(last(a.QueuedNs), last(b.QueuedNs)),
		cmp.Compare(last(a.StartWallNs), last(b.StartWallNs)),
		cmp.Compare(a.CoreID.V, b.CoreID.V), cmp.Compare(a.APIID.V, b.APIID.V), cmp.Compare(a.APISpanID.V, b.APISpanID.V))
}

func hexID(b []byte) trace.Opt[string] { return trace.Some(hex.EncodeToString(b)) }

func (c *collector) coreRow(k *core, str *interner) (trace.Request, error) {
	r := trace.Request{
		CoreID: trace.Some(k.id), Source: trace.SourceFork, Link: k.linkWay, TraceID: hexID(k.key.trace[:]), CoreSpanID: hexID(k.key.span[:]),
		StartWallNs: trace.Some(k.startNs), EndWallNs: trace.Some(k.endNs), DroppedEvents: k.dropped,
		File: c.names[k.file].name, CoreLine: trace.Some(k.line), CachedTokens: k.cached, HitTokens: k.hit, Model: k.model, MaxTokens: k.maxTokens,
	}
	events, err := k.journey(c.codec, str.get)
	if err != nil {
		return r, err
	}
	for i := range events {
		summarise(&r, &events[i])
	}
	if k.apiIndex >= 0 {
		c.fillAPI(&r, c.apis[k.apiIndex])
	}
	r.Success = success(&r)
	return r, nil
}

// summarise folds one journey event into the request.
func summarise(r *trace.Request, e *trace.JourneyEvent) {
	first := func(at, step *trace.Opt[int64]) {
		if !at.OK {
			*at, *step = e.TsNs, e.Step
		}
	}
	switch e.Kind {
	case trace.Queued:
		first(&r.QueuedNs, &r.QueuedStep)
	case trace.Scheduled:
		if e.ScheduleKind.Or("FIRST") == "FIRST" {
			first(&r.ScheduledNs, &r.ScheduledStep)
		}
	case trace.FirstToken:
		first(&r.FirstTokenNs, &r.FirstTokenStep)
	case trace.Finished:
		first(&r.FinishedNs, &r.FinishedStep)
		r.FinishStatus, r.OutputTokens = e.FinishStatus, e.DecodeDone
	}
	if e.PrefillTotal.OK {
		r.PromptTokens = e.PrefillTotal
	}
	if e.DecodeMax.OK {
		r.MaxTokens = e.DecodeMax
	}
	if e.Preemptions.OK {
		r.Preemptions = e.Preemptions
	}
}

// fillAPI adds what the API process knew.
func (c *collector) fillAPI(r *trace.Request, p *api) {
	r.APIID = trace.Opt[string]{V: p.id, OK: p.hasID}
	r.APISpanID = hexID(p.key.span[:])
	if !r.TraceID.OK {
		r.TraceID = hexID(p.key.trace[:])
	}
	r.Route = p.route
	if p.model.OK {
		r.Model = p.model
	}
	r.ArrivedNs, r.HandoffNs, r.FirstResponseNs = p.stamps[apiArrived], p.stamps[apiHandoff], p.stamps[apiFirst]
	r.DepartedNs, r.AbortedNs, r.AbortReason = p.stamps[apiDeparted], p.stamps[apiAborted], p.reason
	if !r.PromptTokens.OK {
		r.PromptTokens = p.prompt
	}
	if !r.OutputTokens.OK {
		r.OutputTokens = p.outputs
	}
	if !r.MaxTokens.OK {
		r.MaxTokens = p.max
	}
	r.N = p.n
	r.StartWallNs, r.EndWallNs = trace.Some(p.startNs), trace.Some(p.endNs)
	r.APILine = trace.Some(p.line)
}

// apiRow is a request without a core span, or a stock span.
func (c *collector) apiRow(p *api) trace.Request {
	r := trace.Request{Source: trace.SourceFork, Link: linkNone, File: c.names[p.file].name}
	c.fillAPI(&r, p)
	if !p.isStock {
		r.Success = success(&r)
		return r
	}
	r.Source = trace.SourceStock
	for i, dst := range []*trace.Opt[float64]{&r.StockTTFTUs, &r.StockE2EUs, &r.StockQueueUs, &r.StockPrefillUs, &r.StockDecodeUs, &r.StockInferUs} {
		if p.stock[i].OK {
			*dst = trace.Some(p.stock[i].V * 1e6)
		}
	}
	r.Success = trace.Some(p.outputs.OK && p.outputs.V > 0)
	return r
}

// success is judged from the API span: a stop string ends the core span as
// aborted although the client got its answer.
func success(r *trace.Request) trace.Opt[bool] {
	switch {
	case r.DepartedNs.OK:
		return trace.Some(true)
	case r.AbortedNs.OK:
		return trace.Some(false)
	case r.FinishStatus.OK:
		return trace.Some(r.FinishStatus.V == trace.FinishStopped || r.FinishStatus.V == trace.FinishLength)
	}
	return trace.Opt[bool]{}
}
