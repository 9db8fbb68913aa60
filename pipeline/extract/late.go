package extract

import (
	"errors"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// lateRows holds rows whose step was written already when they arrived.
type lateRows struct {
	steps *source.Sorter[trace.Step]
	snaps *source.Sorter[trace.Snapshot]
	rows  int64
}

func newLateRows(mem *source.Memory) lateRows {
	return lateRows{steps: source.NewSorter[trace.Step](mem), snaps: source.NewSorter[trace.Snapshot](mem)}
}

func (l *lateRows) add(g otlp.StepRows) error {
	l.rows += int64(len(g.Steps) + len(g.Snaps))
	for i := range g.Steps {
		if err := l.steps.Put(g.Steps[i].ID, &g.Steps[i]); err != nil {
			return err
		}
	}
	for i := range g.Snaps {
		if err := l.snaps.Put(g.Snaps[i].StepID, &g.Snaps[i]); err != nil {
			return err
		}
	}
	return nil
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

// sortedRows reads rows that were late in order.
func sortedRows[T any](s *source.Sorter[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := s.Rows(func(_ int64, row *T) error {
			if !yield(*row, nil) {
				return errEnough
			}
			return nil
		})
		var none T
		if err != nil && err != errEnough {
			yield(none, err)
		}
	}
}

var errEnough = errors.New("nobody wants more rows")
