package sim

// This file looks requests up in the prefix cache (kv_cache_manager.py).

// findHits returns the cached blocks of the longest known prefix of s, but leaves at least one
// token to compute (kv_cache_manager.py: get_computed_blocks()). The next call overwrites the
// result.
func (e *Engine) findHits(s *seq) []int32 {
	hits := e.reuse.hits[:0]
	if e.pool.Caching {
		for b := range (s.tokens() - 1) / e.blockSize {
			hash, own := s.content.Block(b, e.blockSize)
			if own && s.preempted == 0 {
				break // own content, and s has computed nothing yet
			}
			block, ok := e.pool.Lookup(hash)
			if !ok {
				break
			}
			hits = append(hits, block)
		}
		if len(hits) > 0 && e.spec != nil && e.spec.dropBlock {
			hits = hits[:len(hits)-1] // the drafter must compute these tokens for KV of its own
		}
	}
	e.reuse.hits = hits
	return hits
}

// registerBlocks makes the full blocks within the first `tokens` tokens of s findable by later
// requests (kv_cache_manager.py: cache_blocks()).
func (e *Engine) registerBlocks(s *seq, tokens int64) {
	tokens = min(tokens, s.tokens()-s.content.Ahead)
	if tokens < (s.held.Registered+1)*e.blockSize {
		return
	}
	full := tokens / e.blockSize
	first := s.held.Registered
	last := full
	if e.kvLog == nil {
		last = min(full, s.shared) // no other request can have the content of later blocks
	}
	for b := first; b < last; b++ {
		hash, own := s.content.Block(b, e.blockSize)
		e.pool.Register(&s.held, hash, own)
	}
	if e.kvLog == nil {
		e.pool.RegisterOwn(&s.held, full)
		return
	}
	e.kvLog.stored(e, s, first, full)
}

// cachedAtFirst records that `tokens` tokens of s were cached in this engine at its first
// admission.
func (e *Engine) cachedAtFirst(s *seq, tokens int64) {
	s.cached = tokens
	s.res.CachedTokens = tokens
	e.out.HitTokens += min(tokens, s.prompt)
	e.out.LookedUpTokens += s.prompt
}
