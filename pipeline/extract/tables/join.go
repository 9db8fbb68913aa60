package tables

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/account"
	"github.com/blis-train/blis-train/pipeline/extract/spool"
	"github.com/blis-train/blis-train/trace"
)

// join links core spans to API spans: by parentSpanId within the trace, else
// by the request id's prefix. Stock spans beside API and core spans of the
// same trace are dropped (fork v0.3.0 writes both).
func (c *Collector) join() {
	bySpan := make(map[spanKey]int32, len(c.apis))
	byID := map[string]int32{}
	fork := map[[16]byte]bool{}
	for i, p := range c.apis {
		if p.isStock {
			continue
		}
		if p.key.span != [8]byte{} {
			bySpan[p.key] = int32(i)
		}
		fork[p.key.trace] = true
		if p.hasID {
			if _, dup := byID[p.id]; !dup {
				byID[p.id] = int32(i)
			}
		}
	}
	for _, k := range c.cores {
		fork[k.key.trace] = true
		if k.hasParent {
			if at, ok := bySpan[spanKey{k.key.trace, k.parent}]; ok {
				k.apiIndex, k.link = at, linkParent
			}
		}
		if k.apiIndex < 0 {
			k.byPrefix(byID)
		}
		if k.apiIndex >= 0 {
			c.apis[k.apiIndex].linked = true
		}
	}
	delete(fork, [16]byte{}) // no trace id is not a common one
	c.supersede(fork)
}

// byPrefix links a request by the ids its own one may begin with.
func (k *core) byPrefix(byID map[string]int32) {
	for _, id := range apiIDs(k.id) {
		if at, ok := byID[id]; ok {
			k.apiIndex, k.link = at, linkPrefix
			return
		}
	}
}

func (c *Collector) supersede(fork map[[16]byte]bool) {
	kept := c.apis[:0]
	moved := make([]int32, len(c.apis)) // where each of them is afterwards
	for i, p := range c.apis {
		moved[i] = int32(len(kept))
		if p.isStock && fork[p.key.trace] && len(c.cores) > 0 {
			c.acc.Keep(-p.kept)
			c.acc.Drop(account.CodeSuperseded, p.kept, account.Place{File: c.names[p.file].Name, Line: p.line}, "stock span of request %s", p.id)
			continue
		}
		kept = append(kept, p)
	}
	for _, k := range c.cores {
		if k.apiIndex >= 0 {
			k.apiIndex = moved[k.apiIndex]
		}
	}
	c.apis = kept
}

// apiIDs lists the API ids a core id may belong to (spec#wire-ids): a leading
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
func (c *Collector) placeAPIs() {
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

// requestKey names a row of the requests table and what orders it; unknown
// stamps are unknownNs.
type requestKey struct {
	arrived, queued, finished, start int64
	core                             *core
	api                              *api
}

const unknownNs = math.MaxInt64

// requestKeys lists the requests of one engine in the table's order. whole
// says that none of them lost a journey.
func (c *Collector) requestKeys(engine int32) (keys []requestKey, whole bool, err error) {
	str := spool.NewInterner()
	whole = true
	add := func(k *core, p *api) {
		var r trace.Request
		if err == nil {
			r, err = c.requestRow(k, p, str)
		}
		keys = append(keys, requestKey{r.ArrivedNs.Or(unknownNs), r.QueuedNs.Or(unknownNs), r.FinishedNs.Or(unknownNs),
			r.StartWallNs.Or(unknownNs), k, p})
		whole = whole && r.DroppedEvents == 0 && !(k == nil && r.Source == trace.SourceFork && r.DepartedNs.OK && !isPooling(r.Route.V))
	}
	for _, k := range c.cores {
		if k.engine == engine {
			add(k, c.apiOf(k))
		}
	}
	for _, p := range c.apis {
		if p.engine == engine && !p.linked {
			add(nil, p)
		}
	}
	slices.SortStableFunc(keys, byArrival)
	return keys, whole, err
}

func (c *Collector) apiOf(k *core) *api {
	if k.apiIndex < 0 {
		return nil
	}
	return c.apis[k.apiIndex]
}

// byArrival orders requests by arrival, pick-up, wall-clock start and ids;
// unknown stamps come last.
func byArrival(a, b requestKey) int {
	coreID := func(k *core) string {
		if k == nil {
			return ""
		}
		return k.id
	}
	apiID := func(p *api) string {
		if p == nil {
			return ""
		}
		return p.id + "\x00" + string(p.key.span[:])
	}
	if by := cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.queued, b.queued), cmp.Compare(a.start, b.start)); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(coreID(a.core), coreID(b.core)), cmp.Compare(apiID(a.api), apiID(b.api)))
}

