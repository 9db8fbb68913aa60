package forms

import (
	"maps"
	"slices"
)

// chain is a run of passes of one engine joined by prompts that a full budget cut, and the
// prompts that end in it: all but those at its end are cut once a pass.
type chain struct {
	engine    int
	lines     []int // of Passes
	prompts   []prompt
	hits      int64 // tokens of its prompts that no pass computed
	uncertain bool  // other ways to pair the period leave it out
}

// Bounds of the search for the ways to pair a period.
const (
	mostNodes = 200_000
	waysPrime = 1<<31 - 1 // ways are counted modulo a prime: equal counts are equal
)

// node is a state of the search: so many lines of each engine and so many prompts are done.
type node struct {
	at       [mostEngines]int32
	ways     uint64 // to come here
	onward   uint64 // to go on to the end
	incoming []edge
}

type edge struct {
	from          *node
	engine        int32
	lines, prompt int32 // taken
}

// pair gives every prompt to a chain of the lines [from, to): chains follow each other as
// the prompts' first chunks do, and what is missing to a chain's prompts is whole blocks, no
// more than its prompts can have had in the cache. False where no way does.
func (p *Passes) pair(prompts []prompt, from, to int) ([]chain, bool) {
	of := make([][]int, len(p.engines))
	for i := from; i < to; i++ {
		e := p.lines[i].engine
		of[e] = append(of[e], i)
	}
	n := len(prompts)
	layers := make([]map[[mostEngines]int32]*node, n+1)
	layers[0] = map[[mostEngines]int32]*node{{}: {ways: 1}}
	nodes := 1
	for k := range n {
		for _, key := range keysOf(layers[k]) {
			at := layers[k][key]
			p.onward(prompts, of, at, k, func(e edge) {
				next := at.at
				next[e.engine] += e.lines
				to := k + int(e.prompt)
				if layers[to] == nil {
					layers[to] = map[[mostEngines]int32]*node{}
				}
				m := layers[to][next]
				if m == nil {
					m = &node{at: next}
					layers[to][next] = m
					nodes++
				}
				m.ways = (m.ways + at.ways) % waysPrime
				m.incoming = append(m.incoming, e)
			})
		}
		if nodes > mostNodes {
			return nil, false
		}
	}
	var end [mostEngines]int32
	for e := range of {
		end[e] = int32(len(of[e]))
	}
	last := layers[n][end]
	if last == nil {
		return nil, false
	}
	return p.certain(prompts, of, layers, last), true
}

// keysOf are the states of a layer in a fixed order.
func keysOf(layer map[[mostEngines]int32]*node) [][mostEngines]int32 {
	return slices.SortedFunc(maps.Keys(layer), func(a, b [mostEngines]int32) int { return slices.Compare(a[:], b[:]) })
}

// onward calls use with every chain that may come next.
func (p *Passes) onward(prompts []prompt, of [][]int, at *node, k int, use func(edge)) {
	for e := range of {
		sum, tokens, least, most, counted, n := int64(0), int64(0), int64(0), int64(0), int64(0), 0
		for i := int(at.at[e]); i < len(of[e]); i++ {
			l := &p.lines[of[e][i]]
			more := int(l.ctx)
			if i > int(at.at[e]) {
				more-- // the prompt that was cut goes on
			}
			if k+n+more > len(prompts) {
				break
			}
			for _, q := range prompts[k+n : k+n+more] {
				sum, least, most = sum+q.tokens, least+q.cached.V, most+q.cached.Or(q.most)
			}
			n, tokens, counted = n+more, tokens+l.tokens, counted+l.hits
			hits := sum - tokens
			if hits >= least && hits <= most && hits%max(1, p.rules.Block) == 0 && (l.hits < 0 || hits == counted) {
				use(edge{from: at, engine: int32(e), lines: int32(i+1) - at.at[e], prompt: int32(n)})
			}
			if !l.full || tokens >= sum+longer(prompts[k+n-1:]) {
				break
			}
		}
	}
}

// longer is by how much the prompt that is cut may be longer than the first of next: one of
// those that end with it may have reached its client before it.
func longer(next []prompt) int64 {
	const together = 8
	most := int64(0)
	for _, q := range next[:min(len(next), together)] {
		most = max(most, q.tokens-next[0].tokens)
	}
	return most
}

// certain is one way to the end, in which chains that not every way has are uncertain.
func (p *Passes) certain(prompts []prompt, of [][]int, layers []map[[mostEngines]int32]*node, last *node) []chain {
	last.onward = 1
	total := last.ways
	for k := len(layers) - 1; k > 0; k-- {
		for _, m := range layers[k] {
			for _, e := range m.incoming {
				e.from.onward = (e.from.onward + m.onward) % waysPrime
			}
		}
	}
	var out []chain
	for k := len(layers) - 1; k > 0; {
		e := last.incoming[0]
		c := chain{engine: int(e.engine), prompts: prompts[k-int(e.prompt) : k]}
		c.lines = of[e.engine][e.from.at[e.engine]:][:e.lines]
		for _, q := range c.prompts {
			c.hits += q.tokens
		}
		for _, l := range c.lines {
			c.hits -= p.lines[l].tokens
		}
		c.uncertain = e.from.ways*last.onward%waysPrime != total
		out = append(out, c)
		k -= int(e.prompt)
		last = e.from
	}
	slices.Reverse(out)
	for i := range out[min(1, len(out)):] {
		if p.lines[out[i+1].lines[0]].ones {
			out[i].uncertain, out[i+1].uncertain = true, true
		}
	}
	overtaken(out)
	return out
}

// overtaken makes uncertain, of several engines, each chain between whose passes others lie, and these: their prompts may
// have come in another order than chain by chain.
func overtaken(chains []chain) {
	for i := range chains {
		a := &chains[i]
		between := func(line int) bool { return line > a.lines[0] && line < a.lines[len(a.lines)-1] }
		for k := range chains {
			if b := &chains[k]; len(a.lines) > 1 && b.engine != a.engine && slices.ContainsFunc(b.lines, between) {
				a.uncertain, b.uncertain = true, true
			}
		}
	}
}
