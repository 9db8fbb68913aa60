package pairing

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// This file finds the pass in which each request's prompt ended, by counting alone: no clock
// of the log need agree with the clients' (spec#counted-hits).
//
// Chunks of two passes closer than 1 ms or half a pass get the bounds of either. The last logged hit rate of one
// engine is the share of all tokens of up to 1000 requests; 0 % throughout means none.

// Rules are what of the engine decides how prompts stand in passes.
type Rules struct {
	Block       int64 // tokens of a KV block
	Budget      int64 // max_num_batched_tokens
	Chunked     bool  // a full pass may cut its last prompt
	Caching     bool  // prompts may begin in the prefix cache
	Speculative bool  // generation tokens are not outputs
	Ahead       bool  // a pass is planned before the tokens of the last one are known
	async       bool  // a request counts as context until its first token came back
}

// mostEngines share one log; the ways to give requests to more are too many.
const mostEngines = 8

// workLine is a pass with context requests, and the decodes behind it up to the next of its
// engine.
type workLine struct {
	engine, at     int // and place among its passes
	index          int64
	order, before  int64 // place in the log; that of the engine's pass before it
	ctx, tokens    int64
	hits           int64 // of its prompts as SGLang counts them, else -1
	gen            int64 // generation tokens of this pass and of those behind it
	full, fresh    bool  // the budget is spent; nothing ran on into it
	gapBefore, gap bool  // passes are lost just before it; behind it
	ones           bool  // one token each, behind a pass with prompts of an asynchronous engine: they may be those prompts
	stampNs        trace.Opt[int64]
	stampStep      int64
	elapsedUs      float64
}

// Passes holds of one log what pairing needs. Add takes its iterations in order.
type Passes struct {
	rules   Rules
	engines []engineLog
	lines   []workLine
	order   int64
	head    bool  // the log begins within the work of an engine
	reqs    int64 // generation requests of all passes
	tokens  int64 // their tokens
}

// engineLog is the last pass of an engine.
type engineLog struct {
	any      bool
	index    int64
	order    int64
	prefills int64   // of the last pass that may decode in the next
	line     int     // its last line with context requests; -1: none
	left     []int64 // requests that have no pass behind each, of several engines
}

// NewPasses reads the iterations of n engines.
func NewPasses(rules Rules, n int) *Passes {
	p := &Passes{rules: rules, engines: make([]engineLog, n)}
	for i := range p.engines {
		p.engines[i].line = -1
	}
	return p
}

// Add takes the next iteration of an engine.
func (p *Passes) Add(engine int, it *trace.Iteration) {
	e := &p.engines[engine]
	counts := reconstruct.Counts{
		Prefills:      it.ContextReqs,
		PrefillTokens: it.ContextTokens,
		Decodes:       it.GenerationReqs,
		DecodeTokens:  it.GenerationTokens,
	}
	if p.rules.async {
		first := counts.FirstDecodes(e.prefills)
		if first == counts.Prefills && counts.PrefillTokens > first {
			first = 0 // one of them has more than one token, and which one is not known
		}
		counts = counts.Relabel(first)
	}
	ctx := counts.Prefills
	tokens := counts.PrefillTokens
	reqs := counts.Decodes
	gen := counts.DecodeTokens
	p.order++
	p.reqs, p.tokens = p.reqs+reqs, p.tokens+gen
	if len(p.engines) > 1 {
		if n := len(e.left); n > 0 {
			e.left[n-1] -= reqs
		}
		e.left = append(e.left, ctx+reqs)
	}
	lost := e.any && it.Index != e.index+1 || !e.any && it.Index > 0
	full := p.rules.Chunked && counts.MayCutPrompt(p.rules.Budget)
	hits := int64(-1)
	if it.Form == trace.IterationSGLang {
		hits = it.ContextKVTokens.Or(-1)
	}
	switch {
	case ctx > 0:
		p.lines = append(p.lines, workLine{engine: engine, at: len(e.left) - 1, index: it.Index, order: p.order, before: e.order, ctx: ctx,
			tokens: tokens, hits: hits, gen: gen, full: full, fresh: reqs == 0,
			ones: p.rules.async && e.prefills > 0 && tokens == ctx, gapBefore: lost, stampNs: it.StampNs,
			stampStep: it.StampStepNs.Or(1e9), elapsedUs: it.ElapsedUs})
		e.line = len(p.lines) - 1
	case e.line < 0:
		p.head = p.head || gen > 0
	default:
		l := &p.lines[e.line]
		l.gen, l.gap = l.gen+gen, l.gap || lost
	}
	e.prefills = 0
	if ctx > 0 {
		if e.prefills = ctx; full {
			e.prefills--
		}
	}
	e.any = true
	e.index = it.Index
	e.order = p.order
}

