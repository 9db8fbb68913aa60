package table

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/trace"
)

// The Parquet library's column readers trust what a file says of itself: they
// loop for ever over damaged levels, reserve the gigabytes that a header claims
// and panic in the middle of a page. The functions of this file and decode.go
// read the pages of a table instead, with every length checked before it is
// used. The library still reads the footer.

// maxPage bounds what one page may unpack to, bytes: its header could claim 2 GiB.
const maxPage = 1 << 28

var errShort = errors.New("its page ends too early")

// Page types, encodings and codecs of the Parquet format.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3

	encPlain    = 0
	encPlainRef = 2 // PLAIN_DICTIONARY, as old writers call encRef
	encRuns     = 3
	encRef      = 8 // indices into the chunk's dictionary

	packNone, packSnappy, packGzip, packZstd = 0, 1, 2, 6
)

// pageHeader is what a reader needs of a page's header.
type pageHeader struct {
	kind             int64
	unpacked, packed int64 // bytes
	values           int64 // levels of a data page, entries of a dictionary
	encoding         int64
	defEncoding      int64
	repEncoding      int64
	defBytes         int64 // levels of a version 2 page stand before its packed part
	repBytes         int64
	isPlain          bool // a version 2 page that is not packed
}

// readHeader reads a page's header and returns its length.
func readHeader(b []byte) (h pageHeader, n int, err error) {
	rest := &thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(b)}
	err = object(thrift.NewTCompactProtocolConf(rest, &thrift.TConfiguration{MaxMessageSize: maxHeader}), 0, func(id int16, v int64) {
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
	case h.unpacked < 0 || h.packed < 0 || h.values < 0 || h.defBytes < 0 || h.repBytes < 0 || h.values > math.MaxInt32 ||
		h.unpacked > maxPage:
		err = fmt.Errorf("its page claims %d values in %d bytes, %d unpacked", h.values, h.packed, h.unpacked)
	}
	return h, len(b) - rest.Len(), err
}

// object hands the integers and booleans of a Thrift object to use; those of an
// object inside it have the outer field's number in the upper byte.
func object(p *thrift.TCompactProtocol, outer int16, use func(id int16, v int64)) error {
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
			err = object(p, id, use)
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

// pages reads the pages of one column chunk.
type pages struct {
	r            *bufio.Reader
	left         int64 // bytes of the chunk
	codec        int
	packed, data []byte
}

// maxHeader bounds a page's header: statistics of long texts stand in it.
const maxHeader = 1 << 16

func newPages(file io.ReaderAt, from, n int64, codec int) *pages {
	return &pages{r: bufio.NewReaderSize(io.NewSectionReader(file, from, n), int(min(n, maxHeader))), left: n, codec: codec}
}

// next reads a page, its data valid until the next one; io.EOF at the end.
func (p *pages) next() (h pageHeader, data []byte, err error) {
	if p.left == 0 {
		return h, nil, io.EOF
	}
	head, _ := p.r.Peek(int(min(p.left, maxHeader))) // what is missing is an error of the header
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
	p.packed = resize(p.packed, int(h.packed))
	if _, err := io.ReadFull(p.r, p.packed); err != nil {
		return h, nil, err
	}
	data, err = p.unpack(&h)
	return h, data, err
}

// unpack unpacks the page just read; the levels of a version 2 page are not packed.
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

// inflate unpacks src into dst, want bytes.
func inflate(codec int, dst, src []byte, want int64) ([]byte, error) {
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

// unzstd unpacks pages; safe for concurrent use. A page may not claim more than maxPage.
var unzstd, unzstdErr = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPage))

// Len is the number of rows of a table of a run's folder, by its footer: 0 without one, and
// of Arrow IPC, which does not tell.
func Len[T any](dir, name string) int {
	c, err := Open[T](dir, name)
	if err != nil || c.rows == nil {
		return 0
	}
	defer c.Close()
	return c.rows.count()
}

