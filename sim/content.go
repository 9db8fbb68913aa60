package sim

// Content of a prompt as block hashes. Two requests have an equal hash for
// block b exactly when their tokens 0 to (b+1)*blockSize are known to be equal.

// mix is a 64-bit finaliser (splitmix64) over two words.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Domains keep the kinds of content apart.
const (
	domainGroup = 1 + iota
	domainOwn
	domainSpan
)

// blockHash is the chained hash of block b of the request.
func (s *seq) blockHash(b, blockSize int64) uint64 {
	h, _ := s.content(b, blockSize)
	return h
}

// content is blockHash, and whether the block's content is the request's own:
// unlike any other request's.
func (s *seq) content(b, blockSize int64) (hash uint64, own bool) {
	end := (b + 1) * blockSize
	r := s.req
	switch {
	case len(r.Hashes) > 0 && end <= int64(len(r.Hashes))*r.HashTokens && end <= r.PromptTokens:
		span := (end - 1) / r.HashTokens
		return mix(mix(domainSpan, s.spanChain(span)), uint64(b)), false
	case r.Group != 0 && end <= r.GroupTokens && end <= r.PromptTokens:
		return mix(mix(domainGroup, r.Group), uint64(b)), false
	}
	return mix(mix(domainOwn, uint64(s.idx)), uint64(b)), true
}

// spanChain is the chain of the request's content ids up to span i, kept while
// the request lives.
func (s *seq) spanChain(i int64) uint64 {
	for int64(len(s.chain)) <= i {
		n := len(s.chain)
		last := uint64(0)
		if n > 0 {
			last = s.chain[n-1]
		}
		s.chain = append(s.chain, mix(last, s.req.Hashes[n]))
	}
	return s.chain[i]
}
