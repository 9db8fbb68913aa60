package rows

// This file writes tables to disk and reads them back, for fits that make rows in one process and use
// them in another.

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/blis-train/blis-train/internal/files"
)

// tables encodes tables that are written to disk until a later stage needs them.
var tables = files.NewCodec[Table]()

// TableWriter writes tables to a file one after another; RestoreTables reads them back bit for bit.
type TableWriter struct {
	file *os.File
	buf  []byte
}

// CreateTables creates a file of tables and returns its writer.
func CreateTables(path string) (*TableWriter, error) {
	f, err := os.Create(path)
	return &TableWriter{file: f}, err
}

// Encode appends a table, preceded by its length in bytes.
func (w *TableWriter) Encode(t *Table) error {
	w.buf = tables.Append(append(w.buf[:0], make([]byte, 8)...), t)
	binary.LittleEndian.PutUint64(w.buf, uint64(len(w.buf)-8))
	_, err := w.file.Write(w.buf)
	return err
}

// Close ends the file.
func (w *TableWriter) Close() error { return w.file.Close() }

// RestoreTables calls use for each table of a file and returns their number.
func RestoreTables(path string, use func(i int, t *Table)) (n int, err error) {
	f, err := files.Open(path, false)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var buf []byte
	texts := files.NewInterner()
	for r := bufio.NewReader(f); ; n++ {
		var size [8]byte
		if _, err := io.ReadFull(r, size[:]); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		buf = append(buf[:0], make([]byte, binary.LittleEndian.Uint64(size[:]))...)
		t := &Table{}
		if _, err = io.ReadFull(r, buf); err == nil {
			err = tables.Decode(buf, t, texts)
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		t.checkColumns()
		use(n, t)
	}
}
