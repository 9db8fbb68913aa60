package source

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestSpilledRowsReadInOrder: a spool gives rows back by key, then arrival,
// whatever it could hold in memory.
func TestSpilledRowsReadInOrder(t *testing.T) {
	for _, limit := range []int{0, 100, 1 << 20} {
		mem := &Memory{Dir: t.TempDir(), Limit: limit}
		s := mem.Spool()
		for i := range 500 {
			var p Rows
			p.Add(int64(i*7919%97), []byte(fmt.Sprintf("%03d", i)))
			if err := s.Add(&p); err != nil {
				t.Fatal(err)
			}
		}
		rd, err := s.Read()
		if err != nil {
			t.Fatal(err)
		}
		n, lastKey, lastSeq := 0, int64(-1), int64(-1)
		for {
			key, ok := rd.Peek()
			if !ok {
				break
			}
			err := rd.Next(func(seq int64, row []byte) error {
				if key < lastKey || key == lastKey && seq <= lastSeq {
					t.Fatalf("limit %d: (%d, %d) after (%d, %d)", limit, key, seq, lastKey, lastSeq)
				}
				if want := fmt.Sprintf("%03d", seq); string(row) != want {
					t.Fatalf("row %d: got %q, want %q", seq, row, want)
				}
				lastKey, lastSeq = key, seq
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 500 {
			t.Errorf("limit %d: got %d rows, want 500", limit, n)
		}
		mem.Close()
		if left, _ := filepath.Glob(filepath.Join(mem.Dir, "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
