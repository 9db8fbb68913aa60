package table

// This file reads the tables of a run from its folder.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/blis-train/blis-train/trace"
)

// runPrefix is the prefix of the name of a run's folder, by which DuckDB and pandas read the tables
// folder as one dataset partitioned by `run`.
const runPrefix = "run="

// RunDir returns the path of the folder of the run id in the output folder out.
func RunDir(out, id string) string { return filepath.Join(out, "tables", runPrefix+id) }

// RunIDs returns the ids of the runs that were extracted to an output folder, sorted. It returns an
// error if there are none.
func RunIDs(out string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(out, "tables"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), runPrefix); ok && e.IsDir() {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, trace.Errorf(CodeNoTables, "%s: got no tables/run=<id> folder, want the output of extract", out).
			WithHint(fmt.Sprintf("blis-train extract RUNDIR -o %s", out))
	}
	slices.Sort(ids)
	return ids, nil
}

// Read returns the run in the folder dir with the named tables, or all of them if none is named,
// from Parquet or Arrow IPC. A missing table is empty. The tables of a long recording take
// gigabytes; Open reads a table in bounded memory.
func Read(dir string, names ...string) (*trace.Run, error) {
	run := &trace.Run{ID: strings.TrimPrefix(filepath.Base(dir), runPrefix)}
	err := errors.Join(
		readInto(dir, Requests, names, &run.Requests),
		readInto(dir, JourneyEvents, names, &run.Events),
		readInto(dir, Steps, names, &run.Steps),
		readInto(dir, Snapshots, names, &run.Snapshots),
		readInto(dir, KVEvents, names, &run.KVEvents),
		readInto(dir, ObservedRequests, names, &run.Observed),
		readInto(dir, Iterations, names, &run.Iterations),
		readInto(dir, Points, names, &run.Points),
	)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// ReadLean returns the run like Read but without its largest tables in memory: snapshots stay on
// disk (trace.Run.Stored), and journey events are read only if also names them.
func ReadLean(dir string, also ...string) (*trace.Run, error) {
	run, err := Read(dir, append([]string{Requests, Steps, KVEvents, ObservedRequests, Iterations, Points}, also...)...)
	if err != nil {
		return nil, err
	}
	run.Stored = func() (trace.SnapshotCursor, error) { return Open[trace.Snapshot](dir, Snapshots) }
	return run, nil
}

// readInto reads the table name of the folder dir into dst if names is empty or has it.
func readInto[T any](dir, name string, names []string, dst *[]T) error {
	if len(names) > 0 && !slices.Contains(names, name) {
		return nil
	}
	c, err := Open[T](dir, name)
	if err != nil {
		return err
	}
	*dst, err = c.All()
	return err
}

// CountRows returns the number of rows in a file of the table name, which it reads to the end.
func CountRows(path, name string) (int64, error) {
	for _, t := range Tables {
		if t.Name == name {
			return t.count(path)
		}
	}
	return 0, fmt.Errorf("table %q: no table of that name", name)
}

// countFile returns the number of rows of type T in a file.
func countFile[T any](path string) (n int64, err error) {
	c, err := OpenFile[T](path)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for c.Next() {
		n++
	}
	return n, c.Err()
}

// Cursor walks the rows of one table in their order, which is time order: requests by arrival (unknown
// last), steps and snapshots by step id. It has one batch of rows and a page of each column in memory, a
// few megabytes whatever the size of the table. It fails at a row out of order, at a type that is not
// that of the column, and at damage.
//
//	steps, err := table.Open[trace.Step](dir, table.Steps)
//	if err != nil {
//		return err
//	}
//	defer steps.Close()
//	for steps.Next() {
//		use(steps.Row())
//	}
//	return steps.Err()
//
// Two cursors are merged by calling Next of the one whose row is earlier. A second pass is a second Open.
type Cursor[T any] struct {
	path  string   // of the file, for errors
	file  *os.File // nil for a missing table, and after Close
	rows  rows[T]  // the rest of the file; nil for a missing table, and after Close
	batch []T      // the rows that were read last
	at    int      // place of the current row in batch, from 1; 0 for none
	last  T        // the last row of the previous batch, for the check of the order
	any   bool     // a row was read before, which the next one must follow
	err   error    // that ended the rows
}

// Open returns a cursor over the table name in the folder dir of a run, Parquet or Arrow IPC. A
// missing table is empty.
func Open[T any](dir, name string) (*Cursor[T], error) {
	for _, format := range []Format{Parquet, Arrow} {
		c, err := OpenFile[T](filepath.Join(dir, name+"."+string(format)))
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return &Cursor[T]{}, nil
}

// OpenFile returns a cursor over one table file, whose extension is its format.
func OpenFile[T any](path string) (*Cursor[T], error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() { // opening a pipe may never return
		return nil, trace.Errorf(CodeDamaged, "%s: got no file, want a table", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	format := Parquet
	if strings.HasSuffix(path, "."+string(Arrow)) {
		format = Arrow
	}
	c := &Cursor[T]{path: path, file: f}
	if err := c.openRows(f, st.Size(), format); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// openRows reads the footer of the file, compares it with the columns of T, and sets c.rows.
func (c *Cursor[T]) openRows(r io.ReaderAt, size int64, format Format) (err error) {
	defer c.guard(&err)
	cols := columnsOf(reflect.TypeFor[T]())
	if format == Arrow {
		c.rows, err = openArrow[T](r, size, cols)
	} else {
		c.rows, err = openParquet[T](r, size, cols)
	}
	return err
}

// guard is deferred by methods that read. It adds the name of the file to their error, and turns a
// panic of a library at damaged bytes into an error.
func (c *Cursor[T]) guard(err *error) {
	if r := recover(); r != nil {
		*err = damaged(fmt.Errorf("%v", r))
	}
	if *err != nil {
		*err = fmt.Errorf("%s: %w", c.path, *err)
	}
}

// batchBytes is the approximate size of one batch of rows in memory.
const batchBytes = 1 << 20

// batchRows returns the number of rows of type T that are read at once: between 256 and 4,096,
// about batchBytes in memory.
func batchRows[T any]() int {
	var row T
	return min(4096, max(256, batchBytes/int(unsafe.Sizeof(row))))
}

// Next advances to the next row, which Row then returns. It returns false at the end and on an error,
// which Err returns.
func (c *Cursor[T]) Next() bool {
	if c.at < len(c.batch) {
		c.at++
		return true
	}
	if c.err != nil || c.rows == nil {
		return false
	}
	if c.batch == nil {
		n := batchRows[T]()
		if all := c.rows.rowCount(); all > 0 {
			n = min(n, all)
		}
		c.batch = make([]T, n)
	} else {
		c.batch = c.batch[:cap(c.batch)]
		clear(c.batch)
	}
	var n int
	n, c.err = c.readBatch(c.batch)
	c.batch = c.batch[:n]
	c.at = min(n, 1)
	return n > 0
}

// readBatch fills rows, checks their order and returns how many it filled. On an error it returns
// 0.
func (c *Cursor[T]) readBatch(rows []T) (n int, err error) {
	defer c.guard(&err)
	if n, err = c.rows.next(rows); err != nil || n == 0 {
		return 0, err
	}
	before := &c.last
	for i := range rows[:n] {
		if why := disorder(before, &rows[i]); why != "" && c.any {
			return 0, trace.Errorf(CodeDamaged, "%s", why).WithHint(extractHint)
		}
		before = &rows[i]
		c.any = true
	}
	c.last = rows[n-1]
	return n, nil
}

// Row returns the current row. It is valid until Next, but its strings and lists remain valid.
func (c *Cursor[T]) Row() *T { return &c.batch[c.at-1] }

// Err returns the error that ended the rows too early, or nil.
func (c *Cursor[T]) Err() error { return c.err }

// Close closes the file. The cursor is empty afterwards.
func (c *Cursor[T]) Close() error {
	c.rows = nil
	c.batch = nil
	c.at = 0
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}

// All returns the remaining rows and closes the file.
func (c *Cursor[T]) All() (out []T, err error) {
	defer c.Close()
	if c.rows == nil {
		return nil, nil
	}
	out = make([]T, 0, c.rows.rowCount()+1) // one more, so that the end is found without growing
	for {
		if len(out) == cap(out) {
			out = slices.Grow(out, max(batchRows[T](), len(out)))
		}
		n, err := c.readBatch(out[len(out):min(len(out)+batchRows[T](), cap(out))])
		if err != nil || n == 0 {
			return out, err
		}
		out = out[:len(out)+n]
	}
}

// rows reads the rows of one file in order.
type rows[T any] interface {
	// next fills rows, which are zero, and returns how many it filled; 0 at the end.
	next(rows []T) (int, error)
	// rowCount returns an estimate of the number of rows in the file; 0 if it is unknown.
	rowCount() int
}

// Len returns the number of rows of the table name in the folder dir of a run, as the footer of a
// Parquet file has it. It returns 0 for a missing or damaged table, and for Arrow IPC, whose footer
// does not have the number.
func Len[T any](dir, name string) int {
	c, err := Open[T](dir, name)
	if err != nil || c.rows == nil {
		return 0
	}
	defer c.Close()
	return c.rows.rowCount()
}
