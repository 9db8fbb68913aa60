package source

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

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
		s.page, s.base = s.page[:min(want, s.end-at)], at
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
