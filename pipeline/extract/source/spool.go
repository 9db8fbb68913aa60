// This file sorts packed rows in bounded memory: what does not fit waits in
// temporary files.

package source

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
)

// Spool sorts packed rows by (key, arrival) in bounded memory: what does not
// fit is written to a temporary file as a sorted part, and the parts are merged
// when they are read back. Rows that arrive in order make one part.
type Spool struct {
	mem   *Memory
	data  []byte
	recs  []spoolRec
	parts []*os.File
	seq   int64
	held  int // bytes accounted in mem
}

type spoolRec struct {
	key, seq int64
	at, n    uint32
}

func recLess(a, b spoolRec) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) }

// Add keeps a copy of a row.
func (s *Spool) Add(key int64, row []byte) error {
	s.recs = append(s.recs, spoolRec{key, s.seq, uint32(len(s.data)), uint32(len(row))})
	s.data = append(s.data, row...)
	s.seq++
	return s.mem.grown(s)
}

// Memory is what all spools of a run may hold together; when it is full the
// largest one spills.
type Memory struct {
	Dir    string
	Limit  int
	used   int
	spools []*Spool
	files  []*RowFile
}

// Spool makes one more spool.
func (m *Memory) Spool() *Spool {
	s := &Spool{mem: m}
	m.spools = append(m.spools, s)
	return s
}

func (m *Memory) grown(s *Spool) error {
	m.used += s.size() - s.held
	s.held = s.size()
	if m.used <= m.Limit {
		return nil
	}
	big := slices.MaxFunc(m.spools, func(a, b *Spool) int { return cmp.Compare(a.held, b.held) })
	if err := big.spill(); err != nil {
		return err
	}
	m.used -= big.held
	big.held = 0
	return nil
}

func (m *Memory) Close() {
	for _, s := range m.spools {
		s.Close()
	}
	for _, s := range m.files {
		s.close()
	}
}

func (s *Spool) size() int { return len(s.data) + 24*len(s.recs) }

// spill writes what is in memory as one sorted part.
func (s *Spool) spill() error {
	slices.SortFunc(s.recs, recLess)
	f, err := os.CreateTemp(s.mem.Dir, ".spool-*.tmp")
	if err != nil {
		return err
	}
	s.parts = append(s.parts, f)
	w := bufio.NewWriterSize(f, 1<<18)
	var head [24]byte
	for _, r := range s.recs {
		binary.LittleEndian.PutUint64(head[0:], uint64(r.key))
		binary.LittleEndian.PutUint64(head[8:], uint64(r.seq))
		binary.LittleEndian.PutUint32(head[16:], r.n)
		if _, err := w.Write(head[:20]); err != nil {
			return err
		}
		if _, err := w.Write(s.data[r.at : r.at+r.n]); err != nil {
			return err
		}
	}
	s.data, s.recs = s.data[:0], s.recs[:0]
	return w.Flush()
}

// Close gives up the rows; its memory closes what is left.
func (s *Spool) Close() {
	for _, f := range s.parts {
		f.Close()
		os.Remove(f.Name())
	}
	s.parts = nil
	s.data = nil
	s.recs = nil
}

type spoolHead struct {
	r    *bufio.Reader // a part, or nil for memory
	s    *Spool
	next int
	rec  spoolRec
	row  []byte
	done bool
}

// Each hands the rows to use in order, each valid during the call; the spool takes no more.
func (s *Spool) Each(use func(key int64, row []byte) error) error {
	slices.SortFunc(s.recs, recLess)
	heads := []*spoolHead{{s: s}}
	for _, f := range s.parts {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		heads = append(heads, &spoolHead{r: bufio.NewReaderSize(f, 1<<16)})
	}
	for _, h := range heads {
		if err := h.advance(); err != nil {
			return err
		}
	}
	for {
		var next *spoolHead
		for _, h := range heads {
			if !h.done && (next == nil || recLess(h.rec, next.rec) < 0) {
				next = h
			}
		}
		if next == nil {
			return nil
		}
		if err := use(next.rec.key, next.row); err != nil {
			return err
		}
		if err := next.advance(); err != nil {
			return err
		}
	}
}

func (h *spoolHead) advance() error {
	if h.s != nil {
		if h.next == len(h.s.recs) {
			h.done = true
			return nil
		}
		h.rec = h.s.recs[h.next]
		h.row = h.s.data[h.rec.at : h.rec.at+h.rec.n]
		h.next++
		return nil
	}
	var head [20]byte
	if _, err := io.ReadFull(h.r, head[:]); err != nil {
		if err == io.EOF {
			h.done = true
			return nil
		}
		return err
	}
	h.rec = spoolRec{key: int64(binary.LittleEndian.Uint64(head[0:])), seq: int64(binary.LittleEndian.Uint64(head[8:])),
		n: binary.LittleEndian.Uint32(head[16:])}
	if cap(h.row) < int(h.rec.n) {
		h.row = make([]byte, h.rec.n, 2*h.rec.n)
	}
	h.row = h.row[:h.rec.n]
	_, err := io.ReadFull(h.r, h.row)
	return err
}

// Sorter is a spool of rows of one type.
type Sorter[T any] struct {
	*Spool
	codec *files.Codec[T]
	buf   []byte
}

// NewSorter makes one more spool, of rows of type T.
func NewSorter[T any](m *Memory) *Sorter[T] {
	return &Sorter[T]{Spool: m.Spool(), codec: files.NewCodec[T]()}
}

