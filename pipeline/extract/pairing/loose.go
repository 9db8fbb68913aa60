package pairing

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// This file pairs what exact matching left over: periods that miss a few of the log's prompts, because
// another client sent them, or have a few that the log does not show. Such a request must not cost the
// whole period, which may be the whole recording. The prompts and the passes of one engine are aligned in
// order with as few exceptions as possible, as texts are by edit distance.

// Limits of the alignment.
const (
	mostLooseStates = 4 << 20           // prompts times passes
	mostForeign     = 2                 // prompts of other clients in one chain
	looseShare      = 0.30              // exceptions for each prompt, at most
	fewExceptions   = 0.05              // exceptions for each prompt up to which chance plays no part
	leastLoose      = 2                 // exceptions that are always allowed
	exceptionBits   = 5.0               // bits subtracted from the evidence for each exception: the alignment chose it among about 2^5 places
	maxCost         = math.MaxInt32 / 2 // of a state from which there is no way to the end
)

// looseState is a state of the alignment: some passes and some prompts are done.
type looseState struct {
	cost   int32  // fewest exceptions from here to the end
	onward uint32 // number of ways with that cost, modulo waysPrime
	before uint32 // number of ways with the fewest exceptions from the start to here, modulo waysPrime
	from   int32  // fewest exceptions from the start to here
}

// looseMove is a step of the alignment: some passes with the prompts that end in them, or one prompt
// without a pass.
type looseMove struct {
	passes, prompts int   // number of each that it takes
	cost            int32 // exceptions: prompts of the client without a pass, or prompts of others
	hits            int64 // tokens of the prompts that the passes did not compute
	isChain         bool  // all prompts of the passes are those of the client
}

// movesFrom calls use with the moves from the state in which the first i passes and the first j
// prompts are done: skip a prompt, or pair a chain of passes with the prompts that end in it, of
// which up to mostForeign belong to other clients. If the offsets of the clocks are known, a chain whose
// last pass was at another time than its last prompt's first chunk is no move. Only chains without an
// exception are kept in the end.
func (p *passLog) movesFrom(prompts []prompt, passes []int, i, j int, offsets trace.Opt[clockOffsets], use func(looseMove)) {
	if j < len(prompts) { // a prompt that the log does not show
		cost := int32(1)
		if prompts[j].isFailed {
			cost = 0
		}
		use(looseMove{prompts: 1, cost: cost})
	}
	// A chain is lengthened while its passes are full, because then a prompt may continue in the next one.
	ends := 0            // prompts that end in the chain
	computed := int64(0) // prompt tokens of its passes
	counted := int64(0)  // their hits, -1 if the log does not count them as SGLang's does
	for k := i; k < len(passes); k++ {
		pass := &p.promptPasses[passes[k]]
		ends += int(pass.contextReqs)
		if k > i {
			ends-- // one of them continues the prompt that was cut
		}
		computed += pass.contextTokens
		if counted < 0 || pass.hits < 0 {
			counted = -1
		} else {
			counted += pass.hits
		}
		for foreign := 0; foreign <= min(mostForeign, ends); foreign++ { // prompts of other clients
			n := ends - foreign // prompts of the client
			if j+n > len(prompts) {
				continue
			}
			// The tokens that were not computed are hits in the prefix cache, of which the prompts state bounds.
			tokens := int64(0)
			least := int64(0)
			most := int64(0)
			for at := j; at < j+n; at++ {
				q := &prompts[at]
				tokens += q.tokens
				least += q.cached.V
				most += q.cached.Or(q.mostCached)
			}
			hits := tokens - computed
			if n > 0 && offsets.OK && !p.agrees(prompts[j+n-1], passes[k], offsets.V) {
				continue
			}
			move := looseMove{passes: k + 1 - i, prompts: n, cost: int32(foreign), hits: hits, isChain: foreign == 0}
			switch {
			case foreign == 0:
				isCounted := counted < 0 || counted == hits
				if isCounted && hits >= least && hits <= most && hits%max(1, p.rules.Block) == 0 {
					use(move)
				}
			case n == 0 || p.hitsFrom(max(least, hits+int64(foreign))) <= most: // the others' prompts have tokens too
				use(move)
			}
		}
		if !pass.isFull || ends > len(prompts)-j+mostForeign {
			return
		}
	}
}

// hitsFrom returns the fewest hits, whole blocks, that are not below tokens.
func (p *passLog) hitsFrom(tokens int64) int64 {
	block := max(1, p.rules.Block)
	return (tokens + block - 1) / block * block
}

