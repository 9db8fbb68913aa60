package extract

// This file joins the spans of one request. A core span is the scheduler's view of it, an API span
// that of the API process; both are written by the tracing fork of vLLM. A stock span is the only one
// that an unmodified vLLM writes. Only heads of these are in memory; the rest is read back from disk
// (packing.go).

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// joinSpans finds the API span of each core span: the span's parent, or else the API span from
// whose request id the core span's was made (apiIDs). A stock span is dropped if API or core spans have its
// trace id, because the tracing fork v0.3.0 writes both for one request.
func (c *collector) joinSpans() error {
	if len(c.apis) == 0 {
		return nil
	}
	bySpan, fork, err := c.apiSpans() // fork is nil if there are no stock spans to drop
	if err != nil {
		return err
	}
	var alone []int32 // cores whose parent is not among the API spans
	for i := range c.cores {
		core := &c.cores[i]
		head, err := c.pack.coreHead(core.row)
		if err != nil {
			return err
		}
		if fork != nil {
			fork[head.Key.Trace] = true
		}
		if parent, ok := bySpan[digestID(spanKey{head.Key.Trace, head.Parent})]; ok && head.HasParent {
			core.api = parent
			core.link = linkParent
			c.apis[parent].isLinked = true
		} else {
			alone = append(alone, int32(i))
		}
	}
	if err := c.linkByPrefix(alone); err != nil {
		return err
	}
	delete(fork, [16]byte{}) // spans without a trace id do not share a trace
	return c.dropStock(fork)
}

// apiSpans returns the index of each API span by the digest of its trace and span id. fork is the set
// of trace ids of API spans, which the tracing fork of vLLM wrote; nil if there are no stock spans, which
// alone are compared with it.
func (c *collector) apiSpans() (bySpan map[digest]int32, fork map[[16]byte]bool, err error) {
	bySpan = make(map[digest]int32, len(c.apis))
	if slices.ContainsFunc(c.apis, func(span api) bool { return span.isStock }) {
		fork = map[[16]byte]bool{}
	}
	for i := range c.apis {
		if c.apis[i].isStock {
			continue
		}
		head, err := c.pack.apiHead(c.apis[i].row)
		if err != nil {
			return nil, nil, err
		}
		if head.Key.Span != [8]byte{} {
			bySpan[digestID(head.Key)] = int32(i)
		}
		if fork != nil {
			fork[head.Key.Trace] = true
		}
	}
	return bySpan, fork, nil
}

// linkByPrefix links each of the core spans, given by index, to the API span from whose request id its own
// was made (apiIDs). Of several API spans with one id, the first is linked.
func (c *collector) linkByPrefix(cores []int32) error {
	if len(cores) == 0 {
		return nil
	}
	byID := map[digest]int32{}
	str := files.NewInterner()
	for i := range c.apis {
		if c.apis[i].isStock {
			continue
		}
		row, err := c.pack.getAPI(c.apis[i].row, str)
		if err != nil {
			return err
		}
		id := digestID(row.request.APIID.V)
		if _, isRepeated := byID[id]; !isRepeated && row.request.APIID.OK {
			byID[id] = int32(i)
		}
	}
	for _, i := range cores {
		core := &c.cores[i]
		for _, id := range apiIDs(string(c.ids.get(core.id))) {
			if at, ok := byID[digestID(id)]; ok {
				core.api = at
				core.link = linkPrefix
				c.apis[at].isLinked = true
				break
			}
		}
	}
	return nil
}

// dropStock drops the spans of an unmodified vLLM (isStock) in traces that also have spans of the
// instrumented vLLM: both describe the same request. fork is the set of ids of such traces. It
// counts each dropped span as a duplicate and renumbers the API spans that the core spans refer to.
func (c *collector) dropStock(fork map[[16]byte]bool) error {
	// Without core spans, stock spans alone have times of the engine, so they stay.
	if len(fork) == 0 || len(c.cores) == 0 {
		return nil
	}
	kept := c.apis[:0]
	str := files.NewInterner()
	moved := make([]int32, len(c.apis)) // the new index of each API span
	for i, p := range c.apis {
		moved[i] = int32(len(kept))
		if p.isStock {
			row, err := c.pack.getAPI(p.row, str)
			if err != nil {
				return err
			}
			if fork[row.Key.Trace] {
				c.acc.Keep(-row.Kept)
				c.acc.Drop(source.CodeDuplicate, row.Kept,
					source.Place{File: c.names[row.File].Name, Line: row.Line}, "stock span of request %s",
					row.request.APIID.V)
				continue
			}
		}
		kept = append(kept, p)
	}
	for i := range c.cores {
		if k := &c.cores[i]; k.api >= 0 {
			k.api = moved[k.api]
		}
	}
	c.apis = kept
	return nil
}

