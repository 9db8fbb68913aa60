package rows

import (
	"encoding/gob"
	"fmt"
	"io"
	"os"
)

// TableWriter writes tables to a file, one behind the other, for RestoreTables to read, bit for bit.
type TableWriter struct {
	file *os.File
	*gob.Encoder
}

// CreateTables makes such a file.
func CreateTables(path string) (TableWriter, error) {
	f, err := os.Create(path)
	return TableWriter{f, gob.NewEncoder(f)}, err
}

// Close ends the file.
func (w TableWriter) Close() error { return w.file.Close() }

// RestoreTables reads the tables of a file, n of them.
func RestoreTables(path string, use func(i int, t *Table)) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for r := gob.NewDecoder(f); ; n++ {
		t := &Table{}
		if err := r.Decode(t); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		t.check()
		use(n, t)
	}
}
