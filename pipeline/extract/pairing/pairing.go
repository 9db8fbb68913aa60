// Package pairing finds, for each request that a client recorded, the pass of the engine's log in
// which its prompt ended, and how many tokens of the prompt came from the prefix cache
// (spec#counted-hits).
//
// An engine's log gives for each pass (one run of the model) the number of prompts and tokens that
// it computed, but does not name the requests. Clients record the requests, but not the passes. The
// package matches both by counting tokens. It does not need clocks that agree.
//
// Pair works in steps:
//
//   - passes.go keeps the passes that compute prompts, and cuts the log into stretches before which
//     every engine was idle;
//   - periods.go cuts the clients' requests into busy periods, between which no request was open;
//   - matching.go finds for each period the stretches with as many prompts and tokens;
//   - chains.go divides the prompts of a period among the passes of its stretches. The tokens of a
//     prompt that no pass computed came from the cache, so they must be whole KV blocks;
//   - unique.go drops matches that are not the only possible ones.
//
// Pairing.Fill then writes what was found into the requests (cached.go), and Pairing.Check
// compares it with the server's counters (counters.go).
package pairing

import (
	"slices"

	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Rules are the settings of the engine that decide how passes compute prompts.
type Rules struct {
	Block       int64 // tokens of a KV block
	Budget      int64 // max_num_batched_tokens
	Chunked     bool  // a full pass may cut its last prompt
	Caching     bool  // prompts may begin in the prefix cache
	Speculative bool  // generation tokens include drafts that may be rejected
	Ahead       bool  // a pass is planned before the tokens of the last one are known
}

// maxCached returns the largest number of tokens of a prompt that may come from the prefix cache. The
// last token is always computed, because its logits are needed.
func (r *Rules) maxCached(tokens int64) int64 {
	if !r.Caching {
		return 0
	}
	return reconstruct.MaxCachedBlocks(tokens, r.Block) * r.Block
}

// wholeBlocks returns tokens rounded down to whole blocks; 0 for negative ones.
func (r *Rules) wholeBlocks(tokens int64) int64 { return max(0, tokens) / r.Block * r.Block }

// Pairing is the clients' requests with the passes of the log that computed their prompts.
type Pairing struct {
	Paired int // number of requests whose chain is certain

	// Exceptions is how many prompts of the log no client sent, or of the clients no pass computed, where all
	// others around them pair.
	Exceptions int

	Unpaired int // answered requests beside a log of prompts, where none of them pairs; else 0

	rows    []trace.ObservedRequest
	rules   Rules
	log     *passLog
	chains  []chain          // those that are certain
	chainOf []int32          // for each row its index in chains; -1 for none
	deltas  map[string]int64 // by phase, the hits that the server's counters gained over it (Check)
}

// mostEngines is the largest number of engines of one log that are paired. With more, there are too
// many ways to divide the requests among them.
const mostEngines = 8

// exceptionPairs is the number of paired requests that an exception outweighs where two pairings are
// compared: one with many exceptions may pair more by chance.
const exceptionPairs = 2

// Pair finds the passes of the prompts of rows, the requests of the clients. read calls its
// argument with the iterations of all engines of the log in order. An engine with asynchronous
// scheduling counts a request as a prompt until its first token has come back; a log does not state
// whether it does, so both are tried and the one that pairs more requests is returned. The result
// is nil if there are no requests to pair, or too many engines.
func Pair(rows []trace.ObservedRequest, rules Rules, engines int,
	read func(add func(engine int, it *trace.Iteration)) error) (*Pairing, error) {
	if engines > mostEngines || len(rows) == 0 {
		return nil, nil
	}
	var best *Pairing
	for _, isAsync := range []bool{false, true} {
		log := newPassLog(rules, engines, isAsync)
		if err := read(log.addPass); err != nil {
			return nil, err
		}
		g := pairRows(rows, log)
		if best == nil || g.Paired-exceptionPairs*g.Exceptions > best.Paired-exceptionPairs*best.Exceptions {
			best = g
		}
	}
	return best, nil
}

// pairRows returns the requests paired with the passes of a log, with the chains that are certain. It
// matches whole busy periods first, then aligns what lies between these with exceptions, and if some
// requests are left, it also aligns everything at once and uses the better of both.
func pairRows(rows []trace.ObservedRequest, log *passLog) *Pairing {
	g := &Pairing{
		rows:    rows,
		rules:   log.rules,
		log:     log,
		chainOf: slices.Repeat([]int32{-1}, len(rows)),
	}
	m := &matcher{log: log, periods: periodsOf(rows, &log.rules), stretches: log.stretches()}
	found := m.findMatches()
	loose, exceptions := m.looseMatches(found) // before onlyMatches, which changes found
	matches := m.onlyMatches(found)
	if len(loose) > 0 {
		g.Exceptions = exceptions
		matches = append(matches, loose...)
	}
	// An alignment of all requests at once does not depend on where the busy periods were cut.
	if certain := certainPrompts(matches); certain < m.answeredPrompts() && len(m.stretches) > 0 {
		chains, exceptions := m.alignBetween(nil, 0, len(m.periods), 0, len(m.stretches))
		whole := []match{{chains: chains}}
		if len(chains) > 0 && certainPrompts(whole)-exceptionPairs*exceptions > certain-exceptionPairs*g.Exceptions {
			g.Exceptions = exceptions
			matches = whole
		}
	}
	for _, match := range matches {
		for _, c := range match.chains {
			if c.isUncertain {
				continue
			}
			for _, p := range c.prompts {
				g.chainOf[p.row] = int32(len(g.chains))
				if !p.isFailed {
					g.Paired++
				}
			}
			g.chains = append(g.chains, c)
		}
	}
	if g.Paired == 0 && len(m.stretches) > 0 {
		g.Unpaired = m.answeredPrompts()
	}
	return g
}

// certainPrompts returns the number of answered requests in the chains that are certain.
func certainPrompts(matches []match) int {
	n := 0
	for _, match := range matches {
		for _, c := range match.chains {
			if c.isUncertain {
				continue
			}
			for _, p := range c.prompts {
				if !p.isFailed {
					n++
				}
			}
		}
	}
	return n
}

// answeredPrompts returns the number of answered requests of all periods.
func (m *matcher) answeredPrompts() int {
	n := 0
	for i := range m.periods {
		n += len(m.periods[i].prompts)
	}
	return n
}

// Account returns the sums of the cached tokens of the requests of each phase, in the order in which the
// phases first occur in the requests. engine 0 means all requests; otherwise they are those of one engine,
// counted from 1. The server's counters are of all engines, so only the sums of all have them.
func (g *Pairing) Account(engine int64) []result.CachedTokens {
	var out []result.CachedTokens
	phases := map[string]int{} // index of out
	seen := map[int32]bool{}   // chains that were counted
	for i := range g.rows {
		r := &g.rows[i]
		hasChunks := r.FirstChunkNs.OK || r.LastChunkNs.OK
		if !r.PromptTokens.OK || !hasChunks || engine > 0 && r.Engine.V != engine {
			continue
		}
		k, ok := phases[r.Phase.V]
		if !ok {
			k = len(out)
			phases[r.Phase.V] = k
			delta, isKnown := g.deltas[r.Phase.V]
			out = append(out, result.CachedTokens{
				Phase:         r.Phase.V,
				CounterTokens: trace.Opt[int64]{V: delta, OK: isKnown && engine == 0},
			})
		}
		sums := &out[k]
		sums.Requests++
		sums.PromptTokens += r.PromptTokens.V
		sums.HitTokens += r.CachedTokens.V
		if c := g.chainOf[i]; c >= 0 && !seen[c] {
			seen[c] = true
			sums.Chains++
		}
		switch {
		case !r.CachedTokens.OK:
			sums.Unpaired++
		case r.CachedSource.V == trace.CachedUsage:
			sums.Usage++
		case r.CachedSource.V == trace.CachedExact || r.CachedMin.V == r.CachedMax.V:
			sums.Exact++
		default: // a guess within bounds
			sums.Bounded++
		}
	}
	return out
}
