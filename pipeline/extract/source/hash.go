package source

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// A file has one SHA-256, over its bytes in order. So that hashing does not delay reading, workers do
// it one after another: each hashes the bytes that it has read, after reading and before parsing
// them. A link is the share of one batch, and waits for the link of the batch before.

// hashChain collects the work of the next link.
type hashChain struct {
	pieces []hashPiece
	last   chan struct{} // closed when the link before is done
}

// hashPiece is one task of a link: to hash bytes of src, or to end it.
type hashPiece struct {
	src  *Source
	data []byte
	in   *Input // gets the digest at the end of src; nil for a piece of data
}

// hashLink is the share of one batch in the hashes of its files.
type hashLink struct {
	pieces       []hashPiece
	before, done chan struct{}
}

// addBytes leaves bytes of src to the next link. They must not change before it has finished.
func (c *hashChain) addBytes(src *Source, data []byte) {
	if src.sum != nil {
		c.pieces = append(c.pieces, hashPiece{src: src, data: data})
	}
}

// hashNow hashes bytes of src at once, after everything before them.
func (c *hashChain) hashNow(src *Source, data []byte) {
	if src.sum != nil {
		c.finish()
		src.sum.Write(data)
	}
}

// endSource leaves to the next link to hash the rest of src, store the digest, and close it.
func (c *hashChain) endSource(src *Source, in *Input) {
	c.pieces = append(c.pieces, hashPiece{src: src, in: in})
}

func (c *hashChain) next() hashLink {
	l := hashLink{c.pieces, c.last, make(chan struct{})}
	c.pieces, c.last = nil, l.done
	return l
}

func (c *hashChain) finish() {
	l := c.next()
	l.finish()
}

// finish does the work of the link after that of the link before.
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

// sumLater leaves the hash of an uncompressed file to the hash chain. Of compressed files the
// decompressor's reader hashes the bytes, because the chain sees decompressed ones.
func (s *Source) sumLater() {
	if s.packed {
		return
	}
	s.sum, s.raw.sum = sha256.New(), nil
	if s.bom {
		s.sum.Write(utf8BOM)
	}
}

// Digest reads the rest of the file and returns its size and SHA-256.
func (s *Source) Digest() (int64, string) {
	sum := s.raw.sum
	if s.sum != nil {
		sum = s.sum
		io.Copy(sum, s.R)
	} else {
		io.Copy(io.Discard, s.raw)
	}
	return s.raw.n, hex.EncodeToString(sum.Sum(nil))
}