// stretch is a run of lines at whose ends no engine had work.
type stretch struct {
	from, to       int // of the lines
	ctx, gen, full int64
	broken         bool // passes are lost in it, before it or behind it
}

// stretches cuts the lines where every engine was idle.
func (p *Passes) stretches() []stretch {
	var out []stretch
	for i := range p.lines {
		l := &p.lines[i]
		if i == 0 || p.idleAt(i) {
			if l.gapBefore && len(out) > 0 {
				out[len(out)-1].broken = true
			}
			cut := len(out) > 0 && out[len(out)-1].broken && p.lines[i-1].full // it may go on here
			out = append(out, stretch{from: i, broken: cut || l.gapBefore || i == 0 && (p.head || !l.fresh)})
		}
		s := &out[len(out)-1]
		s.to = i + 1
		s.ctx += l.ctx
		s.gen += l.gen
		s.broken = s.broken || l.gap || l.gapBefore
		if l.full {
			s.full++
		}
	}
	return out
}

// idleAt says that no engine had work before the i-th line.
func (p *Passes) idleAt(i int) bool {
	if !p.lines[i].fresh {
		return false
	}
	if len(p.engines) == 1 {
		return true
	}
	var seen [mostEngines]bool
	left := len(p.engines)
	for k := i; k < len(p.lines) && left > 0; k++ {
		l := &p.lines[k]
		if seen[l.engine] {
			continue
		}
		if !l.fresh || l.before >= p.lines[i].order {
			return false
		}
		seen[l.engine] = true
		left--
	}
	for e := range p.engines {
		if !seen[e] && p.engines[e].order >= p.lines[i].order {
			return false
		}
	}
	return true
}

// prompt is one client request as the pairing needs it.
type prompt struct {
	row, rank   int // of the observed requests; in order of their sends
	tokens, out int64
	firstNs     int64
	cached      trace.Opt[int64] // as the server's usage says
	most        int64            // tokens that may have been in the cache
}

// period is a stretch of time in which some request was open at its client.
type period struct {
	prompts []prompt // in order of their first chunks
	orders  [][]prompt
	gen     int64 // tokens behind the first ones
	bad     bool  // holds requests of which nobody knows what the engine did
	failed  bool  // holds requests that may never have run
}

// periodsOf cuts the clients' requests where none was open.
func periodsOf(rows []trace.ObservedRequest, rules *Rules) []period {
	type open struct {
		row      int
		from, to int64
	}
	var all []open
	for i := range rows {
		r := &rows[i]
		from := r.SentNs()
		if from == 0 {
			from = r.FirstChunkNs.V
		}
		all = append(all, open{i, from, max(from, r.FirstChunkNs.V, r.LastChunkNs.V, r.EndNs.V)})
	}
	slices.SortStableFunc(all, func(a, b open) int { return cmp.Compare(a.from, b.from) })
	var out []period
	until := int64(math.MinInt64)
	for _, o := range all {
		if o.from > until {
			out = append(out, period{})
		}
		until = max(until, o.to)
		out[len(out)-1].add(rows, o.row, rules)
	}
	for i := range out {
		out[i].order()
	}
	return out
}

// order sorts the prompts by their first chunks; those that a client was late to read, as they were sent.
func (p *period) order() {
	slices.SortStableFunc(p.prompts, func(a, b prompt) int { return cmp.Compare(a.firstNs, b.firstNs) })
	sent, isOther := slices.Clone(p.prompts), false
	for from, to := 0, 0; from < len(sent); from = to {
		for to = from + 1; to < len(sent) && sent[to].firstNs-sent[to-1].firstNs < closeNs; to++ {
			isOther = isOther || sent[to].rank < sent[to-1].rank
		}
		slices.SortFunc(sent[from:to], func(a, b prompt) int { return a.rank - b.rank })
	}
	if p.orders = [][]prompt{p.prompts}; isOther {
		p.orders = append(p.orders, sent)
	}
}

func (p *period) add(rows []trace.ObservedRequest, row int, rules *Rules) {
	r := &rows[row]
	if !r.FirstChunkNs.OK && r.Success.OK && !r.Success.V {
		p.failed = true // it may never have run; the counts tell
		return
	}
	if !r.FirstChunkNs.OK || r.PromptTokens.V < 1 || r.OutputTokens.V < 1 || r.N.Or(1) > 1 {
		p.bad = true
		return
	}
	q := prompt{row: row, rank: len(p.prompts), tokens: r.PromptTokens.V, out: r.OutputTokens.V, firstNs: r.FirstChunkNs.V,
		cached: r.CachedTokens, most: rules.maxCached(r.PromptTokens.V)}
	p.prompts = append(p.prompts, q)
	p.gen = p.gen + q.out - 1
}

