// Package spool sorts packed rows in bounded memory: what does not fit waits in
// temporary files.
package source

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// Rows holds rows in the codec's form with their sort keys.
type Rows struct {
	Data []byte
	Keys []int64
	Ends []uint32
}

func (p *Rows) Reset() { p.Data, p.Keys, p.Ends = p.Data[:0], p.Keys[:0], p.Ends[:0] }

func (p *Rows) Add(key int64, data []byte) {
	p.Data = data
	p.Keys = append(p.Keys, key)
	p.Ends = append(p.Ends, uint32(len(data)))
}

// Spool sorts packed rows by (key, arrival) in bounded memory: what does not
// fit is written to a temporary file as a sorted part, and the parts are merged
// when they are read back. Rows that arrive in order make one part.
type Spool struct {
	mem   *Memory
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

// Add appends the rows of one span. Rows of one add share nothing but their order.
func (s *Spool) Add(p *Rows) error {
	base, from := uint32(len(s.data)), uint32(0)
	s.data = append(s.data, p.Data...)
	for i, key := range p.Keys {
		s.recs = append(s.recs, spoolRec{key, s.seq, base + from, p.Ends[i] - from})
		from = p.Ends[i]
		s.seq++
	}
	s.rows += int64(len(p.Keys))
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

// Close removes the parts.
// Close gives up the rows; its memory closes what is left.
func (s *Spool) Close() {
	for _, f := range s.parts {
		f.Close()
		os.Remove(f.Name())
	}
	s.parts, s.data, s.recs = nil, nil, nil
}

// Reader reads a spool back in order.
type Reader struct {
	heads []*spoolHead
}

type spoolHead struct {
	r    *bufio.Reader // a part, or nil for memory
	s    *Spool
	next int
	rec  spoolRec
	row  []byte
	done bool
}

// Read starts reading; the spool takes no more rows.
func (s *Spool) Read() (*Reader, error) {
	slices.SortFunc(s.recs, recLess)
	rd := &Reader{}
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
	h.rec = spoolRec{key: int64(binary.LittleEndian.Uint64(head[0:])), seq: int64(binary.LittleEndian.Uint64(head[8:])),
		n: binary.LittleEndian.Uint32(head[16:])}
	if cap(h.row) < int(h.rec.n) {
		h.row = make([]byte, h.rec.n, 2*h.rec.n)
	}
	h.row = h.row[:h.rec.n]
	_, err := io.ReadFull(h.r, h.row)
	return err
}

// Peek returns the key of the next row; ok is false at the end.
func (rd *Reader) Peek() (key int64, ok bool) {
	h := rd.min()
	if h == nil {
		return 0, false
	}
	return h.rec.key, true
}

func (rd *Reader) min() *spoolHead {
	var best *spoolHead
	for _, h := range rd.heads {
		if !h.done && (best == nil || recLess(h.rec, best.rec) < 0) {
			best = h
		}
	}
	return best
}

// Next hands the next row to use; the bytes are valid during the call.
func (rd *Reader) Next(use func(seq int64, row []byte) error) error {
	h := rd.min()
	if err := use(h.rec.seq, h.row); err != nil {
		return err
	}
	return h.advance()
}

// Interner shares equal strings up to a bound.
type Interner struct{ m map[string]string }

func NewInterner() *Interner { return &Interner{map[string]string{}} }

func (s *Interner) Get(b []byte) string {
	if v, ok := s.m[string(b)]; ok {
		return v
	}
	if len(s.m) >= 1<<16 {
		clear(s.m)
	}
	v := string(b)
	s.m[v] = v
	return v
}
