package source

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
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
		n := 0
		lastKey := int64(-1)
		lastSeq := -1
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

// TestRowsThatCannotBeSpilled: a row that exceeds the memory of all spools, with no folder for the rows, is an error.
func TestRowsThatCannotBeSpilled(t *testing.T) {
	mem := &Memory{Dir: filepath.Join(t.TempDir(), "none"), Limit: 100}
	s := mem.Spool()
	if err := s.Add(1, make([]byte, 10)); err != nil {
		t.Errorf("a row that fits into memory: got %v", err)
	}
	if err := s.Add(2, make([]byte, 1000)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder for the rows: got %v", err)
	}
}

// TestRowFileKeepsRows: rows of all lengths come back in any order, while others are
// still put, and nothing is left behind.
func TestRowFileKeepsRows(t *testing.T) {
	mem := &Memory{Dir: t.TempDir()}
	s := mem.RowFile()
	rng := rand.New(rand.NewPCG(1, 2))
	var at []int64
	row := func(i int) []byte {
		n := i * 7919 % 500
		if i == 1500 {
			n = 3 * rowFileBuffer
		}
		return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, n)
	}
	check := func(i int) {
		t.Helper()
		if got, err := s.Get(at[i]); err != nil || !bytes.Equal(got, row(i)) {
			t.Fatalf("row %d: got %d bytes, %v, want %d", i, len(got), err, len(row(i)))
		}
	}
	for i := range 3000 {
		place, err := s.Put(row(i))
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, place)
		check(rng.IntN(i + 1))
	}
	for _, i := range rng.Perm(len(at)) {
		check(i)
	}
	n := 0
	err := s.Each(func(place int64, got []byte) {
		if place != at[n] || !bytes.Equal(got, row(n)) {
			t.Fatalf("row %d of each: got %d bytes at %d, want %d at %d", n, len(got), place, len(row(n)), at[n])
		}
		n++
	})
	if err != nil || n != len(at) {
		t.Errorf("got %d rows of each, %v, want %d", n, err, len(at))
	}
	if s.file == nil {
		t.Error("3,000 rows stayed in memory")
	}
	mem.Close()
	if left, _ := filepath.Glob(filepath.Join(mem.Dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
