package table

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/blis-train/blis-train/trace"
)

// runPrefix starts the name of a run's folder, so that DuckDB and pandas read
// the tables folder as one dataset partitioned by `run`.
const runPrefix = "run="

// RunDir is the folder of run id below the output folder out.
func RunDir(out, id string) string { return filepath.Join(out, "tables", runPrefix+id) }

// RunIDs lists the extracted runs of an output folder, sorted.
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

// Read reads the folder of one run into memory, Parquet or Arrow IPC: the named
// tables, or all. A missing table is an empty one. A long recording takes
// gigabytes this way; Open reads a table in bounded memory.
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

// ReadLean reads a run like Read but for what is large and seldom needed: its
// snapshots stay on disk (trace.Run.Stored), its journey events are left out
// unless they are named.
func ReadLean(dir string, also ...string) (*trace.Run, error) {
	run, err := Read(dir, append([]string{Requests, Steps, KVEvents, ObservedRequests, Iterations, Points}, also...)...)
	if err != nil {
		return nil, err
	}
	run.Stored = func() (trace.SnapshotCursor, error) { return Open[trace.Snapshot](dir, Snapshots) }
	return run, nil
}

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

// CountRows reads a file of the named table to its end and counts its rows.
func CountRows(path, name string) (int64, error) {
	for _, t := range Tables {
		if t.Name == name {
			return t.count(path)
		}
	}
	return 0, fmt.Errorf("table %q: no table of that name", name)
}

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

// Cursor walks the rows of one table in their stable order, which is time order:
// requests by arrival (unknown last), steps and snapshots by step id. It holds
// one batch of rows and a page of each column, a few megabytes whatever the size
// of the table, and fails where a row is out of order, a type is not the
// column's, or the file is damaged.
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
// Two cursors are merged by holding the row of each and moving the one that is
// behind; a second pass is a second Open.
type Cursor[T any] struct {
	path  string
	file  *os.File
	rows  rows[T]
	batch []T
	at    int // of the row in batch, from 1
	last  T   // of the batch before
	any   bool
	err   error
}

