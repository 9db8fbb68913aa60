package table

// This file checks Parquet pages before they are decoded.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The column readers of the Parquet library trust the lengths in a file: on damaged files they loop
// without end, reserve gigabytes, or panic (docs/decisions/0014-own-pages.md). So the library reads the
// footer only, and this file, chunk.go and encodings.go read pages, with every length checked before it
// is used.

// maxPage is the largest size of a page when it is decompressed, bytes. A header could claim 2 GiB, and writers make
// pages of a megabyte. maxOpen is that of the pages that are open at a time, one of each column, and of
// the dictionaries.
const (
	maxPage = 1 << 26
	maxOpen = 1 << 27
)

// errShort is the error of a page that ends before its last level or value.
var errShort = errors.New("its page ends too early")

// Page types, encodings and codecs of the Parquet format.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3

	encPlain    = 0
	encPlainRef = 2 // PLAIN_DICTIONARY, the name of encRef in old writers
	encRuns     = 3 // RLE
	encRef      = 8 // RLE_DICTIONARY, indices into the dictionary of the chunk

	packNone   = 0
	packSnappy = 1
	packGzip   = 2
	packZstd   = 6
)

// pageHeader has the fields of a page's header that a reader needs.
type pageHeader struct {
	kind             int64 // pageData, pageDictionary, ...
	unpacked, packed int64 // bytes of the page decompressed, and in the file; without the header
	values           int64 // levels of a data page, entries of a dictionary
	encoding         int64 // of the values: encPlain, encRef, ...
	defEncoding      int64 // of the definition levels
	repEncoding      int64 // of the repetition levels
	defBytes         int64 // definition levels of a version 2 page, which precede its compressed part
	repBytes         int64 // repetition levels, before them
	isPlain          bool  // a version 2 page that is not compressed
}

// readHeader reads the header of a page at the start of b and returns it with its length in bytes.
// The field numbers are those of PageHeader, DataPageHeader (5), DictionaryPageHeader (7) and
// DataPageHeaderV2 (8) in parquet.thrift; eachNumber describes how the numbers of inner fields are
// formed.
func readHeader(b []byte) (h pageHeader, n int, err error) {
	rest := &thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(b)}
	err = eachNumber(thrift.NewTCompactProtocolConf(rest, &thrift.TConfiguration{MaxMessageSize: maxHeader}), 0,
		func(id int16, v int64) {
			switch id {
			case 1:
				h.kind = v
			case 2:
				h.unpacked = v
			case 3:
				h.packed = v
			case 5<<8 | 1, 7<<8 | 1, 8<<8 | 1:
				h.values = v
			case 5<<8 | 2, 7<<8 | 2, 8<<8 | 4:
				h.encoding = v
			case 5<<8 | 3:
				h.defEncoding = v
			case 5<<8 | 4:
				h.repEncoding = v
			case 8<<8 | 5:
				h.defBytes = v
			case 8<<8 | 6:
				h.repBytes = v
			case 8<<8 | 7:
				h.isPlain = v == 0
			}
		})
	switch {
	case err != nil:
		err = errors.New("its page has a broken header")
	case h.unpacked < 0 || h.packed < 0 || h.values < 0 || h.defBytes < 0 || h.repBytes < 0 ||
		h.values > math.MaxInt32 ||
		h.unpacked > maxPage:
		err = fmt.Errorf("its page claims %d values in %d bytes, %d unpacked", h.values, h.packed, h.unpacked)
	}
	return h, len(b) - rest.Len(), err
}

// eachNumber calls use with the integers and booleans of a Thrift struct. The id of a field of a
// struct inside it has the number of the outer field in its upper byte. outer is that number, 0 for
// the struct itself.
func eachNumber(p *thrift.TCompactProtocol, outer int16, use func(id int16, v int64)) error {
	ctx := context.Background()
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, t, id, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		var v int64
		switch {
		case t == thrift.STOP:
			return p.ReadStructEnd(ctx)
		case t == thrift.STRUCT && outer == 0 && id > 0 && id < 128:
			err = eachNumber(p, id, use)
		case t == thrift.I16 || t == thrift.I32 || t == thrift.I64: // a varint each
			v, err = p.ReadI64(ctx)
			use(outer<<8|id, v)
		case t == thrift.BOOL:
			var on bool
			if on, err = p.ReadBool(ctx); on {
				v = 1
			}
			use(outer<<8|id, v)
		default:
			err = thrift.SkipDefaultDepth(ctx, p, t)
		}
		if err != nil {
			return err
		}
	}
}

