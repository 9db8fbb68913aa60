package pairing

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// This file writes into the requests what their chains give (spec#counted-hits). A chain gives the
// hits of its prompts together; bounds, and guesses within them, divide them among the prompts.

// bounds are the tokens that a request may have had in the cache.
type bounds struct{ lo, hi int64 }

// Fill writes into the rows the pass that ended each prompt, and its cached tokens with their
// bounds and where they come from.
func (g *Pairing) Fill() {
	all := make([][]bounds, len(g.chains)) // of each chain's prompts
	for k := range g.chains {
		c := &g.chains[k]
		g.boundLastPrompt(c)
		all[k] = c.bounds()
	}
	g.widenBounds(all)
	for k := range g.chains {
		c := &g.chains[k]
		g.setIterations(c)
		for i := range c.prompts {
			r := &g.rows[c.prompts[i].row]
			b := all[k][i]
			if len(g.passes.engines) > 1 {
				r.Engine = trace.Some(int64(c.engine) + 1)
			}
			r.CachedMin = trace.Some(b.lo)
			r.CachedMax = trace.Some(b.hi)
			if !r.CachedTokens.OK && b.lo == b.hi {
				r.CachedTokens = trace.Some(b.lo)
				r.CachedSource = trace.Some(trace.CachedExact)
			}
		}
	}
	g.splitHits()
}

// setIterations sets the pass in which each prompt of a chain ended.
func (g *Pairing) setIterations(c *chain) {
	next := 0
	for n, line := range c.lines {
		l := &g.passes.lines[line]
		ends := int(l.contextReqs)
		if n < len(c.lines)-1 {
			ends-- // the one that was cut
		}
		for ; ends > 0 && next < len(c.prompts); ends-- {
			g.rows[c.prompts[next].row].Iteration = trace.Some(l.index)
			next++
		}
	}
}

// boundLastPrompt bounds the hits of a prompt that was cut and then went on alone: what those passes
// computed of it was in no cache.
func (g *Pairing) boundLastPrompt(c *chain) {
	computed := int64(0)
	for i := len(c.lines) - 1; i > 0; i-- {
		l := &g.passes.lines[c.lines[i]]
		if l.contextReqs != 1 {
			break
		}
		computed += l.contextTokens
	}
	if computed > 0 {
		q := &c.prompts[len(c.prompts)-1]
		q.mostCached = min(q.mostCached, g.rules.wholeBlocks(q.tokens-computed))
	}
}

// bounds are those of the chain's prompts, by its sum.
func (c *chain) bounds() []bounds {
	most := c.mostCached()
	var out []bounds
	for _, q := range c.prompts {
		out = append(out, bounds{max(0, c.hits-(most-q.mostCached)), min(q.mostCached, c.hits)})
	}
	return out
}

// Chunks of two passes that are this close may have come in the other order.
const (
	closeNs    = 1_000_000
	closeShare = 0.5 // of the time of the later pass
)

// widenBounds widens the bounds of prompts that may have changed places with one of another chain.
func (g *Pairing) widenBounds(all [][]bounds) {
	type place struct {
		chain  int
		prompt *prompt
		bounds *bounds
	}
	var order []place
	for k := range g.chains {
		for i := range g.chains[k].prompts {
			order = append(order, place{k, &g.chains[k].prompts[i], &all[k][i]})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.prompt.firstNs, b.prompt.firstNs) })
	for i, a := range order {
		for _, b := range order[i+1:] {
			later := &g.chains[b.chain]
			lastPass := &g.passes.lines[later.lines[len(later.lines)-1]]
			nearNs := max(closeNs, int64(closeShare*1e3*lastPass.elapsedUs))
			if b.prompt.firstNs-a.prompt.firstNs >= nearNs {
				break
			}
			if a.chain != b.chain {
				g.widenExchanged(&g.chains[a.chain], &g.chains[b.chain], a.prompt, b.prompt, a.bounds, b.bounds)
			}
		}
	}
}

// widenExchanged widens the bounds of two prompts by what they would be in each other's chain, where
// the sums of both chains allow the exchange.
func (g *Pairing) widenExchanged(chainA, chainB *chain, a, b *prompt, boundsA, boundsB *bounds) {
	longer := b.tokens - a.tokens
	if g.rules.Block > 0 && longer%g.rules.Block != 0 {
		return
	}
	inA, okA := chainA.boundsWith(b, a, longer)
	inB, okB := chainB.boundsWith(a, b, -longer)
	if !okA || !okB {
		return
	}
	boundsA.lo = min(boundsA.lo, inB.lo)
	boundsA.hi = max(boundsA.hi, inB.hi)
	boundsB.lo = min(boundsB.lo, inA.lo)
	boundsB.hi = max(boundsB.hi, inA.hi)
}