// alignLoosely pairs the prompts, in one order, with the passes [from, to) of the only engine. It returns the
// chains that every alignment with the fewest exceptions has, and the number of exceptions; false if there are
// too many of these.
func (p *passLog) alignLoosely(prompts []prompt, from, to int, offsets trace.Opt[clockOffsets]) (chains []chain, exceptions int, ok bool) {
	var passes []int
	for i := from; i < to; i++ {
		passes = append(passes, i)
	}
	width := len(prompts) + 1
	if len(p.engines) != 1 || len(prompts) == 0 || len(passes) == 0 || (len(passes)+1)*width > mostLooseStates {
		return nil, 0, false
	}
	states := make([]looseState, (len(passes)+1)*width)
	at := func(i, j int) *looseState { return &states[i*width+j] } // i passes and j prompts are done
	// Backwards: the fewest exceptions from every state to the end, and the number of ways with so few.
	for i := len(passes); i >= 0; i-- {
		for j := len(prompts); j >= 0; j-- {
			s := at(i, j)
			s.cost = maxCost
			s.from = maxCost
			if i == len(passes) && j == len(prompts) {
				s.cost = 0
				s.onward = 1
				continue
			}
			p.movesFrom(prompts, passes, i, j, offsets, func(m looseMove) {
				next := at(i+m.passes, j+m.prompts)
				switch cost := next.cost + m.cost; {
				case cost < s.cost:
					s.cost = cost
					s.onward = next.onward
				case cost == s.cost && cost < maxCost:
					s.onward = (s.onward + next.onward) % waysPrime
				}
			})
		}
	}
	total := at(0, 0)
	limit := max(leastLoose, int(looseShare*float64(len(prompts))))
	if int(total.cost) > limit {
		return nil, int(total.cost), false
	}
	// Forwards along the best ways: a chain is certain if all of them lead through it.
	total.from = 0
	total.before = 1
	for i := range len(passes) + 1 {
		for j := range len(prompts) + 1 {
			s := at(i, j)
			if s.from+s.cost != total.cost {
				continue
			}
			p.movesFrom(prompts, passes, i, j, offsets, func(m looseMove) {
				next := at(i+m.passes, j+m.prompts)
				if s.from+m.cost+next.cost != total.cost {
					return
				}
				next.from = s.from + m.cost
				next.before = (next.before + s.before) % waysPrime
				if !m.isChain {
					return
				}
				ways := uint64(s.before) * uint64(next.onward) % waysPrime
				chains = append(chains, chain{
					passes:      passes[i : i+m.passes],
					prompts:     prompts[j : j+m.prompts],
					hits:        m.hits,
					isUncertain: ways != uint64(total.onward),
				})
			})
		}
	}
	p.markRepeated(chains)
	chains = slices.DeleteFunc(chains, func(c chain) bool { return c.isUncertain })
	hasFailed := slices.ContainsFunc(prompts, func(q prompt) bool { return q.isFailed })
	if p.isAsync && (hasFailed || areMany(int(total.cost), len(prompts))) {
		chains = dropAdjacentToExceptions(chains, prompts)
	}
	return chains, int(total.cost), p.isProven(chains, int(total.cost))
}

// areMany reports whether there are so many exceptions that chains adjacent to them may agree by chance.
func areMany(exceptions, prompts int) bool {
	return exceptions > max(leastLoose, int(fewExceptions*float64(prompts)))
}

// dropAdjacentToExceptions returns the chains whose neighbours in the order of prompts are in chains too. With
// asynchronous scheduling a pass counts the prompts of the pass before once more, but not those that end with
// their first token, so that next to an exception the tokens of a chain may agree by chance.
func dropAdjacentToExceptions(chains []chain, prompts []prompt) []chain {
	isPaired := map[int]bool{} // by request (prompt.row)
	for _, c := range chains {
		for _, q := range c.prompts {
			isPaired[q.row] = true
		}
	}
	place := map[int]int{} // in prompts, by request
	for i, q := range prompts {
		place[q.row] = i
	}
	return slices.DeleteFunc(chains, func(c chain) bool {
		before := place[c.prompts[0].row] - 1
		after := place[c.prompts[len(c.prompts)-1].row] + 1
		return before >= 0 && !isPaired[prompts[before].row] || after < len(prompts) && !isPaired[prompts[after].row]
	})
}

