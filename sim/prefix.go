package sim

// findHits returns the cached blocks of the longest known prefix of s; one
// token at least is left to compute.
func (e *Engine) findHits(s *seq) []int32 {
	e.hits = e.hits[:0]
	if !e.pool.Caching {
		return e.hits
	}
	for b := range (s.tokens() - 1) / e.blockSize {
		hash, own := s.content.Block(b, e.blockSize)
		if own && s.preempted == 0 {
			break // it has computed nothing yet
		}
		block, ok := e.pool.Lookup(hash)
		if !ok {
			break
		}
		e.hits = append(e.hits, block)
	}
	if n := len(e.hits); n > 0 && e.spec != nil && e.spec.dropBlock {
		e.hits = e.hits[:n-1] // the drafter computes it again for its own KV
	}
	return e.hits
}

// registerBlocks makes the full blocks of the first tokens of s findable.
func (e *Engine) registerBlocks(s *seq, tokens int64) {
	tokens = min(tokens, s.tokens()-s.content.Ahead)
	if tokens < (s.held.Registered+1)*e.blockSize {
		return
	}
	full := tokens / e.blockSize
	from, last := s.held.Registered, full
	if e.kvLog == nil {
		last = min(full, s.shared)
	}
	for b := from; b < last; b++ {
		hash, own := s.content.Block(b, e.blockSize)
		e.pool.Register(&s.held, hash, own)
	}
	if e.kvLog == nil {
		e.pool.RegisterOwn(&s.held, full)
		return
	}
	e.kvLog.stored(e, s, from, full)
}

// cachedAtFirst notes how many tokens of s its first admission found here.
func (e *Engine) cachedAtFirst(s *seq, tokens int64) {
	s.cached, s.res.CachedTokens = tokens, tokens
	e.out.HitTokens += min(tokens, s.prompt)
	e.out.LookedUpTokens += s.prompt
}
