package source

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// This file hashes the files while they are read. The SHA-256 of a file must be computed over its bytes
// in order. So that hashing does not delay reading, each worker hashes the bytes of its batch after it has
// let the next worker read. The work of one batch is a hashLink, which waits for the link of the batch
// before.

// hashChain collects the work of the next link.
type hashChain struct {
	pieces []hashPiece
	last   chan struct{} // closed when the link before is done
}

// hashPiece is one task of a link: to hash bytes of src, or to finish the hash of src.
type hashPiece struct {
	src  *Source
	data []byte
	in   *Input // receives the digest when src is finished; nil for a piece of data
}

// hashLink is the share of one batch in the hashes of its files.
type hashLink struct {
	pieces []hashPiece
	before chan struct{} // closed when the link before is done; nil for the first
	done   chan struct{} // closed when this link is done
}

// addBytes makes the next link hash bytes of src. They must not change before the link has
// finished.
func (c *hashChain) addBytes(src *Source, data []byte) {
	if src.sum != nil {
		c.pieces = append(c.pieces, hashPiece{src: src, data: data})
	}
}

// hashNow hashes bytes of src immediately, after all bytes before them.
func (c *hashChain) hashNow(src *Source, data []byte) {
	if src.sum != nil {
		c.finish()
		src.sum.Write(data)
	}
}

// endSource makes the next link hash the rest of src, store the digest in in, and close src.
func (c *hashChain) endSource(src *Source, in *Input) {
	c.pieces = append(c.pieces, hashPiece{src: src, in: in})
}

// next returns the link with the work collected so far.
func (c *hashChain) next() hashLink {
	l := hashLink{pieces: c.pieces, before: c.last, done: make(chan struct{})}
	c.pieces = nil
	c.last = l.done
	return l
}

// finish does all work collected so far.
func (c *hashChain) finish() {
	l := c.next()
	l.finish()
}

// finish waits for the link before and then does the work of this link.
func (l *hashLink) finish() {
	if l.before != nil {
		<-l.before
	}
	for _, p := range l.pieces {
		if p.in == nil {
			p.src.sum.Write(p.data)
			continue
		}
		if p.src.sum != nil || p.src.raw.sum != nil {
			p.in.Size, p.in.Sum = p.src.Digest()
		}
		p.src.Close()
	}
	l.pieces = nil
	close(l.done)
}

// sumLater leaves hashing to the hash chain, if the file is not compressed. The chain gets
// decompressed bytes, so a compressed file is hashed where it is read.
func (s *Source) sumLater() {
	if s.packed {
		return
	}
	s.sum = sha256.New()
	s.raw.sum = nil
	if s.bom { // it was skipped before the first batch
		s.sum.Write(utf8BOM)
	}
}

// Digest reads the rest of the file and returns its size and SHA-256. If that reading fails, they are of
// what could be read.
func (s *Source) Digest() (int64, string) {
	sum := s.raw.sum
	if s.sum != nil {
		sum = s.sum
		io.Copy(sum, s.R)
	} else {
		io.Copy(io.Discard, s.raw) // raw hashes what it reads
	}
	return s.raw.n, hex.EncodeToString(sum.Sum(nil))
}
