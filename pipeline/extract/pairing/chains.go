package pairing

// This file divides the prompts of a busy period among the passes of the log. A dynamic program finds
// all ways; a chain that not all ways have is uncertain.

import (
	"maps"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// chain is a sequence of consecutive prompt passes of one engine in which each pass but the last
// cut its last prompt, because the token budget was spent, together with the prompts that end in
// it. The pass after a cut continues that prompt. In the last pass of the chain all prompts end.
type chain struct {
	engine      int
	passes      []int // its prompt passes, indices of passLog.promptPasses
	prompts     []prompt
	hits        int64 // tokens of its prompts that no pass computed: they came from the cache
	isUncertain bool  // another way to pair the period does not have this chain
}

// mostCached returns the largest number of tokens that the prompts of the chain together can have
// had in the cache.
func (c *chain) mostCached() int64 {
	sum := int64(0)
	for i := range c.prompts {
		sum += c.prompts[i].mostCached
	}
	return sum
}

// Limits of the search for all ways to pair a period.
const (
	mostNodes = 200_000
	waysPrime = 1<<31 - 1 // the number of ways, which may be huge, is counted modulo this prime
)

// passesDone is, for each engine, how many of its prompt passes belong to chains already chosen.
type passesDone [mostEngines]int32

// node is a state of the search: the number of prompt passes of each engine, and of prompts, that
// are already in chains.
type node struct {
	done     passesDone
	ways     uint64 // number of ways from the start to this node, modulo waysPrime
	onward   uint64 // number of ways from this node to the end, modulo waysPrime
	incoming []edge
}

// edge is a chain that leads from one state to another.
type edge struct {
	from            *node
	engine          int32
	passes, prompts int32 // number of prompt passes and of prompts that the chain takes
}

// chainsOf returns the prompts of a period, in the order of their first chunks, divided into chains
// of the prompt passes [from, to). The tokens that a chain did not compute of its prompts must be
// whole blocks and no more than can have been in the cache. A dynamic program over the number of
// prompts finds all ways. The result is one of them, in which chains that other ways do not have
// are marked uncertain. It returns false if there is no way, or if the search becomes too large.
func (p *passLog) chainsOf(prompts []prompt, from, to int) ([]chain, bool) {
	byEngine := make([][]int, len(p.engines)) // the prompt passes of each engine, as indexes of p.promptPasses
	for i := from; i < to; i++ {
		e := p.promptPasses[i].engine
		byEngine[e] = append(byEngine[e], i)
	}
	n := len(prompts)
	layers := make([]map[passesDone]*node, n+1) // index: number of prompts already in chains
	layers[0] = map[passesDone]*node{{}: {ways: 1}}
	nodes := 1
	// Layer k has the states in which k prompts are in chains. Every chain leads to a later layer.
	for k := range n {
		for _, key := range sortedKeys(layers[k]) {
			at := layers[k][key]
			p.nextChains(prompts, byEngine, at, k, func(e edge) {
				done := at.done
				done[e.engine] += e.passes
				layer := k + int(e.prompts)
				if layers[layer] == nil {
					layers[layer] = map[passesDone]*node{}
				}
				next := layers[layer][done]
				if next == nil {
					next = &node{done: done}
					layers[layer][done] = next
					nodes++
				}
				next.ways = (next.ways + at.ways) % waysPrime
				next.incoming = append(next.incoming, e)
			})
		}
		if nodes > mostNodes {
			return nil, false
		}
	}
	var all passesDone
	for e := range byEngine {
		all[e] = int32(len(byEngine[e]))
	}
	last := layers[n][all] // all prompts and all passes are in chains
	if last == nil {
		return nil, false
	}
	return p.traceBack(prompts, byEngine, layers, last), true
}

// sortedKeys returns the states of a layer in a fixed order, so that the result does not depend on
// the order of a map.
func sortedKeys(layer map[passesDone]*node) []passesDone {
	keys := slices.Collect(maps.Keys(layer))
	stat.SortStable(keys, func(a, b passesDone) int { return slices.Compare(a[:], b[:]) })
	return keys
}

// nextChains calls use with every chain that can follow a state (at) in which the first k prompts are in
// chains. For each engine a chain starts at the engine's next prompt pass, and it may go on with
// further passes as long as its last prompt may have been cut. byEngine has the engines' prompt passes.
func (p *passLog) nextChains(prompts []prompt, byEngine [][]int, at *node, k int, use func(edge)) {
	for e := range byEngine {
		first := int(at.done[e])
		taken := 0           // number of prompts in the chain
		tokens := int64(0)   // of these prompts
		least := int64(0)    // tokens known to be from the cache
		most := int64(0)     // tokens that can be from the cache
		computed := int64(0) // prompt tokens of its passes
		counted := int64(0)  // hits that SGLang logged for them
		for i := first; i < len(byEngine[e]); i++ {
			promptPass := &p.promptPasses[byEngine[e][i]]
			more := int(promptPass.contextReqs)
			if i > first {
				more-- // one context request continues the prompt that was cut
			}
			if k+taken+more > len(prompts) {
				break
			}
			for _, q := range prompts[k+taken : k+taken+more] {
				tokens += q.tokens
				least += q.cached.V
				most += q.cached.Or(q.mostCached)
			}
			taken += more
			computed += promptPass.contextTokens
			counted += promptPass.hits
			hits := tokens - computed
			isWhole := hits%max(1, p.rules.Block) == 0
			isCounted := promptPass.hits < 0 || hits == counted
			isPossible := hits >= least && hits <= most && isWhole && isCounted
			// Only of a chain of one pass is it known in which pass its prompts ended, and when they should leave.
			if isPossible && (i > first || p.requestsLeave(prompts[k:k+taken], promptPass)) {
				use(edge{from: at, engine: int32(e), passes: int32(i + 1 - first), prompts: int32(taken)})
			}
			// The last prompt may go on in the next pass, if tokens of it are left.
			mayGoOn := promptPass.isFull && computed < tokens+longerPrompt(prompts[k+taken-1:])
			if !mayGoOn {
				break
			}
		}
	}
}

// requestsLeave reports whether requests left the engine of a pass when the prompts that ended in that
// pass should have finished. A request makes one token a pass, so it leaves outputTokens-1 passes
// later. Where a pass may yield another number of tokens nothing can be decided, and the result is
// true. It is also true for a log of one engine, which does not count the requests that leave: there it
// need not be found out which engine served a request.
func (p *passLog) requestsLeave(prompts []prompt, pass *promptPass) bool {
	leaving := p.engines[pass.engine].leaving
	isRecomputing := p.generationTokens > p.generationReqs // some pass computed a preempted request again
	if len(leaving) == 0 || p.rules.Speculative || isRecomputing {
		return true
	}
	for _, q := range prompts {
		last := pass.place + int(q.outputTokens) - 1 // the pass that makes its last token
		if last >= len(leaving) {
			return false
		}
		// An engine that schedules ahead runs one more pass for an answer that stopped.
		isLate := (p.isAsync || p.rules.Ahead) && last+1 < len(leaving) && leaving[last+1] > 0
		if leaving[last] < 1 && !isLate {
			return false
		}
	}
	return true
}

// longerPrompt returns how many tokens more than next[0] the prompt that is cut may have. next are
// the prompts that may end next in the order of their first chunks. Chunks of prompts that end in
// one pass may arrive in any order, so the cut one may be any of the first few.
func longerPrompt(next []prompt) int64 {
	const together = 8 // prompts whose chunks are assumed to be of one pass
	most := int64(0)
	for _, q := range next[:min(len(next), together)] {
		most = max(most, q.tokens-next[0].tokens)
	}
	return most
}

// traceBack follows one way from the last node back to the first and returns its chains. A chain is
// marked uncertain if fewer ways lead through it than there are in all, or if the search could not
// find every way that has other prompts in it.
func (p *passLog) traceBack(prompts []prompt, byEngine [][]int, layers []map[passesDone]*node, last *node) []chain {
	last.onward = 1
	total := last.ways
	// Count the ways from every state to the end. A chain is in all ways if the ways to its start
	// times the ways from its end are all of them.
	for k := len(layers) - 1; k > 0; k-- {
		for _, n := range layers[k] {
			for _, e := range n.incoming {
				e.from.onward = (e.from.onward + n.onward) % waysPrime
			}
		}
	}
	var out []chain
	for k := len(layers) - 1; k > 0; {
		e := last.incoming[0]
		c := chain{
			engine:      int(e.engine),
			prompts:     prompts[k-int(e.prompts) : k],
			passes:      byEngine[e.engine][e.from.done[e.engine]:][:e.passes],
			isUncertain: e.from.ways*last.onward%waysPrime != total,
		}
		for _, q := range c.prompts {
			c.hits += q.tokens
		}
		for _, pass := range c.passes {
			c.hits -= p.promptPasses[pass].contextTokens
		}
		out = append(out, c)
		k -= int(e.prompts)
		last = e.from
	}
	slices.Reverse(out)
	p.markRepeated(out)
	markConcurrent(out)
	return out
}

// markRepeated marks as uncertain the chains with a pass in which prompts may be first decodes, and the chains before
// whose prompts these decodes are of.
func (p *passLog) markRepeated(chains []chain) {
	lastOf := map[int][]int{} // chains by their last pass
	for i := range chains {
		last := chains[i].passes[len(chains[i].passes)-1]
		lastOf[last] = append(lastOf[last], i)
	}
	for i := range chains {
		c := &chains[i]
		for _, pass := range c.passes {
			c.isUncertain = c.isUncertain || p.promptPasses[pass].mayRepeatLast
		}
		first := c.passes[0]
		if !p.promptPasses[first].mayRepeatLast {
			continue
		}
		before := first - 1 // the prompt pass before of the same engine
		for before >= 0 && p.promptPasses[before].engine != p.promptPasses[first].engine {
			before--
		}
		for _, k := range lastOf[before] {
			chains[k].isUncertain = true
		}
	}
}

// markConcurrent marks two chains of different engines as uncertain if one has passes between the
// first and the last pass of the other. chainsOf gives consecutive prompts to each chain, but prompts
// of engines that run at the same time may have ended alternately, and such ways were not counted.
func markConcurrent(chains []chain) {
	for i := range chains {
		a := &chains[i]
		if len(a.passes) < 2 {
			continue
		}
		isBetween := func(pass int) bool { return pass > a.passes[0] && pass < a.passes[len(a.passes)-1] }
		for k := range chains {
			b := &chains[k]
			if b.engine != a.engine && slices.ContainsFunc(b.passes, isBetween) {
				a.isUncertain = true
				b.isUncertain = true
			}
		}
	}
}