// maxCached is how many tokens of a prompt may come from the prefix cache.
func (r *Rules) maxCached(tokens int64) int64 {
	if !r.Caching {
		return 0
	}
	return reconstruct.MaxCachedBlocks(tokens, r.Block) * r.Block
}

// match is a period whose passes are found.
type match struct {
	period   int
	from, to int // of the stretches
	chains   []chain
}

// Rules of the search for the passes of a period that does not follow the one before.
const (
	mostPeriods   = 2000
	mostStretches = 2000
	aMatch        = 1 << 20 // a request that is paired, in things passed over
)

// matches goes through periods and stretches at once. A period takes stretches that hold as
// many prompts and generation tokens as it has. Where that fails, those are passed over that
// leave most requests paired, first such beside lost passes.
func (p *Passes) matches(periods []period, s []stretch) (out []match) {
	for j, i := 0, 0; j < len(periods); {
		chains, end := p.block(&periods[j], s, i, i)
		if end >= 0 {
			out = append(out, match{j, i, end, chains})
			j, i = j+1, end
			continue
		}
		path := p.search(periods[j:min(len(periods), j+mostPeriods)], s, i)
		if len(path) == 0 {
			return out
		}
		at := j
		for _, m := range path {
			chains, end := p.block(&periods[at+m[0]], s, m[1], m[1])
			out = append(out, match{at + m[0], m[1], end, chains})
			j, i = at+m[0]+1, end
		}
		if j-at < mostPeriods/2 && at+mostPeriods >= len(periods) {
			return out
		}
	}
	return out
}

// search finds the best way through the next stretches from i on: pairs of a period and its
// first stretch.
func (p *Passes) search(periods []period, all []stretch, i int) (path [][2]int) {
	s := all[:min(len(all), i+mostStretches)]
	wide := len(s) - i + 1
	score := make([]int64, (len(periods)+1)*wide)
	end := make([]int32, (len(periods)+1)*wide)
	at := func(j, k int) int { return j*wide + k - i }
	for j := len(periods); j >= 0; j-- {
		for k := len(s); k >= i; k-- {
			best, e := int64(math.MinInt64), int32(-1)
			if j == len(periods) && k == len(s) {
				best = 0
			}
			if j < len(periods) {
				if best = score[at(j+1, k)]; k > 0 && k < len(s) && !s[k].broken && !s[k-1].broken {
					best--
				}
			}
			if k < len(s) {
				cost := int64(1)
				if s[k].broken {
					cost = 0
				}
				if v := score[at(j, k+1)] - cost; v > best {
					best, e = v, -2
				}
			}
			if j < len(periods) && k < len(s) {
				if _, to := p.block(&periods[j], s, k, k); to >= 0 {
					if v := score[at(j+1, to)] + aMatch*int64(len(periods[j].prompts)); v >= best {
						best, e = v, int32(to)
					}
				}
			}
			score[at(j, k)], end[at(j, k)] = best, e
		}
	}
	for j, k := 0, i; j < len(periods) || k < len(s); {
		switch e := end[at(j, k)]; e {
		case -1:
			j++
		case -2:
			k++
		default:
			path = append(path, [2]int{j, k})
			j, k = j+1, int(e)
		}
	}
	return path
}

// block takes stretches from k on, those up to beyond among them, for a period: as many as hold
// its prompts and its tokens, and pairs them. The end is -1 where none do.
func (p *Passes) block(q *period, s []stretch, k, beyond int) ([]chain, int) {
	n := int64(len(q.prompts))
	if n == 0 && !q.bad {
		return nil, k
	}
	ctx := int64(0)
	gen := int64(0)
	full := int64(0)
	spare := int64(0)
	if p.rules.async || p.rules.Ahead { // plans one token more before it sees that an answer stopped
		spare = n
	}
	for e := k; e < len(s) && !s[e].broken && !q.bad; e++ {
		ctx += s[e].ctx
		gen += s[e].gen
		full += s[e].full
		if ctx-full > n || q.failed && full > 0 || !p.rules.Speculative && gen > q.gen+spare {
			break
		}
		if e >= beyond && ctx >= n && (p.rules.Speculative || gen >= q.gen) {
			for _, prompts := range q.orders {
				if chains, ok := p.pair(prompts, s[k].from, s[e].to); ok {
					return chains, e + 1
				}
			}
		}
	}
	return nil, -1
}
