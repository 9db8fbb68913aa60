package source

// This file cuts a stream of length-prefixed messages (the framing of the collector's file exporter)
// into batches. A message that is lost is a fault with its place; the next one is read if its length
// is known.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/files"
)

// messages cuts a stream of length-prefixed messages into batches.
type messages struct {
	src       *Source
	pos       int64         // bytes of the stream read so far
	dec       *zstd.Decoder // for messages that are zstd frames
	awaitLong func()        // waits until no other long message is in memory
}

// lengthPrefix is the length in front of each message, big-endian.
type lengthPrefix [4]byte

// next returns the next batch, after it has decompressed framed messages. A lost message ends the
// batch, so that the messages of a batch have consecutive numbers. With an error, io.EOF included, it is
// the last batch. Its data is in buf, which may be replaced by a larger one.
func (r *messages) next(buf *[]byte) (*batch, error) {
	b := &batch{form: formProto, data: (*buf)[:0]}
	defer func() { *buf = b.data[:0] }()
	for len(b.data)+len(b.ends)*len(lengthPrefix{}) < blockBytes { // prefixes count, for empty messages
		var prefix lengthPrefix
		n, err := io.ReadFull(r.src.R, prefix[:])
		switch {
		case err == io.EOF:
			return b.orNil(), io.EOF
		case err == io.ErrUnexpectedEOF:
			b.lose(fault{code: CodeCut, offset: r.pos, bytes: int64(n),
				msg: fmt.Sprintf("truncated length at byte %d: got %d of 4 bytes: %s", r.pos, n, cutMessage)})
			return b, io.EOF
		case err != nil:
			return b.orNil(), r.src.ReadError(err)
		}
		want := int64(binary.BigEndian.Uint32(prefix[:]))
		data := b.data
		if want > 0 {
			data, err = r.message(b.data, want)
		}
		if err == nil {
			b.data = data
			b.ends = append(b.ends, len(data))
			r.pos += 4 + want
			continue
		}
		lost, ok := err.(*fault)
		if !ok {
			return b.orNil(), r.src.ReadError(err)
		}
		lost.offset = r.pos
		b.lose(*lost)
		r.pos += 4 + want
		if lost.isLast {
			return b, io.EOF
		}
		return b, nil
	}
	return b, nil
}

// smallMessage is the largest message for which memory is allocated before its bytes arrive.
const smallMessage = 1 << 16

// cutFault returns the fault of a message in which the stream ends.
func (r *messages) cutFault(have, want int64) *fault {
	return &fault{code: CodeCut, bytes: have + 4, isLast: true,
		msg: fmt.Sprintf("truncated message at byte %d: got %d of %d bytes: %s", r.pos, have, want, cutMessage)}
}

// message returns dst with the next message, of want bytes, appended. It allocates memory as bytes
// arrive, because a damaged length may be huge.
func (r *messages) message(dst []byte, want int64) ([]byte, error) {
	if want > r.src.Limits.MaxLine { // skipped; the next message can be read
		have, err := io.CopyN(io.Discard, r.src.R, want)
		if err == io.EOF {
			return dst, r.cutFault(have, want)
		}
		if err != nil {
			return dst, err
		}
		return dst, &fault{code: CodeOverLimit, bytes: want + 4,
			msg: fmt.Sprintf("message of %d bytes, want at most %d (--max-line)", want, r.src.Limits.MaxLine)}
	}
	if before := len(dst); want <= smallMessage && r.src.form == formProto {
		dst = slices.Grow(dst, int(want))[:before+int(want)]
		n, err := io.ReadFull(r.src.R, dst[before:])
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return dst[:before], r.cutFault(int64(n), want)
		}
		return dst[:before+n], err
	}
	// A long or compressed message is read piece by piece, so that a damaged length takes no memory.
	if want > longBytes {
		r.awaitLong()
	}
	buf := bytes.NewBuffer(nil)
	if r.src.form == formProto {
		buf = bytes.NewBuffer(dst)
	}
	have, err := io.CopyN(buf, r.src.R, want)
	if err == io.EOF {
		return dst, r.cutFault(have, want)
	}
	if err != nil {
		return dst, err
	}
	if r.src.form == formProto {
		return buf.Bytes(), nil
	}
	return r.unframe(dst, buf.Bytes())
}

// unframe returns dst with the content of one zstd frame appended. A frame that is broken or expands too
// much is a fault of this message alone.
func (r *messages) unframe(dst, frame []byte) ([]byte, error) {
	lost := int64(len(frame)) + 4 // bytes of the message, with its length
	if r.dec == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
		if err != nil {
			return dst, err
		}
		r.dec = d
		r.src.close = append(r.src.close, d.Close)
	}
	if err := r.dec.Reset(bytes.NewReader(frame)); err != nil {
		return dst, &fault{code: CodeUnreadable, bytes: lost, msg: "zstd: " + err.Error()}
	}
	buf := bytes.NewBuffer(dst)
	most := r.src.Limits.MaxLine
	flag := "--max-line"
	if expanded := max(files.FreeExpansion, r.src.Limits.MaxExpansion*int64(len(frame))); expanded < most {
		most = expanded
		flag = "--max-expansion"
	}
	n, err := io.Copy(buf, io.LimitReader(r.dec, most+1))
	switch {
	case err != nil:
		return dst, &fault{code: CodeUnreadable, bytes: lost,
			msg: fmt.Sprintf("zstd frame at byte %d: %v", r.pos+4, err)}
	case n > most:
		return dst, &fault{code: CodeOverLimit, bytes: lost,
			msg: fmt.Sprintf("message expands to more than %d bytes (%s)", most, flag)}
	}
	return buf.Bytes(), nil
}
