// Package pairing finds the pass of an engine's log in which each client's prompt ended, and what
// the prefix cache gave each prompt (spec#counted-hits). It counts only: no clock of the log need
// agree with the clients'.
//
// A log states for each pass how many prompts and tokens it computed, without naming requests.
// Pair reads it in steps:
//
//   - passLog (passes.go) keeps the passes that compute prompts, and cuts the log into stretches
//     before which every engine was idle;
//   - periods.go cuts the clients' requests into periods between which none was open;
//   - matching.go finds the stretches that hold as many prompts and tokens as each period;
//   - chains.go gives each prompt of a period to a pass: the tokens that passes did not compute
//     must be whole blocks;
//   - unique.go drops the matches that are not the only possible ones.
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

// Rules are what of the engine decides how passes compute prompts.
type Rules struct {
	Block       int64 // tokens of a KV block
	Budget      int64 // max_num_batched_tokens
	Chunked     bool  // a full pass may cut its last prompt
	Caching     bool  // prompts may begin in the prefix cache
	Speculative bool  // generation tokens are not outputs
	Ahead       bool  // a pass is planned before the tokens of the last one are known
}

// maxCached is how many tokens of a prompt may come from the prefix cache.
func (r *Rules) maxCached(tokens int64) int64 {
	if !r.Caching {
		return 0
	}
	return reconstruct.MaxCachedBlocks(tokens, r.Block) * r.Block
}

// wholeBlocks rounds tokens down to whole blocks; 0 for negative ones.
func (r *Rules) wholeBlocks(tokens int64) int64 { return max(0, tokens) / r.Block * r.Block }

// Pairing holds the clients' requests with the passes of the log that computed their prompts.
type Pairing struct {
	Paired int // requests whose chain is certain

	rows    []trace.ObservedRequest
	rules   Rules
	passes  *passLog
	chains  []chain
	chainOf []int32          // of each row, an index of chains; -1: none
	deltas  map[string]int64 // hits that the server counted over a phase
}

// mostEngines is the most engines of one log; the ways to give requests to more are too many.
const mostEngines = 8

// Pair finds the passes of each row's prompt; nil where there is nothing to pair or too many
// engines. read calls its argument with the iterations of the log's engines in order. Asynchronous
// engines label requests in another way: both are tried, and the one that pairs more is returned.
func Pair(rows []trace.ObservedRequest, rules Rules, engines int,
	read func(add func(engine int, it *trace.Iteration)) error) (*Pairing, error) {
	if engines > mostEngines || len(rows) == 0 {
		return nil, nil
	}
	var best *Pairing
	for _, isAsync := range []bool{false, true} {
		passes := newPassLog(rules, engines, isAsync)
		if err := read(passes.add); err != nil {
			return nil, err
		}
		g := pairRows(rows, passes)
		if best == nil || g.Paired > best.Paired {
			best = g
		}
	}
	return best, nil
}

func pairRows(rows []trace.ObservedRequest, passes *passLog) *Pairing {
	g := &Pairing{
		rows:    rows,
		rules:   passes.rules,
		passes:  passes,
		chainOf: slices.Repeat([]int32{-1}, len(rows)),
	}
	m := &matcher{passes: passes, periods: periodsOf(rows, &passes.rules), stretches: passes.stretches()}
	for _, match := range m.onlyMatches(m.findMatches()) {
		for _, c := range match.chains {
			if c.isUncertain {
				continue
			}
			for _, p := range c.prompts {
				g.chainOf[p.row] = int32(len(g.chains))
				g.Paired++
			}
			g.chains = append(g.chains, c)
		}
	}
	return g
}

// Account sums up what the cache gave the requests of each phase, in order of time: all requests,
// or those of an engine of several, counted from 1.
func (g *Pairing) Account(engine int64) []result.CachedTokens {
	var out []result.CachedTokens
	phases := map[string]int{} // index of out
	seen := map[int32]bool{}   // chains
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
		a := &out[k]
		a.Requests++
		a.PromptTokens += r.PromptTokens.V
		a.HitTokens += r.CachedTokens.V
		if c := g.chainOf[i]; c >= 0 && !seen[c] {
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
