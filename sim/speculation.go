package sim

// This file is speculative decoding. Words: a draft is a proposed token; a step verifies the drafts
// of a request by computing them after the request's last known token; k is the number of drafts
// for each request. Blocks for further tokens are allocated ahead (lookahead), because drafts need
// KV too.

import (
	"math/rand/v2"

	"github.com/blis-train/blis-train/vllm"
)

// speculation is the state of speculative decoding: a drafter proposes up to k tokens after each
// request's last one, and the request's next step verifies them. The methods of a nil *speculation
// describe an engine without a drafter.
type speculation struct {
	*vllm.Speculation       // the deployment's speculative_config; Tokens is k
	lookahead         int64 // further tokens for which a step allocates blocks: num_lookahead_tokens
	slots             int64 // tokens that the drafter adds to the input for each scheduled request
	input             int64 // remaining input budget of the step being formed, tokens of requests and draft slots

	slotsPerRequest  bool // slots count for each scheduled request, since 0.28
	firstLookahead   bool // an admission's blocks count the lookahead, since 0.23
	loadsNoLookahead bool // those of a load never do, since 0.25
	byBatchSize      bool // num_speculative_tokens_per_batch_size, since 0.24
	padsDecodes      bool // a request admitted with one token left gets 1 + k, since 0.25
	padsAlone        bool // also when no other request decodes, since 0.30
	noneAfterChunks  bool // drafts after an unfinished prompt are dropped, since 0.19
	dropBlock        bool // the last block of a prefix hit is not used, because the drafter needs its own KV
	hashAhead        bool // hashes include the token after their block, so that no block is dropped; 0.33

	source rand.PCG
	rng    *rand.Rand // of source
}

// newSpeculation returns the state for an engine whose deployment has drafter s, by the rules of
// its vLLM release.
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
	if r.DraftSlotsReserved { // for as many requests as may run, whether they do or not
		e.budget -= sp.slots * d.MaxNumSeqs
	}
	return sp
}

// clone returns an independent copy, which will draw the same random numbers.
func (sp *speculation) clone() *speculation {
	if sp == nil {
		return nil
	}
	own := *sp
	own.rng = rand.New(&own.source)
	return &own
}

// ahead returns the number of tokens after those of a running request's step for which blocks are
// allocated.
func (sp *speculation) ahead() int64 {
	if sp == nil {
		return 0
	}
	return sp.lookahead
}

// begin starts a step with an input budget of max_num_batched_tokens.
func (sp *speculation) begin(budget int64) {
	if sp != nil {
		sp.input = budget
	}
}

// room returns the number of tokens that one more request may have in the step being formed, given
// the token budget that is left.
func (sp *speculation) room(budget int64) int64 {
	if sp == nil || !sp.slotsPerRequest {
		return budget
	}
	return min(budget, sp.input-sp.slots)
}

// spend subtracts a request of n tokens from the input budget if requests is 1, and adds it back if
// requests is -1.
func (sp *speculation) spend(n, requests int64) {
	if sp != nil {
		sp.input -= requests * (n + sp.slots)
	}
}

// firstLookaheadOf returns the number of tokens after those of the first step of s for which blocks
// are allocated. load is true if the request's KV is loaded from elsewhere, in which case that step
// computes nothing. There are none for an admission before 0.23 unless KV of the request was loaded,
// and none for a load since 0.25, nor in 0.23 and 0.24 if the drafter has KV of its own (EAGLE).
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

// takeDrafts returns how many drafts of s a step of n tokens verifies: the tokens beyond the known
// ones. Further drafts are dropped.
func (s *seq) takeDrafts(n int64) int32 {
	if s.drafts == 0 {
		return 0
	}
	beyond := n + s.computed - s.tokens() - s.inFlight
	verified := min(s.drafts, beyond)
	s.drafts = 0
	return int32(max(0, verified))
}

// padDecode returns the number of tokens for a request that is admitted with one token left to
// compute. It is padded with drafts so that all requests of the step have equally many tokens,
// which CUDA graphs of decodes require (scheduler.py: schedule(), pad_spec_decode). computed is how
// many of its tokens are in KV; others means that running requests are in this step. If the padding
// does not fit, wait is true and the request stays in the queue. Since 0.30 (padsAlone) padding that
// would pass max_model_len is left out instead, and a request is padded without others too, unless
// it is a prompt of a single token.
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

// proposals returns the number of drafts for each request after a step with a number of requests.
func (sp *speculation) proposals(requests int) int64 {
	switch {
	case sp == nil:
		return 0
	case sp.byBatchSize:
		return sp.TokensFor(int64(requests))
	}
	return sp.Tokens
}

// propose gives the requests of a step that was processed their new drafts, in a synchronous engine
// (scheduler.py: update_draft_token_ids()).
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
		if proposed := s.req.Proposed; s.verified < int64(len(proposed)) {
			s.drafts = min(k, int64(proposed[s.verified]))
		}
	}
}

// accepted returns how many of n verified drafts of s are accepted: as many as in its recording, or
// a number drawn from the deployment's acceptance rates.
func (sp *speculation) accepted(s *seq, n int64) int64 {
	verify := s.verified
	s.verified++
	if recorded := s.req.Accepted; recorded != nil {
		if verify < int64(len(recorded)) {
			return max(0, min(n, int64(recorded[verify])))
		}
		return 0
	}
	// Rates[i] is the probability that the first i+1 drafts are accepted, so one draw decides for all.
	u := sp.rng.Float64()
	agreed := int64(0)
	for agreed < min(n, int64(len(sp.Rates))) && u < sp.Rates[agreed] {
		agreed++
	}
	return agreed
}
