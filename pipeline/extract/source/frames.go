package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

var ZstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// frames reads a zstd stream. Where a frame is broken it says what is lost and
// goes on at the next frame's magic number: the collector's exporter writes
// many frames, and each can be read without those before it.
type frames struct {
	in   *bufio.Reader // compressed
	dec  *zstd.Decoder
	pos  int64  // compressed bytes the decoder took
	at   int64  // of them, where the frame begins that it reads
	tail []byte // last bytes before pos
	err  error  // to report before going on
}

func newFrames(in *bufio.Reader) (*frames, error) {
	f := &frames{in: in}
	dec, err := zstd.NewReader(compressed{f}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, err
	}
	f.dec = dec
	return f, nil
}

// compressed is what the decoder reads; it notes where frames begin.
type compressed struct{ f *frames }

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.f.in.Read(p)
	c.f.note(p[:n])
	return n, err
}

// note looks for a magic number in what the decoder took, which may lie across
// two reads.
func (f *frames) note(part []byte) {
	keep := len(ZstdMagic) - 1
	head := part[:min(len(part), keep)]
	seam := append(f.tail, head...)
	if i := bytes.LastIndex(part, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(i)
	} else if i := bytes.LastIndex(seam, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(len(head)-len(seam)+i)
	}
	if len(part) > keep {
		seam = part
	}
	f.tail = append(f.tail[:0], seam[max(0, len(seam)-keep):]...)
	f.pos += int64(len(part))
}

// gap is a broken place in a compressed stream that goes on behind it.
type gap struct {
	at, Lost int64 // compressed bytes
	err      error
}

func (g *gap) Error() string {
	return fmt.Sprintf("zstd frame at byte %d is broken, read on at byte %d: %v", g.at, g.at+g.Lost, g.err)
}

// AsGap is the gap that err reports, or nil.
func AsGap(err error) *gap {
	g, _ := errors.AsType[*gap](err)
	return g
}

func (f *frames) Read(p []byte) (int, error) {
	if err := f.err; err != nil {
		f.err = nil
		return 0, err
	}
	n, err := f.dec.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if err = f.resume(err); n > 0 {
		f.err = err
		return n, nil
	}
	return 0, err
}

// resume finds the next frame and returns the gap, or broken when there is none.
func (f *frames) resume(broken error) error {
	g := &gap{at: f.at, err: broken}
	skipped, found := seekMagic(f.in)
	f.pos += skipped
	f.tail = f.tail[:0]
	if !found || f.dec.Reset(compressed{f}) != nil {
		return broken
	}
	g.Lost = f.pos - g.at
	return g
}

// seekMagic skips bytes up to the next frame's magic number.
func seekMagic(in *bufio.Reader) (skipped int64, found bool) {
	for {
		buf, err := in.Peek(in.Size())
		if i := bytes.Index(buf, ZstdMagic); i >= 0 {
			n, _ := in.Discard(i)
			return skipped + int64(n), true
		}
		keep := min(len(buf), len(ZstdMagic)-1) // the number may go on in the next block
		n, _ := in.Discard(len(buf) - keep)
		skipped += int64(n)
		if err != nil {
			return skipped, false
		}
	}
}