// apiIDs returns the API request ids from which a core's request id may have been made, the likeliest
// first (spec#wire-ids). vLLM puts "<k>_" before an API id for the k-th of n samples, and adds "-<i>"
// for the i-th prompt of a completion and "-<8 characters>" at random. So 0_cmpl-x-0-1a2b3c4d may be
// of cmpl-x-0 (a chat request of that id), of cmpl-x, or, if it has no such ending, of itself.
func apiIDs(core string) []string {
	id := core
	if i := strings.IndexByte(id, '_'); i > 0 && isDigits(id[:i]) {
		id = id[i+1:]
	}
	i := strings.LastIndexByte(id, '-')
	if i < 0 {
		return []string{id}
	}
	withoutRandom := id[:i]
	out := []string{withoutRandom}
	if j := strings.LastIndexByte(withoutRandom, '-'); j > 0 && isDigits(withoutRandom[j+1:]) {
		out = append(out, withoutRandom[:j])
	}
	return append(out, id)
}

// isDigits reports whether a text consists of decimal digits.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// assignAPIs assigns each API span to the engine run of its core span. An API span without a core
// span gets the engine run of the core span before it in the input. Both lists are in input order, so
// one pass through them is enough.
func (c *collector) assignAPIs() error {
	if len(c.engines) < 2 {
		return nil
	}
	for i := range c.cores {
		if k := &c.cores[i]; k.api >= 0 {
			c.apis[k.api].engine = k.engine
		}
	}
	last := int32(0) // engine of the last core before the API span
	at := 0          // index of the next core
	for i := range c.apis {
		span := &c.apis[i]
		if span.isLinked {
			continue
		}
		head, err := c.pack.apiHead(span.row)
		if err != nil {
			return err
		}
		for ; at < len(c.cores); at++ {
			core, err := c.pack.coreHead(c.cores[at].row)
			if err != nil {
				return err
			}
			if core.Order >= head.Order {
				break
			}
			last = c.cores[at].engine
		}
		span.engine = last
	}
	return nil
}

// requestKey is a row of the requests table before it is read from disk: its spans and the stamps
// by which rows are sorted, ns. Unknown stamps are unknownNs, so that they sort last.
type requestKey struct {
	arrived, queued, finished, start int64
	core, api                        int32 // -1 for none
}

const unknownNs = math.MaxInt64

// requestKeys returns the requests of one engine run in the order of the table. isWhole is true if
// the journey of each of them was recorded from QUEUED to FINISHED.
func (c *collector) requestKeys(engine int32) (keys []requestKey, isWhole bool, err error) {
	for i, key := range c.cores {
		if key.engine == engine {
			keys = append(keys, requestKey{core: int32(i), api: key.api})
		}
	}
	for i, p := range c.apis {
		if p.engine == engine && !p.isLinked {
			keys = append(keys, requestKey{core: -1, api: int32(i)})
		}
	}
	isWhole = true
	str := files.NewInterner()
	for i := range keys {
		key := &keys[i]
		r, _, err := c.requestRow(key.core, key.api, str)
		if err != nil {
			return nil, false, err
		}
		key.arrived = r.ArrivedNs.Or(unknownNs)
		key.queued = r.QueuedNs.Or(unknownNs)
		key.finished = r.FinishedNs.Or(unknownNs)
		key.start = r.StartWallNs.Or(unknownNs)
		// A request that was answered, so an engine ran it, although no core span of it was recorded.
		lacksCore := key.core < 0 && r.Source == trace.SourceFork && r.DepartedNs.OK && !lacksCoreSpans(r.Route.V)
		if r.DroppedEvents > 0 || lacksCore {
			isWhole = false
		}
	}
	stat.SortStable(keys, func(a, b requestKey) int {
		order := cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.queued, b.queued), cmp.Compare(a.start, b.start))
		if order != 0 || err != nil { // ids are on disk, so they are only read where stamps are equal
			return order
		}
		order, err = c.compareIDs(a, b, str)
		return order
	})
	return keys, isWhole, err
}

// compareIDs returns the order of requests with equal stamps: by the ids of their core spans, then
// of their API spans.
func (c *collector) compareIDs(a, b requestKey, str *files.Interner) (int, error) {
	var coreIDs, apiIDs [2]string // of a and b; "" without such a span
	for i, k := range []requestKey{a, b} {
		if k.core >= 0 {
			coreIDs[i] = string(c.ids.get(c.cores[k.core].id))
		}
		if k.api >= 0 {
			p, err := c.pack.getAPI(c.apis[k.api].row, str)
			if err != nil {
				return 0, err
			}
			apiIDs[i] = p.request.APIID.V + "\x00" + string(p.Key.Span[:]) // ids may repeat, span ids do not
		}
	}
	return cmp.Or(cmp.Compare(coreIDs[0], coreIDs[1]), cmp.Compare(apiIDs[0], apiIDs[1])), nil
}

