package source

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
)

// TestSpilledRowsReadInOrder: a spool gives rows back by key, then arrival,
// whatever it could hold in memory.
func TestSpilledRowsReadInOrder(t *testing.T) {
	for _, limit := range []int{0, 100, 1 << 20} {
		mem := &Memory{Dir: t.TempDir(), Limit: limit}
		s := mem.Spool()
		for i := range 500 {
			if err := s.Add(int64(i*7919%97), []byte(fmt.Sprintf("%03d", i))); err != nil {
				t.Fatal(err)
			}
		}
		n, lastKey, lastSeq := 0, int64(-1), -1
		err := s.Each(func(key int64, row []byte) error {
			seq, err := strconv.Atoi(string(row))
			if err != nil || key < lastKey || key == lastKey && seq <= lastSeq || key != int64(seq*7919%97) {
				t.Fatalf("limit %d: (%d, %q) after (%d, %d)", limit, key, row, lastKey, lastSeq)
			}
			lastKey, lastSeq = key, seq
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
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
