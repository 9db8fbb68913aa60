package pairing

import (
	"maps"
	"slices"
)

// chain is a run of passes of one engine, joined by prompts that a full budget cut, and the prompts
// that end in it. Of the prompts at its passes all but the last one end there; the last one of the
// chain ends with it.
type chain struct {
	engine      int
	lines       []int // of passLog.lines
	prompts     []prompt
	hits        int64 // tokens of its prompts that no pass computed
	isUncertain bool  // there are ways to pair the period without it
}

// mostCached is what the prompts of a chain may have had in the cache together.
func (c *chain) mostCached() int64 {
	sum := int64(0)
	for i := range c.prompts {
		sum += c.prompts[i].mostCached
	}
	return sum
}

// Bounds of the search for the ways to pair a period.
const (
	mostNodes = 200_000
	waysPrime = 1<<31 - 1 // ways are counted modulo a prime: counts that differ are unequal, equal ones almost surely equal
)

// linesDone is how many lines of each engine are done.
type linesDone [mostEngines]int32

// node is a state of the search: so many lines of each engine and so many prompts are done.
type node struct {
	done     linesDone
	ways     uint64 // to come here
	onward   uint64 // to go on to the end
	incoming []edge
}

// edge is a chain between two states.
type edge struct {
	from           *node
	engine         int32
	lines, prompts int32 // that it takes
}

// chainsOf gives every prompt to a chain of the lines [from, to): chains follow each other as the
// prompts' first chunks do, and the tokens that a chain did not compute of its prompts are whole
// blocks, no more than may have been in the cache. It returns one way, with the chains marked
// that other ways do not have; false where there is no way.
func (p *passLog) chainsOf(prompts []prompt, from, to int) ([]chain, bool) {
	lines := make([][]int, len(p.engines)) // by engine
	for i := from; i < to; i++ {
		e := p.lines[i].engine
		lines[e] = append(lines[e], i)
	}
	n := len(prompts)
	layers := make([]map[linesDone]*node, n+1) // by prompts that are done
	layers[0] = map[linesDone]*node{{}: {ways: 1}}
	nodes := 1
	for k := range n {
		for _, key := range sortedKeys(layers[k]) {
			at := layers[k][key]
			p.nextChains(prompts, lines, at, k, func(e edge) {
				done := at.done
				done[e.engine] += e.lines
				layer := k + int(e.prompts)
				if layers[layer] == nil {
					layers[layer] = map[linesDone]*node{}
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
	var all linesDone
	for e := range lines {
		all[e] = int32(len(lines[e]))
	}
	last := layers[n][all]
	if last == nil {
		return nil, false
	}
	return p.traceBack(prompts, lines, layers, last), true
}

// sortedKeys are the states of a layer in a fixed order.
func sortedKeys(layer map[linesDone]*node) []linesDone {
	return slices.SortedFunc(maps.Keys(layer), func(a, b linesDone) int { return slices.Compare(a[:], b[:]) })
}

// nextChains calls use with every chain that may follow a state in which k prompts are done.
func (p *passLog) nextChains(prompts []prompt, lines [][]int, at *node, k int, use func(edge)) {
	for e := range lines {
		first := int(at.done[e])
		taken := 0         // prompts
		tokens := int64(0) // of these
		least := int64(0)  // of these, tokens that were in the cache
		most := int64(0)   // and that may have been
		computed := int64(0)
		counted := int64(0) // hits that the engine counted itself
		for i := first; i < len(lines[e]); i++ {
			l := &p.lines[lines[e][i]]
			more := int(l.contextReqs)
			if i > first {
				more-- // the prompt that was cut goes on
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
			computed += l.contextTokens
			counted += l.hits
			hits := tokens - computed
			isWhole := hits%max(1, p.rules.Block) == 0
			isCounted := l.hits < 0 || hits == counted
			if hits >= least && hits <= most && isWhole && isCounted && (i > first || p.requestsLeave(prompts[k:k+taken], l)) {
				use(edge{from: at, engine: int32(e), lines: int32(i + 1 - first), prompts: int32(taken)})
			}
			mayGoOn := l.isFull && computed < tokens+longerPrompt(prompts[k+taken-1:])
			if !mayGoOn {
				break
			}
		}
	}
}

// requestsLeave reports, where the log has several engines, whether requests left the line's engine
// after the passes that brought the last tokens of the prompts that the line ended.
func (p *passLog) requestsLeave(prompts []prompt, l *promptPass) bool {
	leaving := p.engines[l.engine].leaving
	isRecomputing := p.generationTokens > p.generationReqs
	if len(leaving) == 0 || p.rules.Speculative || isRecomputing {
		return true
	}
	for _, q := range prompts {
		at := l.place + int(q.outputTokens) - 1
		if at >= len(leaving) {
			return false
		}
		// An engine that plans ahead runs one more pass for an answer that stopped.
		isLate := (p.isAsync || p.rules.Ahead) && at+1 < len(leaving) && leaving[at+1] > 0
		if leaving[at] < 1 && !isLate {
			return false
		}
	}
	return true
}

// longerPrompt is by how much the prompt that is cut may be longer than the first of next: one of
// those that end with it may have reached its client before it.
func longerPrompt(next []prompt) int64 {
	const together = 8
	most := int64(0)
	for _, q := range next[:min(len(next), together)] {
		most = max(most, q.tokens-next[0].tokens)
	}
	return most
}

// traceBack is one way to the end. A chain that not every way has is uncertain: the ways through it
// are fewer than all.
func (p *passLog) traceBack(prompts []prompt, lines [][]int, layers []map[linesDone]*node, last *node) []chain {
	last.onward = 1
	total := last.ways
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
			lines:       lines[e.engine][e.from.done[e.engine]:][:e.lines],
			isUncertain: e.from.ways*last.onward%waysPrime != total,
		}
		for _, q := range c.prompts {
			c.hits += q.tokens
		}
		for _, line := range c.lines {
			c.hits -= p.lines[line].contextTokens
		}
		out = append(out, c)
		k -= int(e.prompts)
		last = e.from
	}
	slices.Reverse(out)
	for i := 1; i < len(out); i++ {
		if p.lines[out[i].lines[0]].mayBeLastAgain {
			out[i-1].isUncertain = true
			out[i].isUncertain = true
		}
	}
	markOvertaken(out)
	return out
}

// markOvertaken marks as uncertain, of several engines, each chain between whose passes another
// chain has some, and that other one: their prompts may have come in another order than chain by
// chain.
func markOvertaken(chains []chain) {
	for i := range chains {
		a := &chains[i]
		if len(a.lines) < 2 {
			continue
		}
		isBetween := func(line int) bool { return line > a.lines[0] && line < a.lines[len(a.lines)-1] }
		for k := range chains {
			b := &chains[k]
			if b.engine != a.engine && slices.ContainsFunc(b.lines, isBetween) {
				a.isUncertain = true
				b.isUncertain = true
			}
		}
	}
}
