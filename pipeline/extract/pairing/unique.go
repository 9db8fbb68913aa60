package pairing

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// This file leaves out the periods whose passes others may have been.

// clockSlackNs is how far the stamp of a line may lie from the chunk that its pass brought,
// beside the resolution of the stamp.
const clockSlackNs = 300_000_000

// span is the range of the log's clock less the clients' that a chain allows; ok is false
// for a line without a stamp.
func (p *Passes) span(c *chain) (lo, hi int64, ok bool) {
	l := &p.lines[c.lines[len(c.lines)-1]]
	first := c.prompts[len(c.prompts)-1].firstNs
	d := l.stampNs.V - first
	return d - clockSlackNs, d + l.stampStep + clockSlackNs, l.stampNs.OK
}

// offset is what most chains allow.
func (p *Passes) offset(found []match) int64 {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, m := range found {
		for k := range m.chains {
			if lo, hi, ok := p.span(&m.chains[k]); ok {
				edges = append(edges, edge{lo, 1}, edge{hi, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.step, a.step)) })
	now := 0
	most := 0
	at := int64(0)
	for _, e := range edges {
		if now += e.step; now > most {
			most, at = now, e.at
		}
	}
	return at
}

// isOff says that the lines of chains were not stamped when their chunks came, within slack ns.
func (p *Passes) isOff(chains []chain, offset, slack int64) bool {
	return 2*stat.Count(chains, func(c chain) bool {
		lo, hi, ok := p.span(&c)
		return ok && (offset < lo-slack || offset > hi+slack)
	}) > len(chains)
}

// sure keeps the matches that are the only ones: the stamps agree with them, and beside
// periods or stretches that were passed over no others fit as well.
func (p *Passes) sure(found []match, periods []period, s []stretch) []match {
	c := choices{p, periods, s, p.offset(found)}
	found = slices.DeleteFunc(found, func(m match) bool { return p.isOff(m.chains, c.offset, 0) })
	open := make([]bool, len(found))
	for i := 0; i <= len(found); i++ {
		from := 0
		to := len(s)
		before := -1
		after := len(periods)
		if i > 0 {
			from, before = found[i-1].to, found[i-1].period
		}
		if i < len(found) {
			to, after = found[i].from, found[i].period
		}
		if from < to {
			c.shifted(found, open, i-1, -1, to)
			c.shifted(found, open, i, 1, from)
		}
		if n := after - before - 1; n > 0 {
			c.others(found, open, i-1, -1, n)
			c.others(found, open, i, 1, n)
		}
	}
	if n := len(found) - 1; n >= 0 && found[n].to == len(s) && found[n].period < len(periods)-1 {
		open[n] = true // the log may have ended within its work
	}
	for i := range found {
		m := &found[i]
		if m.to == m.from || m.to == len(s) || !p.lines[s[m.to-1].to-1].full {
			continue
		}
		if _, e := p.block(&periods[m.period], s, m.from, m.to); e >= 0 { // its last prompt may have been cut
			open[i] = true
			open[min(i+1, len(open)-1)] = true
		}
	}
	c.unproven(found, open)
	at := -1
	return slices.DeleteFunc(found, func(match) bool {
		at++
		return open[at]
	})
}

// Rules of runs of matches between things passed over, unless they begin with the log and the
// first request or end with both: they must fit by more than chance.
const (
	matchBits = 3.0  // that the counts of a period tell, beside its checksums
	leastBits = 20.0 // of a run
	neighbour = 30   // periods on either side that must not fit as well
)

// unproven marks the runs of which chance may be the reason.
func (c *choices) unproven(found []match, open []bool) {
	for i := 0; i < len(found); {
		k := i + 1
		for k < len(found) && found[k].from == found[k-1].to && found[k].period == found[k-1].period+1 {
			k++
		}
		first, last := &found[i], &found[k-1]
		isWhole := first.from == 0 && first.period == 0 || last.to == len(c.s) && last.period == len(c.periods)-1
		bits := 0.0
		for m := i; m < k && !isWhole && bits < leastBits; m++ {
			if c.isDistinct(&found[m]) {
				bits += matchBits + float64(len(found[m].chains))*math.Log2(float64(max(2, c.p.rules.Block)))
			}
		}
		for ; i < k; i++ {
			open[i] = open[i] || !isWhole && bits < leastBits
		}
	}
}

// isDistinct says that none of the periods around fits the stretches of a match.
func (c *choices) isDistinct(m *match) bool {
	for j := max(0, m.period-neighbour); j < min(len(c.periods), m.period+neighbour); j++ {
		if j == m.period || len(c.periods[j].prompts) == 0 {
			continue
		}
		if _, e := c.p.block(&c.periods[j], c.s, m.from, m.from); e >= 0 {
			return false
		}
	}
	return true
}

// choices are the other ways to match.
type choices struct {
	p       *Passes
	periods []period
	s       []stretch
	offset  int64
}

// fits says where the stretches from k on end, beyond one, that a period may take; -1 where they do not fit.
func (c *choices) fits(period, k, beyond int) int {
	chains, end := c.p.block(&c.periods[period], c.s, k, beyond)
	if end >= 0 && c.p.isOff(chains, c.offset, 1e9) {
		return -1
	}
	return end
}

// shifted marks match i and those beyond it in a direction while each may also lie in
// stretches towards limit and take of those that the one before it left free.
func (c *choices) shifted(found []match, open []bool, i, direction, limit int) {
	for ; i >= 0 && i < len(found); i += direction {
		m, at := &found[i], -1
		lo := limit
		hi := m.from
		beyond := 0
		most := m.to // earlier ones
		if direction < 0 {
			lo = m.from + 1
			hi = limit
			beyond = m.to
			most = limit
		}
		for k := lo; k < hi && (direction < 0 || at < 0); k++ {
			if e := c.fits(m.period, k, beyond); e >= 0 && e <= most {
				if at = k; direction > 0 {
					at = e
				}
			}
		}
		if at < 0 {
			return
		}
		open[i], limit = true, at
	}
}

// others marks match i and those beyond it in a direction while their stretches fit one of
// the n periods that stand free on the other side.
func (c *choices) others(found []match, open []bool, i, direction, n int) {
	for ; i >= 0 && i < len(found); i += direction {
		fits := false
		for k := 1; k <= n && !fits; k++ {
			j := found[i].period - direction*k
			fits = j >= 0 && j < len(c.periods) && len(c.periods[j].prompts) > 0 && c.fits(j, found[i].from, 0) >= 0
		}
		if !fits {
			return
		}
		open[i] = true
	}
}

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
		sum := int64(0)
		tokens := int64(0)
		least := int64(0)
		most := int64(0)
		counted := int64(0)
		n := 0
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
				sum += q.tokens
				least += q.cached.V
				most += q.cached.Or(q.most)
			}
			n += more
			tokens += l.tokens
			counted += l.hits
			hits := sum - tokens
			if hits >= least && hits <= most && hits%max(1, p.rules.Block) == 0 && (l.hits < 0 || hits == counted) &&
				(i > int(at.at[e]) || p.leave(prompts[k:k+n], l)) {
				use(edge{from: at, engine: int32(e), lines: int32(i+1) - at.at[e], prompt: int32(n)})
			}
			if !l.full || tokens >= sum+longer(prompts[k+n-1:]) {
				break
			}
		}
	}
}

// leave says that, of several engines, requests left l's in the passes that brought the last tokens of prompts that l ended.
func (p *Passes) leave(prompts []prompt, l *workLine) bool {
	e := &p.engines[l.engine]
	return len(e.left) == 0 || p.rules.Speculative || p.tokens > p.reqs || !slices.ContainsFunc(prompts, func(q prompt) bool {
		at := l.at + int(q.out) - 1
		return at >= len(e.left) || e.left[at] < 1 && !((p.rules.async || p.rules.Ahead) && at+1 < len(e.left) && e.left[at+1] > 0)
	})
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
		c.hits = stat.Sum(c.prompts, func(q prompt) int64 { return q.tokens }) - stat.Sum(c.lines, func(l int) int64 { return p.lines[l].tokens })
		c.uncertain = e.from.ways*last.onward%waysPrime != total
		out = append(out, c)
		k -= int(e.prompt)
		last = e.from
	}
	slices.Reverse(out)
	for i := range out[min(1, len(out)):] {
		if p.lines[out[i+1].lines[0]].ones {
			out[i].uncertain = true
			out[i+1].uncertain = true
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