// EachSlice reads a long run of journeys and steps in slices of so many steps. Around each lie
// margin steps more, as many behind it as its requests need to end (at most another slice),
// and the requests that may run in any of them; a rest shorter than the margin goes with the last slice. A
// slice, which is valid until use returns, leaves out what only other recordings have.
func EachSlice(dir string, steps, margin int, use func(*trace.Run) error) (err error) {
	s := &slicer{dir: dir, size: steps, margin: margin, first: math.MinInt64}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(); err != nil {
		return err
	}
	for done := false; !done; {
		var run *trace.Run
		if run, done, err = s.next(); err != nil {
			return err
		}
		if err := use(run); err != nil {
			return err
		}
	}
	return nil
}

// slicer walks a run in slices.
type slicer struct {
	dir          string
	size, margin int
	extent       trace.Slice // of the run
	steps        *Cursor[trace.Step]
	buf          []trace.Step // from the margin before the slice on
	at           int          // of the slice's first step in buf
	end          int          // of the step behind it; 0: before the first slice
	first        int64        // of the slice
	requests     [3]stream    // by arrival, by queueing, without either: the order of their table
	snaps, kv    []stepSpan   // of the row groups of these tables
}

// stepSpan are the steps between the least and the largest that a row group tells of.
type stepSpan struct{ from, to int64 }

