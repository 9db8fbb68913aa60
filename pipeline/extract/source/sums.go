package source

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// A file has one SHA-256, taken in order. So that it does not hold up reading,
// workers take it one after another over what each of them read, right after
// reading it and before parsing it.

// hashChain collects what the next link has to hash.
type hashChain struct {
	pieces []piece
	last   chan struct{} // closed when the link before is done
}

// piece is one thing to do for a hash: bytes of src, or its end.
type piece struct {
	src  *Source
	data []byte
	in   *Input // at the end
}

// hashLink is the share of one batch in the hashes of its files.
type hashLink struct {
	pieces       []piece
	before, done chan struct{}
}

// add leaves bytes of src to the next link; they must not change until then.
func (c *hashChain) add(src *Source, data []byte) {
	if src.sum != nil {
		c.pieces = append(c.pieces, piece{src: src, data: data})
	}
}

// now hashes bytes of src at once, after everything before them.
func (c *hashChain) now(src *Source, data []byte) {
	if src.sum != nil {
		c.finish()
		src.sum.Write(data)
	}
}

// end leaves the rest of src, its hash and its closing to the next link.
func (c *hashChain) end(src *Source, in *Input) { c.pieces = append(c.pieces, piece{src: src, in: in}) }

func (c *hashChain) next() hashLink {
	l := hashLink{c.pieces, c.last, make(chan struct{})}
	c.pieces, c.last = nil, l.done
	return l
}

func (c *hashChain) finish() {
	l := c.next()
	l.finish()
}

// finish does the work of the link when its turn has come.
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

// sumLater leaves the hash of a plain file to those who read it.
func (s *Source) sumLater() {
	if s.packed {
		return
	}
	s.sum, s.raw.sum = sha256.New(), nil
	if s.bom {
		s.sum.Write(utf8BOM)
	}
}

// Digest reads what is left of the file and returns its bytes and SHA-256.
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
