package source

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestSorterByHand: rows come back by key and, of one key, in the order they were put, whether they fit into memory or
// each went to disk.
func TestSorterByHand(t *testing.T) {
	type row struct {
		N    int64
		Text string
	}
	for _, limit := range []int{1 << 20, 0} {
		m := &Memory{Dir: t.TempDir(), Limit: limit}
		s := NewSorter[row](m)
		for i, key := range []int64{5, -1, 5, 3, 5, -1} {
			if err := s.Put(key, &row{int64(i), fmt.Sprint("t", i)}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		err := s.Rows(func(key int64, r *row) error {
			got = append(got, fmt.Sprint(key, " ", r.N, " ", r.Text))
			return nil
		})
		if want := []string{"-1 1 t1", "-1 5 t5", "3 3 t3", "5 0 t0", "5 2 t2", "5 4 t4"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q, %v, want %q", limit, got, err, want)
		}
		if err := s.Rows(func(int64, *row) error { return io.ErrClosedPipe }); limit == 0 && err != io.ErrClosedPipe {
			t.Errorf("limit %d: got %v, want the caller's error", limit, err)
		}
		m.Close()
	}
}

// TestReadErrors: what a read failed with, by kind.
func TestReadErrors(t *testing.T) {
	s := &Source{Name: "f"}
	own := s.Errorf(CodeOverLimit, "long")
	if got := s.ReadError(own); got != error(own) {
		t.Errorf("got %v", got)
	}
	g := &gap{at: 3, Lost: 4}
	if got := s.ReadError(fmt.Errorf("x: %w", g)); got != error(g) {
		t.Errorf("a gap: got %v", got)
	}
	for _, c := range []struct {
		err    error
		packed bool
		code   string
		text   string
	}{{io.ErrUnexpectedEOF, false, string(CodeCut), cutMessage}, {io.ErrClosedPipe, false, string(CodeUnreadable), "read: io: read/write on closed pipe"}} {
		s.packed = c.packed
		e := AsSyntax(s.ReadError(c.err))
		if e == nil || string(e.Code) != c.code || !strings.Contains(e.Msg, c.text) {
			t.Errorf("%v: got %+v", c.err, e)
		}
	}
}