// isProven reports whether the chains agree with the passes by more than chance: the information in their
// tokens, of lengths that differ or of whole blocks, is enough.
func (p *passLog) isProven(chains []chain, exceptions int) bool {
	lengths := map[int64]bool{}
	for _, c := range chains {
		for _, q := range c.prompts {
			lengths[q.tokens] = true
		}
	}
	bitsOfChain := math.Log2(float64(max(1, len(lengths))))
	if p.rules.Caching {
		bitsOfChain = math.Min(bitsOfChain, math.Log2(float64(max(2, p.rules.Block))))
	}
	return bitsOfChain*float64(len(chains))-exceptionBits*float64(exceptions) >= leastBits
}

// looseMatches pairs what lies between the matches found, before the first and behind the last: the
// periods and the stretches that no match has. It returns the number of exceptions in all of them.
func (m *matcher) looseMatches(found []match) (out []match, exceptions int) {
	for i := 0; i <= len(found); i++ {
		// Stretches [from, to) and periods [first, last) lie between match i-1 and match i.
		from := 0
		to := len(m.stretches)
		first := 0
		last := len(m.periods)
		if i > 0 {
			from = found[i-1].to
			first = found[i-1].period + 1
		}
		if i < len(found) {
			to = found[i].from
			last = found[i].period
		}
		if from >= to || first >= last {
			continue
		}
		chains, n := m.alignBetween(found, first, last, from, to)
		if len(chains) > 0 {
			out = append(out, match{period: first, from: from, to: to, chains: chains})
			exceptions += n
		}
	}
	return out, exceptions
}

// alignBetween aligns the prompts of the periods [first, last) with the stretches [from, to), in the order of
// first chunks and in that of sends. It returns the chains of the order with fewer exceptions; of many exceptions
// in both orders, the chains that both have. There are none, and no exceptions, if neither order can be aligned.
func (m *matcher) alignBetween(found []match, first, last, from, to int) ([]chain, int) {
	for k := from; k < to; k++ {
		if m.stretches[k].isBroken {
			return nil, 0 // passes are missing, not requests
		}
	}
	var best []chain
	fewest := math.MaxInt
	var before []prompt // in the order that was tried before
	for _, isBySend := range []bool{false, true} {
		var prompts []prompt
		for k := first; k < last; k++ {
			period := &m.periods[k]
			if period.isUnusable || len(period.orders) == 0 {
				return nil, 0
			}
			order := period.orders[0] // of first chunks
			if isBySend {
				order = period.orders[len(period.orders)-1]
			}
			prompts = append(prompts, period.withFailed(order)...)
		}
		if slices.EqualFunc(prompts, before, hasSameRow) {
			break
		}
		before = prompts
		chains, n, ok := m.alignWithClocks(found, prompts, m.stretches[from].from, m.stretches[to-1].to)
		switch {
		case !ok:
		case n < fewest:
			best = chains
			fewest = n
		case n == fewest && areMany(n, len(prompts)):
			best = chainsOfBoth(best, chains)
		}
	}
	if len(best) == 0 {
		return nil, 0
	}
	return best, fewest
}

// alignWithClocks aligns prompts with the passes [from, to) by their tokens, and again with the passes left out
// that were at another time than the prompt, by the common offsets of the clocks. It returns the second alignment
// if that has as many chains.
func (m *matcher) alignWithClocks(found []match, prompts []prompt, from, to int) ([]chain, int, bool) {
	chains, exceptions, ok := m.log.alignLoosely(prompts, from, to, trace.Opt[clockOffsets]{})
	if !ok {
		return nil, 0, false
	}
	if certainPrompts([]match{{chains: chains}}) == len(prompts) {
		return chains, exceptions, true
	}
	offsets := m.commonOffsets(append(found, match{chains: chains}))
	timed, timedExceptions, ok := m.log.alignLoosely(prompts, from, to, trace.Some(offsets))
	if ok && len(timed) >= len(chains) {
		return timed, timedExceptions, true
	}
	return chains, exceptions, true
}

// chainsOfBoth returns the chains of a that b has too: the same passes and requests.
func chainsOfBoth(a, b []chain) []chain {
	var out []chain
	for _, c := range a {
		isSame := func(other chain) bool {
			return slices.Equal(c.passes, other.passes) && slices.EqualFunc(c.prompts, other.prompts, hasSameRow)
		}
		if slices.ContainsFunc(b, isSame) {
			out = append(out, c)
		}
	}
	return out
}

// hasSameRow reports whether two prompts are of one request.
func hasSameRow(a, b prompt) bool { return a.row == b.row }