// hexID returns a binary id in hexadecimal.
func hexID(b []byte) trace.Opt[string] { return trace.Some(hex.EncodeToString(b)) }

// requestRow returns a row of the requests table, made from the packed spans on disk: a core span
// with or without its API span, or an API or stock span alone. core and api are indexes in c.cores and
// c.apis, -1 for none. The row's overhead bounds and phase are added by the writer.
func (c *collector) requestRow(core, api int32, str *files.Interner) (r trace.Request, apiPrompt trace.Opt[int64], err error) {
	var p apiRow
	if api >= 0 {
		if p, err = c.pack.getAPI(c.apis[api].row, str); err != nil {
			return r, apiPrompt, err
		}
		apiPrompt = p.request.PromptTokens
	}
	if core < 0 {
		return c.requestOfAPI(&p, c.apis[api].isStock), apiPrompt, nil
	}
	span := &c.cores[core]
	row := &c.pack.row // reused for every request, to save memory
	if err := c.pack.getCore(span.row, row, str); err != nil {
		return r, apiPrompt, err
	}
	r = row.request
	r.CoreID = trace.Some(string(c.ids.get(span.id)))
	r.Source = trace.SourceFork
	r.Link = span.link.String()
	r.TraceID = hexID(row.Key.Trace[:])
	r.CoreSpanID = hexID(row.Key.Span[:])
	r.File = c.names[row.File].Name
	r.CoreLine = trace.Some(row.Line)
	if span.snap >= 0 {
		o, err := headOf(c.engines[span.snapBy].tables.seen, sightCode, span.snap)
		if err != nil {
			return r, apiPrompt, err
		}
		r.HitTokens = o.Hit
		r.CachedTokens = o.Hit
		// In the step that admitted the request, its computed tokens are those from the cache. They are
		// known even on a full hit, of which Hit is not.
		if o.Step == row.SchedStep {
			r.CachedTokens = trace.Some(o.Computed)
		}
	}
	if api >= 0 {
		fillAPI(&r, &p)
	}
	r.Success = success(&r)
	return r, apiPrompt, nil
}

// fillAPI copies the fields of an API span into the row of its request.
func fillAPI(r *trace.Request, p *apiRow) {
	a := &p.request
	r.APIID = a.APIID
	r.APISpanID = hexID(p.Key.Span[:])
	r.Route = a.Route
	if a.Model.OK {
		r.Model = a.Model
	}
	r.ArrivedNs = a.ArrivedNs
	r.HandoffNs = a.HandoffNs
	r.FirstResponseNs = a.FirstResponseNs
	r.DepartedNs = a.DepartedNs
	r.AbortedNs = a.AbortedNs
	r.AbortReason = a.AbortReason
	// Token counts of the engine are exact, so those of the API span are used only where those are missing.
	if !r.PromptTokens.OK {
		r.PromptTokens = a.PromptTokens
	}
	if !r.OutputTokens.OK {
		r.OutputTokens = a.OutputTokens
	}
	if !r.MaxTokens.OK {
		r.MaxTokens = a.MaxTokens
	}
	r.N = a.N
	r.StartWallNs = a.StartWallNs
	r.EndWallNs = a.EndWallNs
	r.APILine = trace.Some(p.Line)
}

// requestOfAPI returns the row of a request that has no core span.
func (c *collector) requestOfAPI(p *apiRow, isStock bool) trace.Request {
	r := p.request
	r.Source = trace.SourceFork
	r.Link = linkNone.String()
	r.File = c.names[p.File].Name
	r.APILine = trace.Some(p.Line)
	r.TraceID = hexID(p.Key.Trace[:])
	r.APISpanID = hexID(p.Key.Span[:])
	if isStock {
		r.Source = trace.SourceStock
		r.Success = trace.Some(r.OutputTokens.OK && r.OutputTokens.V > 0) // no event shows how it ended
		return r
	}
	r.Success = success(&r)
	return r
}

// success reports whether a request succeeded. The API span decides if there is one, because vLLM
// ends the core span of a request that reached a stop string as aborted, although the client got
// its answer (spec#wire-stop-strings).
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

// lacksCoreSpans reports whether requests of a route never have core spans, because vLLM does not pass the
// sampling header on there: all routes but /v1/completions and /v1/chat/completions. An unknown route
// is none of these.
func lacksCoreSpans(route string) bool {
	return !strings.HasSuffix(route, "completions") && route != ""
}
