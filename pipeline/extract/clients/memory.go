package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file bounds the memory that client files can take (spec#cost-limits). The checks of traps.go compare all
// requests of a run with each other, so the requests stay in memory until the tables are written.

// DefaultMemory is the memory, in bytes, that the requests of a run's client files may take: about 350,000
// requests, or 100,000 whose answers have 250 chunks each.
const DefaultMemory = 256 << 20

const (
	// maxValue is the size in bytes of a line, or of one value in a JSON document, above which it is no request.
	// The chunk times of an answer of a million tokens take less.
	maxValue = 16 << 20
	// maxLevelFile is the size in bytes of a file of load levels. Real ones have some hundred kilobytes.
	maxLevelFile = 8 << 20
)

// requestBytes is the memory of a request without its texts and chunks.
const requestBytes = int64(unsafe.Sizeof(trace.ObservedRequest{}))

// countMemory counts memory that the records of a file take, and ends the reading beyond the limit.
func (c *Reader) countMemory(src *source.Source, bytes int64) {
	c.held += bytes
	if c.Memory == 0 || c.held <= c.Memory || c.full != nil {
		return
	}
	e := src.Errorf(files.TooLarge, "the requests of the run's client files take more than %d MB: got %d of them so far",
		c.Memory>>20, len(c.Requests))
	e.Hint = fmt.Sprintf("divide the recording into run folders by time, or allow more: --max-client-memory %d", 4*c.Memory)
	c.full = e
}

// countRequest counts the memory of a request, and makes room for it in c.Requests. A list that grows is in
// memory twice while it is copied. So once it has half of the requests that the limit allows, it grows to
// all of them, and not again near the limit.
func (c *Reader) countRequest(src *source.Source, r *trace.ObservedRequest) {
	texts := len(r.ID) + len(r.Error.V) + len(r.FinishReason.V) + len(r.PrefixGroup.V) + len(r.SLOClass.V) +
		len(r.Session.V) + len(r.Phase.V) + len(r.Route.V)
	c.countMemory(src, requestBytes+int64(8*cap(r.ChunkGapsUs)+texts))
	if most := int(c.Memory / requestBytes); len(c.Requests) == cap(c.Requests) && 2*len(c.Requests) > most {
		c.Requests = slices.Grow(c.Requests, max(1, most+1-len(c.Requests)))
	}
}

// countingReader adds the bytes that are read to a count, and ends the reading when the Reader is full.
type countingReader struct {
	c *Reader
	r io.Reader
}

// Read reads from r and counts the bytes.
func (b *countingReader) Read(p []byte) (int, error) {
	if b.c.full != nil {
		return 0, b.c.full
	}
	n, err := b.r.Read(p)
	b.c.Acc.Bytes += int64(n)
	return n, err
}

// valueLimit ends the reading of a JSON document of which one value or text is larger than maxValue, because the
// decoder keeps a value whole in memory. It is the decoder's own reader: what was read beyond the place that
// the decoder has reached is the value that it collects.
type valueLimit struct {
	r    io.Reader
	dec  *json.Decoder
	read int64 // bytes read from r so far
}

// Read reads from r, unless the decoder already has too much of one value.
func (v *valueLimit) Read(p []byte) (int, error) {
	if at := v.dec.InputOffset(); v.read-at > maxValue {
		return 0, &trace.SyntaxError{Code: source.CodeOverLimit,
			Msg: fmt.Sprintf("got a value of more than %d MB at byte %d, want the result of a load client", maxValue>>20, at)}
	}
	n, err := v.r.Read(p)
	v.read += int64(n)
	return n, err
}

// newWalkerOf returns a walker over the JSON that r reads. hold is called with the memory of what the walker
// keeps.
func newWalkerOf(r io.Reader, hold func(bytes int64)) walker {
	limit := &valueLimit{r: r}
	limit.dec = json.NewDecoder(limit) // each has the other
	return walker{dec: limit.dec, hold: hold}
}
