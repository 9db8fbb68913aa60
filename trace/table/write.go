package table

// This file writes tables in either format.

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"unsafe"
)

// Format is a file format of tables.
type Format string

// The two formats of tables. The value is also the extension of file names.
const (
	Parquet Format = "parquet"
	Arrow   Format = "arrow"
)

// encoder writes row groups of one table in one file format. close writes the end of the file.
type encoder[T any] interface {
	group(rows []T) error
	close() error
}

// Writer writes rows of type T into one table file. It is made by Create and used by one goroutine.
// It encodes each full row group in a goroutine of its own.
type Writer[T any] struct {
	dir, name string
	format    Format
	cols      []column
	// inFourBytes: some of cols are, and all of them are numbers.
	inFourBytes bool
	buf         []T           // rows that are not yet encoded, less than a row group
	tmp         *os.File      // the file under its temporary name; nil before the first row group
	out         *bufio.Writer // into tmp
	enc         encoder[T]    // into out; nil before the first row group
	rows        int64         // appended
	spare       []T           // the other buffer: one is filled while the other is encoded
	unused      *sync.Pool    // of buffers of whole groups of these rows
	busy        chan error    // gets the result of the encoding under way; nil for none
}

// Create returns a writer of the table name in the folder dir. No file is made before the first row
// group, and a writer without rows leaves no file.
func Create[T any](dir, name string, format Format) (*Writer[T], error) {
	if format != Parquet && format != Arrow {
		return nil, fmt.Errorf("table %s: format: got %q, want parquet or arrow", name, format)
	}
	t := reflect.TypeFor[T]()
	cols := columnsOf(t)
	return &Writer[T]{dir: dir, name: name, format: format, cols: cols, unused: unusedRows(t),
		inFourBytes: slices.ContainsFunc(cols, func(c column) bool { return c.inFourBytes })}, nil
}

// Write writes rows as the table name in the folder dir.
func Write[T any](dir, name string, format Format, rows []T) error {
	w, err := Create[T](dir, name, format)
	if err != nil {
		return err
	}
	if err := w.Append(rows...); err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// groupRows returns the number of rows in a full row group. Integers that take four bytes in memory count as the eight
// that they take in a file, whose row groups do not depend on how rows are kept in memory.
func (w *Writer[T]) groupRows() int {
	var row T
	size := int(unsafe.Sizeof(row))
	if w.inFourBytes {
		size = 8 * len(w.cols)
	}
	return min(RowGroupRows, max(1, groupBytes/size))
}

// Rows returns the number of rows that were appended.
func (w *Writer[T]) Rows() int64 { return w.rows }

// Append appends copies of rows to the table.
func (w *Writer[T]) Append(rows ...T) error {
	for len(rows) > 0 {
		n := min(len(rows), w.groupRows()-len(w.buf))
		w.grow(n)
		w.buf = append(w.buf, rows[:n]...)
		w.rows += int64(n)
		rows = rows[n:]
		if len(w.buf) == w.groupRows() {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// grow makes room for n more rows in the buffer. The buffer of a small table grows with the table;
// a large table gets the buffer of a whole group at once.
func (w *Writer[T]) grow(n int) {
	const small = 1 << 10
	need := len(w.buf) + n
	switch {
	case need <= cap(w.buf):
	case need <= small:
		w.buf = slices.Grow(w.buf, n)
	default:
		rows, ok := w.unused.Get().(*[]T)
		if !ok {
			list := make([]T, 0, w.groupRows())
			rows = &list
		}
		w.buf = append(*rows, w.buf...)
	}
}

// rowPools has, for each type of rows, a sync.Pool of empty buffers of a whole group.
var rowPools sync.Map

// unusedRows returns the pool of empty buffers of rows of a type.
func unusedRows(t reflect.Type) *sync.Pool {
	pool, _ := rowPools.LoadOrStore(t, new(sync.Pool))
	return pool.(*sync.Pool)
}

// free gives a buffer of a whole group to later writers. Its rows must be cleared.
func (w *Writer[T]) free(rows []T) {
	if cap(rows) >= w.groupRows() {
		w.unused.Put(&rows)
	}
}

// flush starts to encode the buffered rows as one row group, after the group before it has been
// encoded.
func (w *Writer[T]) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if w.enc == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.wait(); err != nil {
		return err
	}
	full := w.buf
	w.buf = w.spare[:0]
	w.spare = full // it is encoded before the next flush, which waits
	w.busy = make(chan error, 1)
	go func(done chan error) {
		err := w.enc.group(full)
		clear(full)
		done <- err
	}(w.busy)
	return nil
}

// wait waits until the row group that is being encoded is written, and returns the error of doing
// so.
func (w *Writer[T]) wait() error {
	if w.busy == nil {
		return nil
	}
	err := <-w.busy
	w.busy = nil
	if err != nil {
		return fmt.Errorf("write table %s: %w", w.name, err)
	}
	return nil
}

// open creates the temporary file and its encoder.
func (w *Writer[T]) open() error {
	if registered != nil {
		return registered
	}
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(w.dir, "."+w.name+"-*.tmp")
	if err != nil {
		return err
	}
	w.tmp = tmp
	w.out = bufio.NewWriterSize(tmp, 1<<18)
	if w.format == Arrow {
		w.enc, err = newArrowEncoder[T](w.name, w.out, w.cols)
		return err
	}
	w.enc, err = newParquetEncoder[T](w.name, w.out, w.cols)
	return err
}

// Close encodes the remaining rows and gives the file its final name. On an error it removes the
// file.
func (w *Writer[T]) Close() error {
	if err := w.finish(); err != nil {
		w.Abort()
		return err
	}
	return nil
}

// finish does what Close does, without removing the file on an error.
func (w *Writer[T]) finish() error {
	if err := errors.Join(w.flush(), w.wait()); err != nil {
		return err
	}
	if w.enc == nil {
		return nil
	}
	if err := w.enc.close(); err != nil {
		return fmt.Errorf("write table %s: %w", w.name, err)
	}
	err := complete(w.out, w.tmp, filepath.Join(w.dir, w.name+"."+string(w.format)))
	if err == nil { // Rows still works afterwards
		w.tmp = nil
		w.out = nil
		w.enc = nil
		w.free(w.buf[:0])
		w.free(w.spare[:0])
		w.buf = nil
		w.spare = nil
	}
	return err
}

// complete writes the rest of a temporary file and gives the file its name.
func complete(rest *bufio.Writer, tmp *os.File, name string) error {
	if err := errors.Join(rest.Flush(), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// Abort removes the temporary file. It does nothing after Close.
func (w *Writer[T]) Abort() {
	w.wait()
	if w.tmp != nil {
		w.tmp.Close()
		os.Remove(w.tmp.Name())
		w.tmp = nil
	}
}
