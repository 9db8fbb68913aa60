package pairing

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Pairing is what the passes of a log say of each request of its clients.
type Pairing struct {
	Paired int
	rows   []trace.ObservedRequest
	rules  Rules
	passes *Passes
	chains []chain
	of     []int32          // chain of each row, -1: none
	deltas map[string]int64 // hits that the server counted over a phase
}

// Pair finds the passes of each row's prompt. read calls its argument with the
// iterations of the log's engines in order. Labels of asynchronous engines are tried too; the
// better one stands.
func Pair(rows []trace.ObservedRequest, rules Rules, engines int,
	read func(add func(engine int, it *trace.Iteration)) error) (*Pairing, error) {
	if engines > mostEngines || len(rows) == 0 {
		return nil, nil
	}
	var best *Pairing
	for _, rules.async = range []bool{false, true} {
		p := NewPasses(rules, engines)
		if err := read(p.Add); err != nil {
			return nil, err
		}
		if g := pairAll(rows, p); best == nil || g.Paired > best.Paired {
			best = g
		}
	}
	return best, nil
}

func pairAll(rows []trace.ObservedRequest, p *Passes) *Pairing {
	g := &Pairing{rows: rows, rules: p.rules, passes: p, of: slices.Repeat([]int32{-1}, len(rows))}
	periods := periodsOf(rows, &p.rules)
	s := p.stretches()
	for _, m := range p.sure(p.matches(periods, s), periods, s) {
		for _, c := range m.chains {
			if c.uncertain {
				continue
			}
			for _, q := range c.prompts {
				g.of[q.row] = int32(len(g.chains))
				g.Paired++
			}
			g.chains = append(g.chains, c)
		}
	}
	return g
}

// bounds are what a request may have had in the cache.
type bounds struct{ lo, hi int64 }

// alone bounds the hits of a prompt that was cut and then went on alone: what those passes
// computed of it was in no cache.
func (g *Pairing) alone(c *chain) {
	computed := int64(0)
	for i := len(c.lines) - 1; i > 0 && g.passes.lines[c.lines[i]].ctx == 1; i-- {
		computed += g.passes.lines[c.lines[i]].tokens
	}
	if q := &c.prompts[len(c.prompts)-1]; computed > 0 {
		q.most = min(q.most, max(0, q.tokens-computed)/g.rules.Block*g.rules.Block)
	}
}

// bounds of the prompts of a chain by its sum.
func (c *chain) bounds() []bounds {
	most := c.most()
	return stat.Map(c.prompts, func(q prompt) bounds { return bounds{max(0, c.hits-(most-q.most)), min(q.most, c.hits)} })
}

// most is what the prompts of a chain may have had in the cache together.
func (c *chain) most() int64 { return stat.Sum(c.prompts, func(q prompt) int64 { return q.most }) }

// Chunks of two passes that come this close may have come in the other order.
const (
	closeNs    = 1_000_000
	closeShare = 0.5 // of the later pass
)

// loosen widens the bounds of prompts that may have changed places with one of another pass.
func (g *Pairing) loosen(all [][]bounds) {
	type place struct {
		chain, at int
		q         *prompt
	}
	var order []place
	for k := range g.chains {
		for i := range g.chains[k].prompts {
			order = append(order, place{k, i, &g.chains[k].prompts[i]})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.q.firstNs, b.q.firstNs) })
	for i := range order {
		for k := i + 1; k < len(order); k++ {
			a, b := order[i], order[k]
			later := &g.chains[b.chain]
			line := &g.passes.lines[later.lines[len(later.lines)-1]]
			near := max(closeNs, int64(closeShare*1e3*line.elapsedUs))
			if b.q.firstNs-a.q.firstNs >= near {
				break
			}
			if a.chain != b.chain {
				g.exchange(a.q, b.q, a.chain, b.chain, &all[a.chain][a.at], &all[b.chain][b.at])
			}
		}
	}
}

// exchange widens the bounds of two prompts by what they would be in each other's chain,
// where the sums allow it.
func (g *Pairing) exchange(a, b *prompt, ca, cb int, x, y *bounds) {
	d := b.tokens - a.tokens
	if g.rules.Block > 0 && d%g.rules.Block != 0 {
		return
	}
	in := func(c *chain, out, in *prompt, d int64) (bounds, bool) {
		rest, h := c.most()-out.most, c.hits+d
		return bounds{max(0, h-rest), min(in.most, h)}, h >= 0 && h <= rest+in.most
	}
	bx, okB := in(&g.chains[ca], a, b, d) // b in the chain of a
	ay, okA := in(&g.chains[cb], b, a, -d)
	if !okA || !okB {
		return
	}
	x.lo, x.hi = min(x.lo, ay.lo), max(x.hi, ay.hi)
	y.lo, y.hi = min(y.lo, bx.lo), max(y.hi, bx.hi)
}

// Fill writes what was found into the rows: the pass that ended each prompt, and its cached
// tokens with their bounds and where they come from.
func (g *Pairing) Fill() {
	all := make([][]bounds, len(g.chains))
	for k := range g.chains {
		g.alone(&g.chains[k])
		all[k] = g.chains[k].bounds()
	}
	g.loosen(all)
	for k := range g.chains {
		c := &g.chains[k]
		at := 0
		for n, line := range c.lines {
			l := &g.passes.lines[line]
			ends := int(l.ctx)
			if n < len(c.lines)-1 {
				ends--
			}
			for ; ends > 0 && at < len(c.prompts); ends-- {
				g.rows[c.prompts[at].row].Iteration = trace.Some(l.index)
				at++
			}
		}
		for i, q := range c.prompts {
			r := &g.rows[q.row]
			if len(g.passes.engines) > 1 {
				r.Engine = trace.Some(int64(c.engine) + 1)
			}
			r.CachedMin, r.CachedMax = trace.Some(all[k][i].lo), trace.Some(all[k][i].hi)
			if !r.CachedTokens.OK && all[k][i].lo == all[k][i].hi {
				r.CachedTokens, r.CachedSource = trace.Some(all[k][i].lo), trace.Some(trace.CachedExact)
			}
		}
	}
	g.split()
}

