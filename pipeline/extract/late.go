package extract

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// lateRows holds rows whose step was written already when they arrived.
type lateRows struct {
	steps, snaps *spool
	stepCodec    *table.Codec[trace.Step]
	snapCodec    *table.Codec[trace.Snapshot]
	buf          packed
	rows         int64
}

func newLateRows(mem *memory) lateRows {
	return lateRows{steps: mem.spool(), snaps: mem.spool(), stepCodec: table.NewCodec[trace.Step](), snapCodec: table.NewCodec[trace.Snapshot]()}
}

func (l *lateRows) add(g stepRows) error {
	l.rows += int64(len(g.steps) + len(g.snaps))
	l.buf.reset()
	for i := range g.steps {
		l.buf.add(g.steps[i].ID, l.stepCodec.Append(l.buf.data, &g.steps[i]))
	}
	if err := l.steps.add(&l.buf); err != nil {
		return err
	}
	l.buf.reset()
	for i := range g.snaps {
		l.buf.add(g.snaps[i].StepID, l.snapCodec.Append(l.buf.data, &g.snaps[i]))
	}
	return l.snaps.add(&l.buf)
}

// mergeLate writes the tables once more: what was written, merged with what
// came late. It starts the engine's figures anew.
func (m *stepTables) mergeLate() error {
	early := filepath.Join(m.dir, stagePrefix+"early")
	if err := os.MkdirAll(early, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(early)
	for _, name := range []string{table.Steps, table.Snapshots} {
		file := name + "." + string(m.format)
		if err := os.Rename(filepath.Join(m.dir, file), filepath.Join(early, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.out, m.owners, m.before, m.now = stepOutput{}, map[string]*owner{}, nil, nil
	if err := m.create(); err != nil {
		return err
	}
	defer m.abort()
	str := newInterner()
	steps := mergeTwo(func(s *trace.Step) int64 { return s.ID },
		fileRows[trace.Step](early, table.Steps, m.format), spoolRows(m.late.steps, m.late.stepCodec, str))
	snaps := mergeTwo(func(s *trace.Snapshot) int64 { return s.StepID },
		fileRows[trace.Snapshot](early, table.Snapshots, m.format), spoolRows(m.late.snaps, m.late.snapCodec, str))
	defer steps.stop()
	defer snaps.stop()
	for {
		id, ok := firstID(steps, snaps)
		if !ok {
			break
		}
		if err := m.write(stepRows{steps.take(id), snaps.take(id)}, id); err != nil {
			return err
		}
	}
	if err := errors.Join(steps.err, snaps.err); err != nil {
		return err
	}
	return m.finish()
}

func firstID(steps *twoWay[trace.Step], snaps *twoWay[trace.Snapshot]) (int64, bool) {
	a, okA := steps.first()
	b, okB := snaps.first()
	switch {
	case okA && okB:
		return min(a, b), true
	case okA:
		return a, true
	}
	return b, okB
}

// twoWay joins two sorted sources; of equal keys the first source's come first.
type twoWay[T any] struct {
	key   func(*T) int64
	heads [2]wayHead[T]
	group []T
	err   error
}

type wayHead[T any] struct {
	next func() (T, error, bool)
	stop func()
	row  T
	ok   bool
}

func mergeTwo[T any](key func(*T) int64, a, b iter.Seq2[T, error]) *twoWay[T] {
	m := &twoWay[T]{key: key}
	for i, seq := range []iter.Seq2[T, error]{a, b} {
		h := &m.heads[i]
		h.next, h.stop = iter.Pull2(seq)
		m.advance(h)
	}
	return m
}

func (m *twoWay[T]) advance(h *wayHead[T]) {
	var err error
	if h.row, err, h.ok = h.next(); err != nil {
		m.err, h.ok = err, false
	}
}

func (m *twoWay[T]) stop() {
	for i := range m.heads {
		m.heads[i].stop()
	}
}

// first is the lowest key; ok is false at the end.
func (m *twoWay[T]) first() (key int64, ok bool) {
	for i := range m.heads {
		if h := &m.heads[i]; h.ok && (!ok || m.key(&h.row) < key) {
			key, ok = m.key(&h.row), true
		}
	}
	return key, ok
}

// take removes the rows with a key; they are valid until the next call.
func (m *twoWay[T]) take(key int64) []T {
	m.group = m.group[:0]
	for i := range m.heads {
		for h := &m.heads[i]; h.ok && m.key(&h.row) == key; m.advance(h) {
			m.group = append(m.group, h.row)
		}
	}
	return m.group
}

// fileRows reads a table row by row; a missing one is empty.
func fileRows[T any](dir, name string, format table.Format) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c, err := table.OpenFile[T](filepath.Join(dir, name+"."+string(format)))
		if err == nil {
			defer c.Close()
			for c.Next() {
				if !yield(*c.Row(), nil) {
					return
				}
			}
			err = c.Err()
		}
		var none T
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(none, err)
		}
	}
}

// spoolRows reads a spool in order.
func spoolRows[T any](s *spool, codec *table.Codec[T], str *interner) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rd, err := s.read()
		for err == nil {
			if _, ok := rd.peek(); !ok {
				return
			}
			var row T
			err = rd.next(func(_ int64, b []byte) error { return codec.Decode(b, &row, str.get) })
			if err == nil && !yield(row, nil) {
				return
			}
		}
		var none T
		yield(none, err)
	}
}