// groupSpans are the spans of the row groups of a table, which T reads the steps of.
func groupSpans[T any](dir, name string, step func(*T) trace.Opt[int64]) (spans []stepSpan, err error) {
	c, err := Open[T](dir, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for c.Next() {
		p, ok := c.rows.(*parquetRows[T])
		if !ok {
			return nil, nil
		}
		for len(spans) < p.group {
			spans = append(spans, stepSpan{math.MaxInt64, math.MinInt64})
		}
		if id := step(c.Row()); id.OK {
			s := &spans[p.group-1]
			s.from = min(s.from, id.V)
			s.to = max(s.to, id.V)
		}
	}
	return spans, c.Err()
}

// openSteps opens a table and leaves out the row groups that tell nothing of the steps from..to.
func openSteps[T any](dir, name string, spans []stepSpan, from, to int64) (*Cursor[T], error) {
	c, err := Open[T](dir, name)
	if err != nil {
		return nil, err
	}
	if p, ok := c.rows.(*parquetRows[T]); ok {
		p.skip = func(i int) bool { return i < len(spans) && (spans[i].to < from || spans[i].from > to) }
	}
	return c, nil
}

// stream is some of the requests of a run, and of these the ones that may still run.
type stream struct {
	of    *Cursor[trace.Request]
	mine  func(*trace.Request) bool
	ahead *trace.Request // read and later than what was asked for
	live  []trace.Request
}

// until is when a request certainly has left the engine.
func until(r *trace.Request) int64 {
	if r.CoreID.OK && !r.FinishedNs.OK {
		return math.MaxInt64
	}
	return cmp.Or(max(r.FinishedNs.V, r.DepartedNs.V, r.AbortedNs.V), math.MaxInt64)
}

func (s *slicer) open() (err error) {
	for i, mine := range []func(*trace.Request) bool{
		func(r *trace.Request) bool { return r.ArrivedNs.OK },
		func(r *trace.Request) bool { return !r.ArrivedNs.OK && r.QueuedNs.OK },
		func(r *trace.Request) bool { return !r.ArrivedNs.OK && !r.QueuedNs.OK },
	} {
		s.requests[i].mine = mine
		if s.requests[i].of, err = Open[trace.Request](s.dir, Requests); err != nil {
			return err
		}
	}
	if err := s.requests[2].read(math.MaxInt64); err != nil {
		return err
	}
	end, err := Open[trace.Step](s.dir, Steps)
	if err != nil {
		return err
	}
	defer end.Close()
	if p, ok := end.rows.(*parquetRows[trace.Step]); ok {
		p.group = max(0, len(p.meta.RowGroups)-1)
	}
	for end.Next() {
		s.extent.LastNs = end.Row().TsStartNs
	}
	if s.steps, err = Open[trace.Step](s.dir, Steps); err != nil {
		return err
	}
	type snapshot struct {
		Step int64 `col:"step_id"`
	}
	type event struct {
		Step trace.Opt[int64] `col:"step"`
	}
	if s.snaps, err = groupSpans(s.dir, Snapshots, func(r *snapshot) trace.Opt[int64] { return trace.Some(r.Step) }); err != nil {
		return err
	}
	if s.kv, err = groupSpans(s.dir, KVEvents, func(r *event) trace.Opt[int64] { return r.Step }); err != nil {
		return err
	}
	return end.Err()
}

func (s *slicer) close() error {
	errs := []error{}
	if s.steps != nil {
		errs = append(errs, s.steps.Close())
	}
	for i := range s.requests {
		if c := s.requests[i].of; c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// grow reads steps while more asks for it; false when there are no more.
func (s *slicer) grow(more func() bool) bool {
	for more() {
		if !s.steps.Next() {
			return false
		}
		s.buf = append(s.buf, *s.steps.Row())
	}
	return true
}

// read adds the requests that came by ns.
func (q *stream) read(ns int64) error {
	for {
		if q.ahead == nil {
			if !q.of.Next() {
				return q.of.Err()
			}
			if q.ahead = q.of.Row(); !q.mine(q.ahead) {
				q.ahead = nil
				continue
			}
		}
		if q.ahead.CameNs() > ns {
			return nil
		}
		q.live = append(q.live, *q.ahead)
		q.ahead = nil
	}
}

// next is the next slice, and whether it is the last.
func (s *slicer) next() (run *trace.Run, last bool, err error) {
	if s.end > 0 {
		s.forget()
	}
	end := s.at + s.size
	s.end, last = end, !s.grow(func() bool { return len(s.buf) < end+s.margin })
	if s.first == math.MinInt64 && len(s.buf) > 0 {
		s.extent.FirstNs = s.buf[0].TsStartNs
	}
	slice := s.extent
	slice.FromNs = s.first
	slice.ToNs = math.MaxInt64
	if !last {
		slice.ToNs = s.buf[end].TsStartNs
	}
	run = &trace.Run{ID: strings.TrimPrefix(filepath.Base(s.dir), runPrefix), Slice: &slice}
	shown := int64(math.MaxInt64 - 2)
	if !last {
		shown = s.buf[len(s.buf)-1].TsStartNs
	}
	left := int64(math.MinInt64) // when the last request of the slice has
	for i := range s.requests {
		if err := s.requests[i].read(shown); err != nil {
			return nil, false, err
		}
		for _, r := range s.requests[i].live {
			if run.AsksFor(&r) {
				left = max(left, r.FinishedNs.V)
			}
		}
		run.Requests = append(run.Requests, s.requests[i].live...)
	}
	s.grow(func() bool { return len(s.buf) < end+s.size && s.buf[len(s.buf)-1].TsStartNs < left })
	run.Steps = s.buf
	return run, last, errors.Join(s.steps.Err(), s.beside(run))
}

// beside adds what the run's steps have in other tables.
func (s *slicer) beside(run *trace.Run) error {
	if len(run.Steps) == 0 {
		return nil
	}
	from := run.Steps[0].ID
	to := run.Steps[len(run.Steps)-1].ID
	run.Stored = func() (trace.SnapshotCursor, error) {
		c, err := openSteps[trace.Snapshot](s.dir, Snapshots, s.snaps, from, to)
		return &someSnapshots{c, from, to}, err
	}
	c, err := openSteps[trace.KVEvent](s.dir, KVEvents, s.kv, from, to)
	if err != nil {
		return err
	}
	defer c.Close()
	for c.Next() {
		if e := c.Row(); e.Step.OK && e.Step.V >= from && e.Step.V <= to {
			run.KVEvents = append(run.KVEvents, *e)
		}
	}
	return c.Err()
}

// forget goes to the next slice.
func (s *slicer) forget() {
	s.first = s.buf[s.end].TsStartNs
	from := max(0, s.end-s.margin)
	s.buf = append(s.buf[:0], s.buf[from:]...)
	s.at = s.end - from
	for i := range s.requests[:2] {
		q := &s.requests[i]
		q.live = slices.DeleteFunc(q.live, func(r trace.Request) bool { return until(&r) < s.buf[0].TsStartNs })
	}
}

// someSnapshots are those of the steps from..to.
type someSnapshots struct {
	*Cursor[trace.Snapshot]
	from, to int64
}

// Next goes to the next of them.
func (c *someSnapshots) Next() bool {
	for c.Cursor.Next() {
		if id := c.Row().StepID; id >= c.from {
			return id <= c.to
		}
	}
	return false
}