// Put keeps a row.
func (s *Sorter[T]) Put(key int64, row *T) error {
	s.buf = s.codec.Append(s.buf[:0], row)
	return s.Add(key, s.buf)
}

// Rows hands the rows to use in order.
func (s *Sorter[T]) Rows(use func(key int64, row *T) error) error {
	texts := files.NewInterner()
	return s.Each(func(key int64, packed []byte) error {
		var row T
		if err := s.codec.Decode(packed, &row, texts); err != nil {
			return err
		}
		return use(key, &row)
	})
}

// What a decoder made of a part of a file can wait on disk for who reads the whole: Store
// writes it, an Input whose Stored names the files of its parts gives Stream the same batches
// as the file itself, cut elsewhere. So nothing that a sink sees may depend on where batches
// begin.

// Store decodes an input that is a part and writes what it holds.
func Store[R records](ctx context.Context, in Input, o Options, fresh func() Decoder[R], w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<18)
	o.unnumbered = true
	codec := files.NewCodec[Parsed[R]]()
	packed := []byte(nil)
	err := Stream(ctx, []Input{in}, o, fresh, func(p *Parsed[R]) error {
		packed = codec.Append(packed[:0], p)
		if r, ok := any(p.Records).(interface{ Free() }); ok {
			r.Free()
		}
		if _, err := out.Write(binary.AppendUvarint(nil, uint64(len(packed)))); err != nil {
			return err
		}
		_, err := out.Write(packed)
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// openStored opens what was stored of an input, part after part.
func openStored(from *Input) (*Source, error) {
	s := &Source{Name: from.Name, form: formStored}
	var parts []io.Reader
	for _, name := range from.Stored {
		f, err := files.Open(name, false)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		parts = append(parts, f)
	}
	s.over(io.MultiReader(parts...))
	return s, nil
}

// stored is the next batch that was stored.
func (r *reader) stored(buf *[]byte) (*batch, error) {
	n, err := binary.ReadUvarint(r.src.R)
	if err != nil {
		return nil, err // io.EOF between batches
	}
	to := bytes.NewBuffer((*buf)[:0])
	if _, err := io.CopyN(to, r.src.R, int64(n)); err != nil {
		return nil, fmt.Errorf("stored batch of %d bytes: %w", n, err)
	}
	*buf = to.Bytes()
	return &batch{form: formStored, data: *buf}, nil
}

// rowFileBuffer is what a row file keeps in memory before it writes, and what it reads
// at once, bytes.
const rowFileBuffer = 1 << 18

// RowFile keeps packed rows by the place they were put at: a short one in memory, a
// long one in a file of the folder that nobody else sees. Reading begins when the
// last row was put or goes on in between; both remember where they were, so rows
// read in about the order they were put cost no call each.
type RowFile struct {
	dir  string
	file *os.File
	end  int64  // bytes in the file
	tail []byte // rows not yet in it
	page []byte // of the file, as read
	base int64  // where page begins
}

// RowFile is a new one in the memory's folder, closed with it.
func (m *Memory) RowFile() *RowFile {
	s := &RowFile{dir: m.Dir}
	m.files = append(m.files, s)
	return s
}

// Put keeps a row; Get finds it at the result.
func (s *RowFile) Put(row []byte) (at int64, err error) {
	if len(s.tail) >= rowFileBuffer {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	at = s.end + int64(len(s.tail))
	s.tail = append(binary.AppendUvarint(s.tail, uint64(len(row))), row...)
	return at, nil
}

func (s *RowFile) flush() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, ".spool-*.tmp"); err != nil {
			return err
		}
	}
	n, err := s.file.WriteAt(s.tail, s.end)
	s.end += int64(n)
	s.tail = s.tail[:0]
	return err
}

// Get is the row put at a place, until the next call.
func (s *RowFile) Get(at int64) ([]byte, error) {
	if at >= s.end {
		return cut(s.tail[at-s.end:])
	}
	for want := int64(rowFileBuffer); ; want *= 2 {
		if off := at - s.base; off >= 0 && off < int64(len(s.page)) {
			if row, err := cut(s.page[off:]); err == nil || s.base+int64(len(s.page)) == s.end && off == 0 {
				return row, err
			}
		}
		if int64(cap(s.page)) < want {
			s.page = make([]byte, want)
		}
		s.page = s.page[:min(want, s.end-at)]
		s.base = at
		if _, err := s.file.ReadAt(s.page, at); err != nil && err != io.EOF {
			s.page = s.page[:0]
			return nil, err
		}
	}
}

// Each hands every row in the order they were put to use, valid during the call.
func (s *RowFile) Each(use func(at int64, row []byte)) error {
	for at := int64(0); at < s.end+int64(len(s.tail)); {
		row, err := s.Get(at)
		if err != nil {
			return err
		}
		use(at, row)
		at += int64(len(binary.AppendUvarint(nil, uint64(len(row)))) + len(row))
	}
	return nil
}

// cut is the row that a text begins with.
func cut(text []byte) ([]byte, error) {
	n, k := binary.Uvarint(text)
	if k <= 0 || n > uint64(len(text)-k) {
		return nil, fmt.Errorf("spool: no whole row in %d bytes", len(text))
	}
	return text[k : k+int(n)], nil
}

func (s *RowFile) close() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
		s.file = nil
	}
}