func hexID(b []byte) trace.Opt[string] { return trace.Some(hex.EncodeToString(b)) }

// requestRow unpacks a request: a core span with or without its API span, or
// an API or stock span alone. Overhead and phase are filled in by others.
func (c *Collector) requestRow(k *core, p *api, str *spool.Interner) (r trace.Request, err error) {
	if k == nil {
		return c.apiRow(p, str)
	}
	if err := c.pack.getCore(k.row, &r, str); err != nil {
		return r, err
	}
	r.CoreID, r.Source, r.Link = trace.Some(k.id), trace.SourceFork, k.link.String()
	r.TraceID, r.CoreSpanID = hexID(k.key.trace[:]), hexID(k.key.span[:])
	r.File, r.CoreLine = c.names[k.file].Name, trace.Some(k.line)
	if o := k.snap; o != nil {
		r.HitTokens, r.CachedTokens = o.hit, o.hit
		if o.step == k.schedStep {
			r.CachedTokens = trace.Some(o.computed)
		}
	}
	if p != nil {
		err = c.fillAPI(&r, p, str)
	}
	r.Success = success(&r)
	return r, err
}

// fillAPI adds what the API process knew.
func (c *Collector) fillAPI(r *trace.Request, p *api, str *spool.Interner) error {
	var a trace.Request
	if err := c.pack.getAPI(p.row, &a, str); err != nil {
		return err
	}
	r.APIID = trace.Opt[string]{V: p.id, OK: p.hasID}
	r.APISpanID = hexID(p.key.span[:])
	r.Route = a.Route
	if a.Model.OK {
		r.Model = a.Model
	}
	r.ArrivedNs, r.HandoffNs, r.FirstResponseNs = a.ArrivedNs, a.HandoffNs, a.FirstResponseNs
	r.DepartedNs, r.AbortedNs, r.AbortReason = a.DepartedNs, a.AbortedNs, a.AbortReason
	for _, f := range [...]struct{ dst, src *trace.Opt[int64] }{{&r.PromptTokens, &a.PromptTokens}, {&r.OutputTokens, &a.OutputTokens},
		{&r.MaxTokens, &a.MaxTokens}} {
		if !f.dst.OK {
			*f.dst = *f.src
		}
	}
	r.N = a.N
	r.StartWallNs, r.EndWallNs = a.StartWallNs, a.EndWallNs
	r.APILine = trace.Some(p.line)
	return nil
}

// apiRow is a request without a core span, or a stock span.
func (c *Collector) apiRow(p *api, str *spool.Interner) (r trace.Request, err error) {
	if err := c.pack.getAPI(p.row, &r, str); err != nil {
		return r, err
	}
	r.Source, r.Link, r.File, r.APILine = trace.SourceFork, linkNone.String(), c.names[p.file].Name, trace.Some(p.line)
	r.APIID = trace.Opt[string]{V: p.id, OK: p.hasID}
	r.TraceID, r.APISpanID = hexID(p.key.trace[:]), hexID(p.key.span[:])
	if p.isStock {
		r.Source = trace.SourceStock
		r.Success = trace.Some(r.OutputTokens.OK && r.OutputTokens.V > 0)
		return r, nil
	}
	r.Success = success(&r)
	return r, nil
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

// isPooling says that a route never has core spans: the sampling header is
// not passed on there.
func isPooling(route string) bool {
	return !strings.HasSuffix(route, "completions") && route != ""
}