// pages reads the pages of one column chunk, the bytes of one column in one row group.
type pages struct {
	open         *int64 // bytes of the buffers and dictionaries of all columns
	own          int64  // of them, those of this one
	buffers      int64  // bytes of packed and data, which grow only
	dictionaries int64  // bytes of the dictionary pages, whose values are kept
	r            *bufio.Reader
	left         int64 // bytes of the chunk that were not yet read
	codec        int
	packed, data []byte // of the current page, compressed and decompressed
}

// maxHeader is the largest size of a page's header, which may have long texts as statistics.
const maxHeader = 1 << 16

// newPages returns a reader of the pages in the n bytes of the file from byte from on, which are
// compressed with codec. open counts the bytes of the buffers and dictionaries of all columns.
func newPages(file io.ReaderAt, from, n int64, codec int, open *int64) *pages {
	return &pages{open: open, r: bufio.NewReaderSize(io.NewSectionReader(file, from, n), int(min(n, maxHeader))), left: n,
		codec: codec}
}

// next returns the header and the decompressed data of the next page. The data is valid until the
// next call. It returns io.EOF at the end of the chunk.
func (p *pages) next() (h pageHeader, data []byte, err error) {
	if p.left == 0 {
		return h, nil, io.EOF
	}
	head, _ := p.r.Peek(int(min(p.left, maxHeader))) // of a short read readHeader will report the error
	h, n, err := readHeader(head)
	if err != nil {
		return h, nil, err
	}
	p.r.Discard(n)
	p.left -= int64(n)
	if h.packed > p.left {
		return h, nil, errShort
	}
	p.left -= h.packed
	p.buffers = max(p.buffers, h.packed+h.unpacked)
	if h.kind == pageDictionary {
		p.dictionaries += h.unpacked
	}
	own := p.buffers + p.dictionaries
	*p.open += own - p.own
	p.own = own
	if *p.open > maxOpen {
		return h, nil, fmt.Errorf("the pages that are read together have %d bytes, want at most %d", *p.open, maxOpen)
	}
	p.packed = resize(p.packed, int(h.packed))
	if _, err := io.ReadFull(p.r, p.packed); err != nil {
		return h, nil, err
	}
	data, err = p.unpack(&h)
	return h, data, err
}

// unpack returns the decompressed data of the page in p.packed. The levels of a version 2 page are
// not compressed.
func (p *pages) unpack(h *pageHeader) ([]byte, error) {
	levels := int64(0)
	if h.kind == pageDataV2 {
		levels = h.defBytes + h.repBytes
		if levels > h.packed || levels > h.unpacked {
			return nil, errShort
		}
	}
	codec := p.codec
	if h.isPlain {
		codec = packNone
	}
	if codec == packNone {
		if h.packed != h.unpacked {
			return nil, fmt.Errorf("its page has %d bytes, want %d", h.packed, h.unpacked)
		}
		return p.packed, nil
	}
	want := h.unpacked - levels
	body, err := inflate(codec, p.data[:0], p.packed[levels:], want)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != want {
		return nil, fmt.Errorf("its page unpacks to %d bytes, want %d", len(body), want)
	}
	p.data = body
	if levels == 0 {
		return body, nil
	}
	return append(p.packed[:levels:levels], body...), nil
}

// inflate returns src decompressed, in dst if it is large enough. The result should have want
// bytes; the caller checks that.
func inflate(codec int, dst, src []byte, want int64) ([]byte, error) {
	if want == 0 && len(src) == 0 { // a page of nulls alone
		return dst, nil
	}
	switch codec {
	case packZstd:
		if unzstdErr != nil {
			return nil, unzstdErr
		}
		return unzstd.DecodeAll(src, dst)
	case packSnappy:
		if n, err := snappy.DecodedLen(src); err != nil || int64(n) != want {
			return nil, fmt.Errorf("its page unpacks to %d bytes, want %d", n, want)
		}
		return snappy.Decode(dst[:cap(dst)], src)
	case packGzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(z, want+1))
	}
	return nil, fmt.Errorf("got pages packed by codec %d, want none, snappy, gzip or zstd", codec)
}

// unzstd decompresses zstd pages of at most maxPage bytes. It is safe for concurrent use.
var unzstd, unzstdErr = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPage))
