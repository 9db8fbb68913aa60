package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// This file reads zstd streams in which a frame may be broken.

// ZstdMagic is the number with which a zstd frame begins.
var ZstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// frames reads a zstd stream. At a broken frame it returns a gap as error, and continues at the
// next magic number. The collector's exporter writes many independent frames, so those after a
// broken one can be read.
type frames struct {
	in   *bufio.Reader // the compressed bytes
	dec  *zstd.Decoder
	pos  int64  // number of compressed bytes that the decoder has read
	at   int64  // offset of the frame that it is reading
	tail []byte // the last bytes before pos, in which a magic number may begin
	err  error  // to be returned by the next Read
}

// newFrames returns a reader of concatenated zstd frames.
func newFrames(in *bufio.Reader) (*frames, error) {
	f := &frames{in: in}
	dec, err := zstd.NewReader(compressed{f}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, err
	}
	f.dec = dec
	return f, nil
}

// compressed is the reader that the decoder reads from. It notes where frames begin.
type compressed struct{ f *frames }

// Read passes compressed bytes to the decoder.
func (c compressed) Read(p []byte) (int, error) {
	n, err := c.f.in.Read(p)
	c.f.noteMagic(p[:n])
	return n, err
}

// noteMagic looks for magic numbers in the bytes that the decoder reads. A number may be divided
// between two reads.
func (f *frames) noteMagic(part []byte) {
	keep := len(ZstdMagic) - 1
	head := part[:min(len(part), keep)]
	seam := append(f.tail, head...) // the bytes around the border of two reads
	if i := bytes.LastIndex(part, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(i)
	} else if i := bytes.LastIndex(seam, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(len(head)-len(seam)+i)
	}
	if len(part) > keep { // the last bytes are all of this part
		seam = part
	}
	f.tail = append(f.tail[:0], seam[max(0, len(seam)-keep):]...)
	f.pos += int64(len(part))
}

// gap is a broken place in a compressed stream that can be read again after it.
type gap struct {
	at, Lost int64 // compressed bytes
	err      error
}

// Error returns where the stream is broken and where it continues.
func (g *gap) Error() string {
	return fmt.Sprintf("zstd frame at byte %d is broken, read on at byte %d: %v", g.at, g.at+g.Lost, g.err)
}

// AsGap returns the gap that err wraps, or nil.
func AsGap(err error) *gap {
	g, _ := errors.AsType[*gap](err)
	return g
}

// Read returns decompressed bytes. After a broken frame it returns a gap, and then continues with
// the next frame.
func (f *frames) Read(p []byte) (int, error) {
	if err := f.err; err != nil {
		f.err = nil
		return 0, err
	}
	n, err := f.dec.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	err = f.resume(err)
	if n > 0 {
		f.err = err
		return n, nil
	}
	return 0, err
}

// resume skips to the next frame and returns the gap before it. If there is no further frame it
// returns broken.
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

// seekMagic skips bytes up to the next frame's magic number and returns how many.
func seekMagic(in *bufio.Reader) (skipped int64, found bool) {
	for {
		buf, err := in.Peek(in.Size())
		if i := bytes.Index(buf, ZstdMagic); i >= 0 {
			n, _ := in.Discard(i)
			return skipped + int64(n), true
		}
		keep := min(len(buf), len(ZstdMagic)-1) // the number may continue in the next block
		n, _ := in.Discard(len(buf) - keep)
		skipped += int64(n)
		if err != nil {
			return skipped, false
		}
	}
}

// isZstd reports whether data begins with a frame or a skippable frame.
func isZstd(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	m := binary.LittleEndian.Uint32(head)
	return bytes.Equal(head[:4], ZstdMagic) || m >= 0x184d2a50 && m <= 0x184d2a5f
}
