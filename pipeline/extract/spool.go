package extract

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// spool sorts packed rows by (key, arrival) in bounded memory: what does not
// fit is written to a temporary file as a sorted part, and the parts are merged
// when they are read back. Rows that arrive in order make one part.
type spool struct {
	mem   *memory
	data  []byte
	recs  []spoolRec
	parts []*os.File
	rows  int64
	seq   int64
	held  int // bytes accounted in mem
}

type spoolRec struct {
	key, seq int64
	at, n    uint32
}

func recLess(a, b spoolRec) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) }

// add appends the rows of one span. Rows of one add share nothing but their order.
func (s *spool) add(p *packed) error {
	base, from := uint32(len(s.data)), uint32(0)
	s.data = append(s.data, p.data...)
	for i, key := range p.keys {
		s.recs = append(s.recs, spoolRec{key, s.seq, base + from, p.ends[i] - from})
		from = p.ends[i]
		s.seq++
	}
	s.rows += int64(len(p.keys))
	return s.mem.grown(s)
}

// memory is what all spools of a run may hold together; when it is full the
// largest one spills.
type memory struct {
	dir    string
	limit  int
	used   int
	spools []*spool
}

// spool makes one more spool.
func (m *memory) spool() *spool {
	s := &spool{mem: m}
	m.spools = append(m.spools, s)
	return s
}

func (m *memory) grown(s *spool) error {
	m.used += s.size() - s.held
	s.held = s.size()
	if m.used <= m.limit {
		return nil
	}
	big := slices.MaxFunc(m.spools, func(a, b *spool) int { return cmp.Compare(a.held, b.held) })
	if err := big.spill(); err != nil {
		return err
	}
	m.used -= big.held
	big.held = 0
	return nil
}

func (m *memory) close() {
	for _, s := range m.spools {
		s.close()
	}
}

func (s *spool) size() int { return len(s.data) + 24*len(s.recs) }

// spill writes what is in memory as one sorted part.
func (s *spool) spill() error {
	slices.SortFunc(s.recs, recLess)
	f, err := os.CreateTemp(s.mem.dir, ".spool-*.tmp")
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

// close removes the parts.
func (s *spool) close() {
	for _, f := range s.parts {
		f.Close()
		os.Remove(f.Name())
	}
	s.parts = nil
}

// spoolReader reads a spool back in order.
type spoolReader struct {
	heads []*spoolHead
}

type spoolHead struct {
	r    *bufio.Reader // a part, or nil for memory
	s    *spool
	next int
	rec  spoolRec
	row  []byte
	done bool
}

// read starts reading; the spool takes no more rows.
func (s *spool) read() (*spoolReader, error) {
	slices.SortFunc(s.recs, recLess)
	rd := &spoolReader{}
	for _, f := range s.parts {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		rd.heads = append(rd.heads, &spoolHead{r: bufio.NewReaderSize(f, 1<<16)})
	}
	rd.heads = append(rd.heads, &spoolHead{s: s})
	for _, h := range rd.heads {
		if err := h.advance(); err != nil {
			return nil, err
		}
	}
	return rd, nil
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
	h.rec = spoolRec{key: int64(binary.LittleEndian.Uint64(head[0:])), seq: int64(binary.LittleEndian.Uint64(head[8:])), n: binary.LittleEndian.Uint32(head[16:])}
	if cap(h.row) < int(h.rec.n) {
		h.row = make([]byte, h.rec.n, 2*h.rec.n)
	}
	h.row = h.row[:h.rec.n]
	_, err := io.ReadFull(h.r, h.row)
	return err
}

// peek returns the key of the next row; ok is false at the end.
func (rd *spoolReader) peek() (key int64, ok bool) {
	h := rd.min()
	if h == nil {
		return 0, false
	}
	return h.rec.key, true
}

func (rd *spoolReader) min() *spoolHead {
	var best *spoolHead
	for _, h := range rd.heads {
		if !h.done && (best == nil || recLess(h.rec, best.rec) < 0) {
			best = h
		}
	}
	return best
}

// next hands the next row to use; the bytes are valid during the call.
func (rd *spoolReader) next(use func(seq int64, row []byte) error) error {
	h := rd.min()
	if err := use(h.rec.seq, h.row); err != nil {
		return err
	}
	return h.advance()
}
