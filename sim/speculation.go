package sim

import (
	"math/rand/v2"

	"github.com/blis-train/blis-train/vllm"
)

// speculation is the state of speculative decoding: a drafter proposes up to k tokens behind
// each request's last one, and the request's next step verifies them. A nil *speculation is an
// engine without a drafter.
type speculation struct {
	*vllm.Speculation
	lookahead int64 // tokens behind a step's own that blocks are allocated for: num_lookahead_tokens
	slots     int64 // tokens that the drafter adds to the input for each scheduled request
	input     int64 // remaining input budget of the step being formed, tokens of requests and draft slots

	slotsPerRequest  bool // slots count for each scheduled request, since 0.28
	firstLookahead   bool // an admission's blocks count the lookahead, since 0.23
	loadsNoLookahead bool // those of a load never do, since 0.25
	byBatchSize      bool // num_speculative_tokens_per_batch_size, since 0.24
	padsDecodes      bool // a request admitted with one token left gets 1 + k, since 0.25
	padsAlone        bool // also when no other request decodes, since 0.30
	noneAfterChunks  bool // drafts behind an unfinished prompt are dropped, since 0.19
	dropBlock        bool // a prefix hit's last block is dropped: the drafter needs KV of its own for it
	hashAhead        bool // hashes cover the token behind their block, so that no block is dropped, since 0.33

	source rand.PCG
	rng    *rand.Rand // of source
}

func newSpeculation(e *Engine, s *vllm.Speculation) *speculation {
	d := &e.cfg.Deployment.Engine
	r := &e.rules
	sp := &speculation{
		Speculation:      s,
		lookahead:        s.Lookahead(),
		slots:            s.Slots(),
		slotsPerRequest:  r.DraftSlotsPerRequest,
		firstLookahead:   r.FirstLookahead,
		loadsNoLookahead: r.LoadsNoLookahead,
		byBatchSize:      r.DraftsByBatchSize,
		padsDecodes:      r.DecodePadding && !(s.ByBatchSize != nil && r.DraftsByBatchSize),
		padsAlone:        r.DecodePaddingAlone,
		noneAfterChunks:  r.NoDraftsAfterChunks,
	}
	sp.source.Seed(uint64(e.cfg.Seed), 0xacce97)
	sp.rng = rand.New(&sp.source)
	sp.dropBlock = s.IsEagle() && !(s.KeepBlock && r.EagleBlockDropOff)
	if sp.dropBlock && r.LookaheadHashes && !s.PlainHashes && d.Extra["kv_transfer_config"] == nil && !d.CPUOffloading {
		sp.dropBlock = false
		sp.hashAhead = true
	}
	if r.DraftSlotsReserved {
		e.budget -= sp.slots * d.MaxNumSeqs
	}
	return sp
}

// clone is an independent copy, with the same random numbers to come.
func (sp *speculation) clone() *speculation {
	if sp == nil {
		return nil
	}
	own := *sp
	own.rng = rand.New(&own.source)
	return &own
}

// ahead is the number of tokens behind those of a running request's step that blocks are
// allocated for.
func (sp *speculation) ahead() int64 {
	if sp == nil {
		return 0
	}
	return sp.lookahead
}

// begin starts a step with its input budget, max_num_batched_tokens.
func (sp *speculation) begin(budget int64) {
	if sp != nil {
		sp.input = budget
	}
}

// room is how many tokens one more request may have in the step being formed.
func (sp *speculation) room(budget int64) int64 {
	if sp == nil || !sp.slotsPerRequest {
		return budget
	}
	return min(budget, sp.input-sp.slots)
}

// spend takes a request of n tokens off the input budget; a negative count of requests gives it
// back.
func (sp *speculation) spend(n, requests int64) {
	if sp != nil {
		sp.input -= requests * (n + sp.slots)
	}
}

// firstLookaheadOf is the number of tokens behind those of a request's first step that blocks
// are allocated for. load: the request's tokens come from elsewhere.
func (sp *speculation) firstLookaheadOf(s *seq, load bool) int64 {
	switch {
	case sp == nil:
		return 0
	case !sp.firstLookahead && s.computed == 0:
		return 0
	case load && (sp.loadsNoLookahead || sp.firstLookahead && sp.IsEagle()):
		return 0
	}
	return sp.lookahead
}

// takeDrafts is how many drafts n more tokens of s verify: those beyond its known tokens. The
// rest of its drafts is dropped.
func (s *seq) takeDrafts(n int64) int32 {
	if s.drafts == 0 {
		return 0
	}
	d := min(s.drafts, n+s.computed-s.tokens()-s.inFlight)
	s.drafts = 0
	return int32(max(0, d))
}

// padDecode is the number of tokens of a request that is admitted with one token left. Its
// drafts are padding, so that the step stays a uniform decode (scheduler.py: schedule(),
// pad_spec_decode). others: running requests are scheduled in this step. wait: the padding does
// not fit and the request stays in the queue.
func (sp *speculation) padDecode(computed, budget, maxLen int64, others bool) (n int64, wait bool) {
	n = 1 + sp.Tokens
	if sp.padsAlone {
		if !others && computed == 0 || computed+n+1 > maxLen {
			return 1, false
		}
		return n, n > budget
	}
	if !others {
		return 1, false
	}
	return n, n > budget || computed+n > maxLen
}

// proposals is how many drafts follow a step of so many requests.
func (sp *speculation) proposals(requests int) int64 {
	switch {
	case sp == nil:
		return 0
	case sp.byBatchSize:
		return sp.TokensFor(int64(requests))
	}
	return sp.Tokens
}

// propose notes the drafts behind an updated step of a synchronous engine (scheduler.py:
// update_draft_token_ids()).
func (sp *speculation) propose(items []item) {
	k := sp.proposals(len(items))
	for i := range items {
		it := &items[i]
		s := it.s
		if s.status == statusDone || int32(s.idx) != it.idx {
			continue
		}
		if s.chunk && sp.noneAfterChunks {
			s.drafts = 0
			continue
		}
		s.drafts = k
		if p := s.req.Proposed; s.verified < int64(len(p)) {
			s.drafts = min(k, int64(p[s.verified]))
		}
	}
}

// accepted is how many of n drafts of s the model agrees with: as its recording has it, verify by
// verify, else drawn from the deployment's rates.
func (sp *speculation) accepted(s *seq, n int64) int64 {
	verify := s.verified
	s.verified++
	if recorded := s.req.Accepted; recorded != nil {
		if verify < int64(len(recorded)) {
			return max(0, min(n, int64(recorded[verify])))
		}
		return 0
	}
	u := sp.rng.Float64()
	agreed := int64(0)
	for agreed < min(n, int64(len(sp.Rates))) && u < sp.Rates[agreed] {
		agreed++
	}
	return agreed
}
