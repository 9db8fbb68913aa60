package sim

import (
	"math/rand/v2"

	"github.com/blis-train/blis-train/deploy"
)

// speculation is the state of speculative decoding: a drafter proposes up to k tokens
// behind each request's last one, and the request's next step verifies them.
type speculation struct {
	*deploy.Speculation
	lookahead  int64
	slots      int64 // tokens the drafter adds for each scheduled request
	input      int64 // tokens of the step being formed that are left for both
	perRequest bool  // slots are counted for each scheduled request
	dropBlock  bool  // a hit's last block is dropped
	hashAhead  bool  // hashes cover the token behind their block
	source     rand.PCG
	rng        *rand.Rand // of source
}

func newSpeculation(e *Engine, s *deploy.Speculation) *speculation {
	d := &e.cfg.Deployment.Engine
	sp := &speculation{Speculation: s, lookahead: s.Lookahead(), slots: s.Slots(), perRequest: e.rules.DraftSlotsPerRequest}
	sp.source.Seed(uint64(e.cfg.Seed), 0xacce97)
	sp.rng = rand.New(&sp.source)
	sp.dropBlock = s.IsEagle() && !(s.KeepBlock && e.rules.EagleBlockDropOff)
	if sp.dropBlock && e.rules.LookaheadHashes && !s.PlainHashes && d.Extra["kv_transfer_config"] == nil && !d.CPUOffloading {
		sp.dropBlock, sp.hashAhead = false, true
	}
	if e.rules.DraftSlotsReserved {
		e.budget -= sp.slots * d.MaxNumSeqs
	}
	return sp
}

// room is how many tokens one more request may have in the step being formed.
func (e *Engine) room(budget int64) int64 {
	if e.spec == nil || !e.spec.perRequest {
		return budget
	}
	return min(budget, e.spec.input-e.spec.slots)
}

// spend takes a request of n tokens off the drafter's part of the budget; a negative
// count of requests gives it back.
func (e *Engine) spend(n, requests int64) {
	if e.spec != nil {
		e.spec.input -= requests * (n + e.spec.slots)
	}
}

// lookaheadFor is the number of tokens behind those of a first step that blocks are
// taken for; load: the request's tokens come from elsewhere.
func (e *Engine) lookaheadFor(s *seq, load bool) int64 {
	switch {
	case e.spec == nil,
		!e.rules.FirstLookahead && s.computed == 0,
		load && (e.rules.LoadsNoLookahead || e.rules.FirstLookahead && e.spec.IsEagle()):
		return 0
	}
	return e.spec.lookahead
}

// draftsOf takes the drafts that n more tokens of s verify: what they reach beyond its known tokens.
func (e *Engine) draftsOf(s *seq, n int64) int32 {
	if s.drafts == 0 {
		return 0
	}
	d := min(s.drafts, n+s.computed-s.tokens()-s.inFlight)
	s.drafts = 0
	return int32(max(0, d))
}

// padded is the number of tokens of a request admitted with one token left, and
// whether it waits instead: its drafts are empty, so that the step stays uniform.
func (e *Engine) padded(computed, budget int64) (n int64, pad, wait bool) {
	if e.spec == nil || !e.rules.DecodePadding || e.spec.ByBatchSize != nil && e.rules.DraftsByBatchSize || e.cadence.chunks {
		return 1, false, false
	}
	n = 1 + e.spec.Tokens
	others := len(e.cur) > int(e.view.Admitted)
	if e.rules.DecodePaddingAlone {
		if !others && computed == 0 || computed+n+1 > e.maxLen {
			return 1, false, false
		}
		return n, n <= budget, n > budget
	}
	if !others {
		return 1, false, false
	}
	wait = n > budget || computed+n > e.maxLen
	return n, !wait, wait
}

// proposals is how many drafts follow a step of so many requests.
func (e *Engine) proposals(requests int) int64 {
	switch {
	case e.spec == nil:
		return 0
	case e.rules.DraftsByBatchSize:
		return e.spec.TokensFor(int64(requests))
	}
	return e.spec.Tokens
}

// propose notes the drafts behind an updated step of a synchronous engine.
func (e *Engine) propose(f *flight) {
	k := e.proposals(len(f.items))
	for i := range f.items {
		it := &f.items[i]
		s := it.s
		if s.status == statusDone || int32(s.idx) != it.idx {
			continue
		}
		if s.chunk && e.rules.NoDraftsAfterChunks {
			s.drafts = 0
			continue
		}
		s.drafts = k
		if p := s.req.Proposed; s.verified < int64(len(p)) {
			s.drafts = min(k, int64(p[s.verified]))
		}
	}
}

// accepted draws how many of n drafts of s the model agrees with: what a recording says
// of its verifies in order, else by the rates.
func (e *Engine) accepted(s *seq, n int64) int64 {
	at := s.verified
	s.verified++
	if a := s.req.Accepted; a != nil {
		if at < int64(len(a)) {
			return max(0, min(n, int64(a[at])))
		}
		return 0
	}
	u, j := e.spec.rng.Float64(), int64(0)
	for j < min(n, int64(len(e.spec.Rates))) && u < e.spec.Rates[j] {
		j++
	}
	return j
}