// boundsWith are the bounds of a prompt in the place of another one of the chain, than which it is
// longer by so many tokens; false where the sum does not allow it.
func (c *chain) boundsWith(in, out *prompt, longer int64) (bounds, bool) {
	rest := c.mostCached() - out.mostCached
	hits := c.hits + longer
	return bounds{max(0, hits-rest), min(in.mostCached, hits)}, hits >= 0 && hits <= rest+in.mostCached
}

// splitHits shares the hits of chains in which several prompts end among these.
func (g *Pairing) splitHits() {
	common := g.commonestHits()
	turns := g.turns()
	for k := range g.chains {
		c := &g.chains[k]
		left := c.hits
		var guesses []*guess
		for _, q := range c.prompts {
			r := &g.rows[q.row]
			if r.CachedTokens.OK {
				left -= r.CachedTokens.V
				continue
			}
			guesses = append(guesses, g.guessHits(r, q.tokens, turns, common))
		}
		adjustGuesses(guesses, left)
		for _, o := range guesses {
			o.row.CachedTokens = trace.Some(o.tokens)
			o.row.CachedSource = trace.Some(o.source)
		}
	}
}

// guess is what one prompt probably had in the cache.
type guess struct {
	row    *trace.ObservedRequest
	source string // trace.CachedSession, CachedGroup, CachedBound or CachedCounter
	tokens int64
}

// guessHits guesses the hits of a prompt within its bounds: the turn of the conversation before it,
// else the prefix that its group shares, else what most prompts of its phase had.
func (g *Pairing) guessHits(r *trace.ObservedRequest, tokens int64, turns map[turn]int, common map[string]int64) *guess {
	o := &guess{row: r, source: trace.CachedBound}
	lastTurn, hasTurn := turns[turn{r.Session.V, r.Turn.V - 1}]
	commonest, hasCommon := common[r.Phase.V]
	switch {
	case r.Session.OK && r.Turn.OK && hasTurn:
		before := &g.rows[lastTurn]
		o.source = trace.CachedSession
		o.tokens = g.rules.wholeBlocks(min(tokens-1, before.PromptTokens.V+before.OutputTokens.V-1))
	case r.PrefixGroup.OK && r.PrefixTokens.OK:
		o.source = trace.CachedGroup
		o.tokens = g.rules.wholeBlocks(min(tokens-1, r.PrefixTokens.V))
	case hasCommon && commonest <= r.CachedMax.V:
		o.tokens = commonest
	case hasCommon:
		o.tokens = r.CachedMin.V // it missed what the others found
	default:
		o.tokens = g.rules.wholeBlocks((r.CachedMin.V + r.CachedMax.V) / 2)
	}
	o.tokens = min(r.CachedMax.V, max(r.CachedMin.V, o.tokens))
	return o
}

// adjustGuesses moves guesses within their bounds until they add up to sum: those with the weakest
// source first. What is too much is taken from those that were sent first, which fill the cache for
// the others; what is missing is given to those that were sent last.
func adjustGuesses(guesses []*guess, sum int64) {
	strength := map[string]int{trace.CachedCounter: -1, trace.CachedBound: 0, trace.CachedGroup: 1, trace.CachedSession: 2}
	missing := sum
	for _, o := range guesses {
		missing -= o.tokens
	}
	isMissing := missing > 0
	slices.SortStableFunc(guesses, func(a, b *guess) int {
		byTime := cmp.Compare(a.row.SentNs(), b.row.SentNs())
		if isMissing {
			byTime = -byTime
		}
		return cmp.Or(cmp.Compare(strength[a.source], strength[b.source]), byTime)
	})
	for _, o := range guesses {
		change := min(o.row.CachedMax.V-o.tokens, max(o.row.CachedMin.V-o.tokens, missing))
		o.tokens += change
		missing -= change
	}
}

// turn is one of a conversation.
type turn struct {
	session string
	number  int64
}

// turns are the rows of each turn.
func (g *Pairing) turns() map[turn]int {
	out := map[turn]int{}
	for i := range g.rows {
		if r := &g.rows[i]; r.Session.OK && r.Turn.OK {
			out[turn{r.Session.V, r.Turn.V}] = i
		}
	}
	return out
}

// commonestHits are the hits that most prompts of each phase have exactly; the larger of two that
// are equally frequent.
func (g *Pairing) commonestHits() map[string]int64 {
	type value struct {
		phase string
		hits  int64
	}
	counts := map[value]int{}
	out := map[string]int64{}
	for i := range g.rows {
		r := &g.rows[i]
		if r.CachedSource.V != trace.CachedExact {
			continue
		}
		v := value{r.Phase.V, r.CachedTokens.V}
		counts[v]++
		best, hasBest := out[v.phase]
		bestCount := counts[value{v.phase, best}]
		if !hasBest || counts[v] > bestCount || counts[v] == bestCount && v.hits > best {
			out[v.phase] = v.hits
		}
	}
	return out
}
