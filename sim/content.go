package sim

// This file decides which KV blocks of different requests are equal. The simulator has no token
// ids: a request states which leading parts of its prompt it shares, and blocks get hashes such
// that only known equal content has equal hashes.

import (
	"slices"
)

// Content describes the tokens of one request, as far as other requests may share them. The hashes
// of block b of two requests are equal exactly if their tokens 0 to (b+1)*blockSize are known to be
// equal.
type Content struct {
	PromptTokens int64
	// Requests of one Group (not 0) share their first GroupTokens prompt tokens.
	Group       uint64
	GroupTokens int64
	// Hashes are content ids of consecutive spans of HashTokens prompt tokens. Requests with equal
	// leading ids have equal tokens there.
	Hashes     []uint64
	HashTokens int64
	// HashedTokens is how many tokens Hashes cover, output included; 0 = the prompt.
	HashedTokens int64
	// Ahead is the number of tokens after a block that its hash includes.
	Ahead int64
	// Own is a number unique to the request, with which unshared content is hashed.
	Own uint64

	chain []uint64 // chained hashes of Hashes, as far as they were needed
}

// Reset makes c the content `to` of another request and keeps the memory of its chain.
func (c *Content) Reset(to Content) {
	to.chain = c.chain[:0]
	*c = to
}

// Clone returns an independent copy.
func (c *Content) Clone() *Content {
	own := *c
	own.chain = slices.Clone(c.chain)
	return &own
}

// mix returns a hash of two words: a step and the output function of splitmix64. It is also the
// source of ids and shifts that must be the same in every run.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Numbers mixed into hashes so that contents of different kinds never have equal hashes.
const (
	domainGroup = 1 + iota
	domainOwn
	domainSpan
)

// Block returns the hash of block b, which includes all blocks before it, and whether the content
// is the request's own, so that no other request can have it.
func (c *Content) Block(b, blockSize int64) (hash uint64, own bool) {
	end := (b+1)*blockSize + c.Ahead // tokens that the hash covers
	switch {
	case end > max(c.PromptTokens, c.HashedTokens): // the request states nothing about them
	case len(c.Hashes) > 0 && end <= int64(len(c.Hashes))*c.HashTokens:
		span := (end - 1) / c.HashTokens
		return mix(mix(domainSpan, c.spanChain(span)), uint64(b)), false
	case c.Group != 0 && end <= c.GroupTokens:
		return mix(mix(domainGroup, c.Group), uint64(b)), false
	}
	return mix(mix(domainOwn, c.Own), uint64(b)), true
}

// Shared returns the number of leading blocks that other requests may have too. All later blocks
// are the request's own.
func (c *Content) Shared(blockSize int64) int64 {
	tokens := int64(0)
	if len(c.Hashes) > 0 {
		tokens = int64(len(c.Hashes)) * c.HashTokens
	}
	if c.Group != 0 {
		tokens = max(tokens, c.GroupTokens)
	}
	return max(0, min(tokens, max(c.PromptTokens, c.HashedTokens))-c.Ahead) / blockSize
}

// spanChain returns a hash of the content ids of spans 0 to i.
func (c *Content) spanChain(i int64) uint64 {
	for int64(len(c.chain)) <= i {
		n := len(c.chain)
		last := uint64(0)
		if n > 0 {
			last = c.chain[n-1]
		}
		c.chain = append(c.chain, mix(last, c.Hashes[n]))
	}
	return c.chain[i]
}
