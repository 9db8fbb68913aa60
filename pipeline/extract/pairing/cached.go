package pairing

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// This file writes into each request the pass that ended its prompt and its tokens from the prefix
// cache (spec#counted-hits). Counting gives the sum of these tokens, the hits, for each chain of
// passes that the token budget joins (chains.go). A chain of one prompt thereby has an exact value. For a
// chain of several prompts, the sum bounds the hits of each prompt, and splitHits guesses values within
// these bounds.

// bounds is the least and the most tokens of a prompt that may have come from the prefix cache.
type bounds struct{ lo, hi int64 }

// Fill writes into the requests the index of the pass that ended their prompt (Iteration), their
// cached tokens with the bounds, the source of that value (CachedSource), and, if the log is of several
// engines, the number of theirs (Engine, from 1). A number of cached tokens that a request already has is
// kept. A failed request gets neither pass nor bounds, so that the guess for it is 0 cached tokens.
func (g *Pairing) Fill() {
	all := make([][]bounds, len(g.chains)) // of each chain's prompts
	for k := range g.chains {
		c := &g.chains[k]
		g.boundLastPrompt(c)
		all[k] = c.promptBounds()
	}
	g.widenBounds(all) // needs those of all chains
	for k := range g.chains {
		c := &g.chains[k]
		g.setIterations(c)
		for i := range c.prompts {
			r := &g.rows[c.prompts[i].row]
			b := all[k][i] // bounds of this prompt
			if c.prompts[i].isFailed {
				continue
			}
			if len(g.log.engines) > 1 {
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
	g.splitHits() // guesses from exact values, so these must be set
}

// setIterations sets Iteration of each request of a chain: the index of the pass that ended its
// prompt. In all passes but the last the last prompt was cut and did not end.
func (g *Pairing) setIterations(c *chain) {
	next := 0
	for n, pass := range c.passes {
		promptPass := &g.log.promptPasses[pass]
		ends := int(promptPass.contextReqs) // number of prompts that end in the pass
		if n < len(c.passes)-1 {
			ends--
		}
		for ; ends > 0 && next < len(c.prompts); ends-- {
			if q := &c.prompts[next]; !q.isFailed {
				g.rows[q.row].Iteration = trace.Some(promptPass.index)
			}
			next++
		}
	}
}

// boundLastPrompt lowers the upper bound of the last prompt's hits by what later passes of the
// chain computed of this prompt alone: these tokens did not come from the cache.
func (g *Pairing) boundLastPrompt(c *chain) {
	computed := int64(0)
	for i := len(c.passes) - 1; i > 0; i-- {
		promptPass := &g.log.promptPasses[c.passes[i]]
		if promptPass.contextReqs != 1 {
			break
		}
		computed += promptPass.contextTokens
	}
	if computed > 0 {
		last := &c.prompts[len(c.prompts)-1]
		last.mostCached = min(last.mostCached, g.rules.wholeBlocks(last.tokens-computed))
	}
}

// promptBounds returns the bounds of each prompt of the chain. A prompt has at least the chain's
// hits less the most that all other prompts can have.
func (c *chain) promptBounds() []bounds {
	most := c.mostCached()
	var out []bounds
	for _, p := range c.prompts {
		othersMost := most - p.mostCached
		out = append(out, bounds{lo: max(0, c.hits-othersMost), hi: min(p.mostCached, c.hits)})
	}
	return out
}

// First chunks of two passes may have reached the client in the other order if they are less than the
// larger of these apart.
const (
	closeNs    = 1_000_000
	closeShare = 0.5 // times the duration of the later pass
)

// widenBounds widens the bounds of prompts of two chains whose first chunks came so close together
// that each prompt may belong to the other's chain. all has the bounds of each prompt by chain.
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
	stat.SortStable(order, func(a, b place) int { return cmp.Compare(a.prompt.firstNs, b.prompt.firstNs) })
	for i, a := range order {
		for _, b := range order[i+1:] {
			later := &g.chains[b.chain]
			lastPass := &g.log.promptPasses[later.passes[len(later.passes)-1]]
			nearNs := max(closeNs, int64(closeShare*1e3*lastPass.elapsedUs))
			if b.prompt.firstNs-a.prompt.firstNs >= nearNs {
				break // and so are all behind b
			}
			hasChunks := a.prompt.isFirst && b.prompt.isFirst // otherwise they were paired in the order of their sends
			if hasChunks && a.chain != b.chain {
				g.widenExchanged(&g.chains[a.chain], &g.chains[b.chain], a.prompt, b.prompt, a.bounds, b.bounds)
			}
		}
	}
}

// widenExchanged exchanges prompt a of chainA and prompt b of chainB, and widens their bounds by
// those that they would have then. It changes nothing if the hits of either chain rule the exchange
// out.
func (g *Pairing) widenExchanged(chainA, chainB *chain, a, b *prompt, boundsA, boundsB *bounds) {
	// The hits of chainA grow by the tokens that b is longer, and must stay whole blocks.
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

// boundsWith returns the bounds of prompt in if it took the place of prompt out in the chain.
// longer is the tokens of in less those of out, by which the chain's hits grow. The result is false
// if the chain's prompts could not have so many hits.
func (c *chain) boundsWith(in, out *prompt, longer int64) (bounds, bool) {
	othersMost := c.mostCached() - out.mostCached // that the chain's other prompts can have
	hits := c.hits + longer
	isPossible := hits >= 0 && hits <= othersMost+in.mostCached
	return bounds{lo: max(0, hits-othersMost), hi: min(in.mostCached, hits)}, isPossible
}

// splitHits gives each request whose cached tokens are still unknown a guess, so that the guesses
// of a chain add up to its hits.
func (g *Pairing) splitHits() {
	common := g.commonestHits() // by phase
	turns := g.turns()
	for k := range g.chains {
		c := &g.chains[k]
		left := c.hits // of the prompts whose cached tokens are not known
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

// guess is the estimated cached tokens of one request.
type guess struct {
	row    *trace.ObservedRequest
	source string // trace.CachedSession, CachedGroup, CachedBound or CachedCounter
	tokens int64
}

// guessHits guesses the cached tokens of a request within its bounds. It assumes that the cache had
// the previous turn of the conversation, or else the prefix that the request's group shares, or
// else the number of tokens that most requests of the phase had (common, by phase), or else the middle of
// the bounds. tokens is the length of the prompt. turns has the index of the request of each turn.
func (g *Pairing) guessHits(r *trace.ObservedRequest, tokens int64, turns map[turn]int,
	common map[string]int64) *guess {
	out := &guess{row: r, source: trace.CachedBound}
	lastTurn, hasTurn := turns[turn{session: r.Session.V, number: r.Turn.V - 1}]
	commonest, hasCommon := common[r.Phase.V]
	switch {
	case r.Session.OK && r.Turn.OK && hasTurn:
		before := &g.rows[lastTurn]
		out.source = trace.CachedSession
		// The KV of the last output token is not computed before the next turn, and the last token of this
		// prompt always is.
		out.tokens = g.rules.wholeBlocks(min(tokens-1, before.PromptTokens.V+before.OutputTokens.V-1))
	case r.PrefixGroup.OK && r.PrefixTokens.OK || r.SharesNothing():
		out.source = trace.CachedGroup
		out.tokens = g.rules.wholeBlocks(min(tokens-1, r.PrefixTokens.V))
	case hasCommon && commonest <= r.CachedMax.V:
		out.tokens = commonest
	case hasCommon:
		out.tokens = r.CachedMin.V // the common prefix was not in the cache yet
	default:
		out.tokens = g.rules.wholeBlocks((r.CachedMin.V + r.CachedMax.V) / 2)
	}
	out.tokens = min(r.CachedMax.V, max(r.CachedMin.V, out.tokens))
	return out
}

// adjustGuesses changes guesses within their bounds until they add up to sum. Guesses with the
// weakest source change first. If the sum is too large, requests sent first are lowered first,
// because they had to fill the cache for the others; if it is too small, those sent last are raised
// first.
func adjustGuesses(guesses []*guess, sum int64) {
	strength := map[string]int{
		trace.CachedCounter: 0,
		trace.CachedBound:   1,
		trace.CachedGroup:   2,
		trace.CachedSession: 3,
	}
	missing := sum // less the guesses; negative if these are too large
	for _, o := range guesses {
		missing -= o.tokens
	}
	isMissing := missing > 0
	stat.SortStable(guesses, func(a, b *guess) int {
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

// turn identifies one turn of a conversation.
type turn struct {
	session string
	number  int64
}

// turns returns the index of the request of each turn.
func (g *Pairing) turns() map[turn]int {
	out := map[turn]int{}
	for i := range g.rows {
		if r := &g.rows[i]; r.Session.OK && r.Turn.OK {
			out[turn{r.Session.V, r.Turn.V}] = i
		}
	}
	return out
}

// commonestHits returns for each phase the most frequent exact value of cached tokens, the larger
// of two that are equally frequent.
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
