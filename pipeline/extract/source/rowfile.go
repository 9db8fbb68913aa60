package source

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// This file keeps rows on disk that are read again one by one.

// rowFileBuffer is the number of bytes that a row file keeps in memory before it writes them, and that
// it reads at once.
const rowFileBuffer = 1 << 18

// RowFile stores packed rows and reads each at the place that Put returned. A short one is kept in
// memory, a long one in a temporary file. Put and Get may alternate. Rows that are read in about
// the order in which they were put share one read of the file.
type RowFile struct {
	dir  string
	file *os.File
	end  int64  // bytes in the file
	tail []byte // rows not yet written to the file
	page []byte // bytes of the file that were read last
	base int64  // offset of page in the file
}

// RowFile returns a new row file in the folder of m. Closing m closes it.
func (m *Memory) RowFile() *RowFile {
	s := &RowFile{dir: m.Dir}
	m.files = append(m.files, s)
	return s
}

// Put adds a row and returns its place for Get.
func (s *RowFile) Put(row []byte) (at int64, err error) {
	if len(s.tail) >= rowFileBuffer {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	at = s.end + int64(len(s.tail))
	s.tail = binary.AppendUvarint(s.tail, uint64(len(row)))
	s.tail = append(s.tail, row...)
	return at, nil
}

// flush appends tail to the file.
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

// Get returns the row at a place. It is valid until the next call.
func (s *RowFile) Get(at int64) ([]byte, error) {
	if at >= s.end {
		return firstRow(s.tail[at-s.end:])
	}
	// Look in the page; if the row is not in it, or not whole, read a page that begins with the row, twice as
	// large each time.
	for want := int64(rowFileBuffer); ; want *= 2 {
		if off := at - s.base; off >= 0 && off < int64(len(s.page)) {
			row, err := firstRow(s.page[off:])
			isRestOfFile := off == 0 && s.base+int64(len(s.page)) == s.end
			if err == nil || isRestOfFile {
				return row, err
			}
		}
		if int64(cap(s.page)) < want {
			s.page = make([]byte, want)
		}
		s.page = s.page[:min(want, s.end-at)]
		s.base = at
		if _, err := s.file.ReadAt(s.page, at); err != nil && err != io.EOF {
			s.page = s.page[:0]
			return nil, err
		}
	}
}

// Each calls use with every row in the order in which they were put. A row is valid during the call.
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

// firstRow returns the row at the start of b.
func firstRow(b []byte) ([]byte, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, fmt.Errorf("spool: no whole row in %d bytes", len(b))
	}
	return b[used : used+int(n)], nil
}

// close removes the file.
func (s *RowFile) close() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
		s.file = nil
	}
}