// split shares the hits of chains that several prompts end among these (spec#counted-hits).
func (g *Pairing) split() {
	common, turns := g.commonest(), g.turns()
	for k := range g.chains {
		c := &g.chains[k]
		left := c.hits
		var open []*guess
		for _, q := range c.prompts {
			r := &g.rows[q.row]
			if r.CachedTokens.OK {
				left -= r.CachedTokens.V
				continue
			}
			open = append(open, g.guess(r, q, turns, common))
		}
		share(open, left)
		for _, o := range open {
			o.row.CachedTokens, o.row.CachedSource = trace.Some(o.tokens), trace.Some(o.source)
		}
	}
}

// guess is what one prompt of an open chain probably had.
type guess struct {
	row    *trace.ObservedRequest
	source string
	tokens int64
}

func (g *Pairing) guess(r *trace.ObservedRequest, q prompt, turns map[turn]int, common map[string]int64) *guess {
	o := &guess{row: r, source: trace.CachedBound}
	whole := func(tokens int64) int64 { return max(0, tokens) / g.rules.Block * g.rules.Block }
	last, isTurn := turns[turn{r.Session.V, r.Turn.V - 1}]
	value, isCommon := common[r.Phase.V]
	switch {
	case r.Session.OK && r.Turn.OK && isTurn:
		b := &g.rows[last]
		o.source, o.tokens = trace.CachedSession, whole(min(q.tokens-1, b.PromptTokens.V+b.OutputTokens.V-1))
	case r.PrefixGroup.OK && r.PrefixTokens.OK:
		o.source, o.tokens = trace.CachedGroup, whole(min(q.tokens-1, r.PrefixTokens.V))
	case isCommon && value <= r.CachedMax.V:
		o.tokens = value
	case isCommon:
		o.tokens = r.CachedMin.V // it missed what the others found
	default:
		o.tokens = whole((r.CachedMin.V + r.CachedMax.V) / 2)
	}
	o.tokens = min(r.CachedMax.V, max(r.CachedMin.V, o.tokens))
	return o
}

// share moves guesses until they are sum: first those that nothing but bounds tells. What is
// too much goes from those that were sent first, which fill the cache for the others; what is
// missing to those that were sent last.
func share(open []*guess, sum int64) {
	rank := func(o *guess) int {
		return slices.Index([]string{trace.CachedBound, trace.CachedGroup, trace.CachedSession}, o.source)
	}
	sum -= stat.Sum(open, func(o *guess) int64 { return o.tokens })
	slices.SortStableFunc(open, func(a, b *guess) int {
		byTime := cmp.Compare(a.row.SentNs(), b.row.SentNs())
		if sum > 0 {
			byTime = -byTime
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), byTime)
	})
	for _, o := range open {
		d := min(o.row.CachedMax.V-o.tokens, max(o.row.CachedMin.V-o.tokens, sum))
		o.tokens, sum = o.tokens+d, sum-d
	}
}

// turn is one of a conversation.
type turn struct {
	session string
	at      int64
}

func (g *Pairing) turns() map[turn]int {
	out := map[turn]int{}
	for i := range g.rows {
		if r := &g.rows[i]; r.Session.OK && r.Turn.OK {
			out[turn{r.Session.V, r.Turn.V}] = i
		}
	}
	return out
}

// commonest are the values that most prompts of a phase have exactly; the larger of two.
func (g *Pairing) commonest() map[string]int64 {
	counts := map[turn]int{}
	out := map[string]int64{}
	for i := range g.rows {
		r := &g.rows[i]
		if r.CachedSource.V != trace.CachedExact {
			continue
		}
		key := turn{r.Phase.V, r.CachedTokens.V}
		counts[key]++
		best, ok := out[r.Phase.V]
		if n := counts[turn{r.Phase.V, best}]; !ok || counts[key] > n || counts[key] == n && key.at > best {
			out[r.Phase.V] = key.at
		}
	}
	return out
}

// Account sums up each phase, in order of time: all requests, or those of an engine of several,
// from 1.
func (g *Pairing) Account(engine int64) []result.CachedTokens {
	var out []result.CachedTokens
	at := map[string]int{}
	seen := map[int32]bool{}
	for i := range g.rows {
		r := &g.rows[i]
		if !r.PromptTokens.OK || !r.FirstChunkNs.OK && !r.LastChunkNs.OK || engine > 0 && r.Engine.V != engine {
			continue
		}
		k, ok := at[r.Phase.V]
		if !ok {
			k = len(out)
			at[r.Phase.V] = k
			d, known := g.deltas[r.Phase.V]
			out = append(out, result.CachedTokens{Phase: r.Phase.V, CounterTokens: trace.Opt[int64]{V: d, OK: known && engine == 0}})
		}
		a := &out[k]
		a.Requests += 1
		a.PromptTokens += r.PromptTokens.V
		a.HitTokens += r.CachedTokens.V
		if c := g.of[i]; c >= 0 && !seen[c] {
			seen[c] = true
			a.Chains++
		}
		switch {
		case !r.CachedTokens.OK:
			a.Unpaired++
		case r.CachedSource.V == trace.CachedUsage:
			a.Usage++
		case r.CachedSource.V == trace.CachedExact || r.CachedMin.V == r.CachedMax.V:
			a.Exact++
		default:
			a.Bounded++
		}
	}
	return out
}