// Open opens a table of a run's folder, Parquet or Arrow IPC. A missing table
// is an empty one.
func Open[T any](dir, name string) (*Cursor[T], error) {
	for _, format := range []Format{Parquet, Arrow} {
		c, err := OpenFile[T](filepath.Join(dir, name+"."+string(format)))
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return &Cursor[T]{}, nil
}

// OpenFile opens one table file; the extension says the format.
func OpenFile[T any](path string) (*Cursor[T], error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() { // opening a pipe may wait for ever
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
	if err := c.open(f, st.Size(), format); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// open reads the footer and compares it with the columns of T.
func (c *Cursor[T]) open(r io.ReaderAt, size int64, format Format) (err error) {
	defer c.guard(&err)
	cols := columnsOf(reflect.TypeFor[T]())
	if format == Arrow {
		c.rows, err = openArrow[T](r, size, cols)
	} else {
		c.rows, err = openParquet[T](r, size, cols)
	}
	return err
}

// guard gives errors the file's name; what the libraries panic with at damaged
// bytes is an error of the file too.
func (c *Cursor[T]) guard(err *error) {
	if r := recover(); r != nil {
		*err = damaged(fmt.Errorf("%v", r))
	}
	if *err != nil {
		*err = fmt.Errorf("%s: %w", c.path, *err)
	}
}

// batchBytes is about what one batch of rows takes.
const batchBytes = 1 << 20

// batchRows is how many rows of T are read at once.
func batchRows[T any]() int {
	var row T
	return min(4096, max(256, batchBytes/int(unsafe.Sizeof(row))))
}

// Next goes to the next row; false at the end and on an error.
func (c *Cursor[T]) Next() bool {
	if c.at < len(c.batch) {
		c.at++
		return true
	}
	if c.err != nil || c.rows == nil {
		return false
	}
	if c.batch == nil {
		c.batch = make([]T, batchRows[T]())
	}
	c.batch = c.batch[:cap(c.batch)]
	clear(c.batch)
	var n int
	n, c.err = c.fill(c.batch)
	c.batch, c.at = c.batch[:n], min(n, 1)
	return n > 0
}

// fill reads rows and checks their order; on an error there are none.
func (c *Cursor[T]) fill(rows []T) (n int, err error) {
	defer c.guard(&err)
	if n, err = c.rows.next(rows); err != nil || n == 0 {
		return 0, err
	}
	before := &c.last
	for i := range rows[:n] {
		if why := disorder(before, &rows[i]); why != "" && c.any {
			return 0, trace.Errorf(CodeDamaged, "%s", why).WithHint(extractHint)
		}
		before, c.any = &rows[i], true
	}
	c.last = rows[n-1]
	return n, nil
}

// Row is the current row, valid until Next; its texts and lists stay.
func (c *Cursor[T]) Row() *T { return &c.batch[c.at-1] }

// Err is what ended the rows too early; nil for nothing.
func (c *Cursor[T]) Err() error { return c.err }

// Close closes the file.
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

// All reads what is left and closes the file.
func (c *Cursor[T]) All() (out []T, err error) {
	defer c.Close()
	if c.rows == nil {
		return nil, nil
	}
	out = make([]T, 0, c.rows.count()+1)
	for {
		if len(out) == cap(out) {
			out = slices.Grow(out, max(batchRows[T](), len(out)))
		}
		n, err := c.fill(out[len(out):min(len(out)+batchRows[T](), cap(out))])
		if err != nil || n == 0 {
			return out, err
		}
		out = out[:len(out)+n]
	}
}

// disorder says why row b may not follow row a; "" when it may.
func disorder[T any](a, b *T) string {
	switch b := any(b).(type) {
	case *trace.Step:
		if a := any(a).(*trace.Step); a.ID >= b.ID {
			return fmt.Sprintf("column step_id: got %d after %d, want ascending steps", b.ID, a.ID)
		}
	case *trace.Snapshot:
		if a := any(a).(*trace.Snapshot); a.StepID > b.StepID {
			return fmt.Sprintf("column step_id: got %d after %d, want snapshots in the order of their steps", b.StepID, a.StepID)
		}
	case *trace.Iteration:
		if a := any(a).(*trace.Iteration); a.Index >= b.Index {
			return fmt.Sprintf("column iteration: got %d after %d, want ascending iterations", b.Index, a.Index)
		}
	case *trace.Request:
		if a := any(a).(*trace.Request); cmp.Or(unknownLast(a.ArrivedNs, b.ArrivedNs), unknownLast(a.QueuedNs, b.QueuedNs)) > 0 {
			return fmt.Sprintf("column arrived_ns: got request %q after a later one, want requests by arrival", b.CoreID.Or(b.APIID.V))
		}
	case *trace.JourneyEvent:
		if a := any(a).(*trace.JourneyEvent); a.CoreID > b.CoreID {
			return fmt.Sprintf("column core_id: got %q after %q, want events in the order of their requests' ids", b.CoreID, a.CoreID)
		}
	}
	return ""
}

func unknownLast(a, b trace.Opt[int64]) int {
	return cmp.Compare(a.Or(math.MaxInt64), b.Or(math.MaxInt64))
}

// Codes of this package.
const (
	CodeNoTables trace.Code = "no_tables"
	CodeDamaged  trace.Code = "table_damaged"
)

// What may be wrong with a column.
var (
	errMissing    = errors.New("not in the file")
	errRepeated   = errors.New("got several of that name, want one")
	errNull       = errors.New("got a null, want a value in every row")
	errNullInList = errors.New("got a null in a list, want values")
)

func columnError(c *column, err error) error {
	return trace.Errorf(CodeDamaged, "column %s: %v", c.Name, err).WithHint(extractHint)
}

func damaged(err error) error {
	return trace.Errorf(CodeDamaged, "the table is damaged: %.200v", err).WithHint(extractHint)
}

const extractHint = "blis-train extract RUNDIR... -o OUT --force"

// checkVersion takes a file without a version: other programs leave it out, and
// the columns are compared one by one.
func checkVersion(got string) error {
	if got == "" || got == SchemaVersion {
		return nil
	}
	return trace.Errorf(CodeDamaged, "table of another schema version: got %.20q, want %s", got, SchemaVersion).WithHint(extractHint)
}
