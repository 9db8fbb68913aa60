package source

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"os"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
)

// This file sorts rows in bounded memory.

// Spool sorts packed rows by key in bounded memory; rows with one key keep their order. Rows that
// do not fit into memory are written to a temporary file as a sorted part, and the parts are merged
// when the rows are read.
type Spool struct {
	mem       *Memory
	data      []byte     // the rows in memory
	recs      []spoolRec // one for each of them
	parts     []*os.File // sorted rows on disk
	seq       int64      // number of rows so far
	heldBytes int        // bytes of this spool that are counted in mem
}

// spoolRec is a row in memory: data[at:at+n] of the spool.
type spoolRec struct {
	key, seq int64 // seq: number of the row among all that were added
	at, n    uint32
}

const spoolRecBytes = 24

// compareRecs returns the order of two rows: by key, then by arrival.
func compareRecs(a, b spoolRec) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq))
}

// Add adds a copy of a row.
func (s *Spool) Add(key int64, row []byte) error {
	s.recs = append(s.recs, spoolRec{key: key, seq: s.seq, at: uint32(len(s.data)), n: uint32(len(row))})
	s.data = append(s.data, row...)
	s.seq++
	return s.mem.grown(s)
}

// Memory bounds the memory of all spools of a run together. When it is full, the largest spool
// writes its rows to disk.
type Memory struct {
	Dir    string // folder of temporary files
	Limit  int    // bytes of rows in memory
	used   int    // bytes of rows in memory now
	spools []*Spool
	files  []*RowFile
}

// Spool returns an empty spool that shares the memory of m.
func (m *Memory) Spool() *Spool {
	s := &Spool{mem: m}
	m.spools = append(m.spools, s)
	return s
}

// grown counts the bytes that a spool gained. If the limit is exceeded, it makes the largest spool
// spill.
func (m *Memory) grown(s *Spool) error {
	m.used += s.size() - s.heldBytes
	s.heldBytes = s.size()
	if m.used <= m.Limit {
		return nil
	}
	largest := slices.MaxFunc(m.spools, func(a, b *Spool) int { return cmp.Compare(a.heldBytes, b.heldBytes) })
	if err := largest.spill(); err != nil {
		return err
	}
	m.used -= largest.heldBytes
	largest.heldBytes = 0
	return nil
}

// Close closes all spools and row files and removes their temporary files.
func (m *Memory) Close() {
	for _, s := range m.spools {
		s.Close()
	}
	for _, s := range m.files {
		s.close()
	}
}

// size returns the number of bytes of the rows in memory.
func (s *Spool) size() int { return len(s.data) + spoolRecBytes*len(s.recs) }

// spill writes the rows in memory to disk as one sorted part.
func (s *Spool) spill() error {
	slices.SortFunc(s.recs, compareRecs)
	f, err := os.CreateTemp(s.mem.Dir, ".spool-*.tmp")
	if err != nil {
		return err
	}
	s.parts = append(s.parts, f)
	w := bufio.NewWriterSize(f, 1<<18)
	var head partHead
	for _, r := range s.recs {
		binary.LittleEndian.PutUint64(head[0:], uint64(r.key))
		binary.LittleEndian.PutUint64(head[8:], uint64(r.seq))
		binary.LittleEndian.PutUint32(head[16:], r.n)
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		if _, err := w.Write(s.data[r.at : r.at+r.n]); err != nil {
			return err
		}
	}
	s.data = s.data[:0]
	s.recs = s.recs[:0]
	return w.Flush()
}

// partHead precedes each row of a part: key, sequence number and length, little-endian.
type partHead [20]byte

// Close frees the rows. Memory.Close does the same for all spools.
func (s *Spool) Close() {
	for _, f := range s.parts {
		f.Close()
		os.Remove(f.Name())
	}
	s.parts = nil
	s.data = nil
	s.recs = nil
}

// spoolHead is the next row to merge of one part, or of the rows in memory.
type spoolHead struct {
	r    *bufio.Reader // reads a part
	s    *Spool        // for the rows in memory; nil for a part
	next int           // the record of s after this one
	rec  spoolRec
	row  []byte
	done bool
}

// Each calls use with the rows in order. A row is valid during the call. No row may be added after
// Each.
func (s *Spool) Each(use func(key int64, row []byte) error) error {
	slices.SortFunc(s.recs, compareRecs)
	// Merge the sorted parts and the rows in memory: the smallest of their next rows is the next of
	// all.
	heads := []*spoolHead{{s: s}}
	for _, f := range s.parts {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		heads = append(heads, &spoolHead{r: bufio.NewReaderSize(f, 1<<16)})
	}
	for _, head := range heads {
		if err := head.advance(); err != nil {
			return err
		}
	}
	for {
		var next *spoolHead
		for _, head := range heads {
			if !head.done && (next == nil || compareRecs(head.rec, next.rec) < 0) {
				next = head
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

// advance moves to the next row and sets done after the last one.
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
	var head partHead
	if _, err := io.ReadFull(h.r, head[:]); err != nil {
		if err == io.EOF {
			h.done = true
			return nil
		}
		return err
	}
	h.rec = spoolRec{
		key: int64(binary.LittleEndian.Uint64(head[0:])),
		seq: int64(binary.LittleEndian.Uint64(head[8:])),
		n:   binary.LittleEndian.Uint32(head[16:]),
	}
	if cap(h.row) < int(h.rec.n) {
		h.row = make([]byte, h.rec.n, 2*h.rec.n)
	}
	h.row = h.row[:h.rec.n]
	_, err := io.ReadFull(h.r, h.row)
	return err
}

// Sorter is a Spool of rows of type T.
type Sorter[T any] struct {
	*Spool
	codec *files.Codec[T]
	buf   []byte
}

// NewSorter returns an empty sorter that shares the memory of m.
func NewSorter[T any](m *Memory) *Sorter[T] {
	return &Sorter[T]{Spool: m.Spool(), codec: files.NewCodec[T]()}
}

// Put adds a row.
func (s *Sorter[T]) Put(key int64, row *T) error {
	s.buf = s.codec.Append(s.buf[:0], row)
	return s.Add(key, s.buf)
}

// Rows calls use with the rows in order. No row may be added after Rows.
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
