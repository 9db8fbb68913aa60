package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	CodeSchemaVersion trace.Code = "table_schema_version"
	CodeNoTables      trace.Code = "no_tables"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeSchemaVersion, Kind: "error", Meaning: "the tables were written by another version of the schema", Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeNoTables, Kind: "error", Meaning: "the folder holds no extracted run", Action: "run `blis-train extract RUNDIR... -o OUT` first and pass the same OUT"},
}

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
	sort.Strings(ids)
	return ids, nil
}

// ReadAll reads every run of an output folder, sorted by id.
func ReadAll(out string) ([]*trace.Run, error) {
	ids, err := RunIDs(out)
	if err != nil {
		return nil, err
	}
	runs := make([]*trace.Run, len(ids))
	for i, id := range ids {
		if runs[i], err = Read(RunDir(out, id)); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// Read reads the folder of one run, Parquet or Arrow IPC. A missing table is
// an empty one.
func Read(dir string) (*trace.Run, error) {
	run := &trace.Run{ID: strings.TrimPrefix(filepath.Base(dir), runPrefix)}
	err := errors.Join(
		readInto(dir, Requests, &run.Requests),
		readInto(dir, JourneyEvents, &run.Events),
		readInto(dir, Steps, &run.Steps),
		readInto(dir, Snapshots, &run.Snapshots),
		readInto(dir, KVEvents, &run.KVEvents),
		readInto(dir, ObservedRequests, &run.Observed),
	)
	if err != nil {
		return nil, err
	}
	return run, nil
}

func readInto[T any](dir, name string, dst *[]T) error {
	for _, format := range []Format{Parquet, Arrow} {
		path := filepath.Join(dir, name+"."+string(format))
		rows, err := ReadFile[T](path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		*dst = rows
		return err
	}
	return nil
}

// ReadFile reads one table file; the extension says the format.
func ReadFile[T any](path string) ([]T, error) {
	var rows []T
	err := withFile(path, func(f groups[T]) error {
		total := 0
		for g := range f.count() {
			total += f.size(g)
		}
		rows = make([]T, total)
		part := rows
		for g := range f.count() {
			n := f.size(g)
			if err := f.read(g, part[:n]); err != nil {
				return err
			}
			part = part[n:]
		}
		return nil
	})
	return rows, err
}

// Scan hands the rows of one table file to use, a row group at a time, until
// use returns false. The slices are use's to keep.
func Scan[T any](path string, use func(rows []T) bool) error {
	return withFile(path, func(f groups[T]) error {
		for g := range f.count() {
			rows := make([]T, f.size(g))
			if err := f.read(g, rows); err != nil {
				return err
			}
			if !use(rows) {
				return nil
			}
		}
		return nil
	})
}

// groups reads the row groups of one file into zero rows.
type groups[T any] interface {
	count() int
	size(group int) int
	read(group int, rows []T) error
	close()
}

func withFile[T any](path string, use func(groups[T]) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	cols := columnsOf(reflect.TypeFor[T]())
	var g groups[T]
	if strings.HasSuffix(path, "."+string(Arrow)) {
		g, err = openArrow[T](path, f, cols)
	} else {
		g, err = openParquet[T](path, f, cols)
	}
	if err == nil {
		defer g.close()
		err = use(g)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func checkVersion(path string, same bool) error {
	if same {
		return nil
	}
	return trace.Errorf(CodeSchemaVersion, "table of another schema version, want %s", SchemaVersion).
		WithHint("blis-train extract RUNDIR... -o OUT --force")
}

// parquetGroups reads a Parquet file.
type parquetGroups[T any] struct {
	rd     *file.Reader
	cols   []column
	intern map[string]string // equal strings share their bytes
}

func openParquet[T any](path string, r parquet.ReaderAtSeeker, cols []column) (groups[T], error) {
	rd, err := file.NewParquetReader(r)
	if err != nil {
		return nil, err
	}
	v := rd.MetaData().KeyValueMetadata().FindValue(metaVersion)
	if err := checkVersion(path, v != nil && *v == SchemaVersion); err != nil {
		rd.Close()
		return nil, err
	}
	return &parquetGroups[T]{rd: rd, cols: cols, intern: map[string]string{}}, nil
}

func (d *parquetGroups[T]) close()         { d.rd.Close() }
func (d *parquetGroups[T]) count() int     { return d.rd.NumRowGroups() }
func (d *parquetGroups[T]) size(g int) int { return int(d.rd.RowGroup(g).NumRows()) }

func (d *parquetGroups[T]) read(g int, rows []T) error {
	rg := d.rd.RowGroup(g)
	for i := range d.cols {
		at := d.rd.MetaData().Schema.ColumnIndexByName(d.cols[i].path())
		if at < 0 {
			return fmt.Errorf("column %q: not in the file", d.cols[i].Name)
		}
		cr, err := rg.Column(at)
		if err != nil {
			return err
		}
		if err := d.column(&d.cols[i], cr, rows); err != nil {
			return fmt.Errorf("column %s: %w", d.cols[i].Name, err)
		}
	}
	return nil
}

func (d *parquetGroups[T]) column(c *column, cr file.ColumnChunkReader, rows []T) error {
	switch r := cr.(type) {
	case *file.Int64ColumnChunkReader:
		return load(c, rows, r.ReadBatch, func(v int64) int64 { return v })
	case *file.Float64ColumnChunkReader:
		return load(c, rows, r.ReadBatch, func(v float64) float64 { return v })
	case *file.BooleanColumnChunkReader:
		return load(c, rows, r.ReadBatch, func(v bool) bool { return v })
	case *file.ByteArrayColumnChunkReader:
		return load(c, rows, r.ReadBatch, d.text)
	}
	return fmt.Errorf("unexpected column reader %T", cr)
}

// text copies a value out of the reader's page; the table keeps one copy of
// each distinct string until there are too many to be worth it.
func (d *parquetGroups[T]) text(b parquet.ByteArray) string {
	if s, ok := d.intern[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(d.intern) < 1<<18 {
		d.intern[s] = s
	}
	return s
}

type readBatch[P any] func(n int64, vals []P, defs, reps []int16) (int64, int, error)

// load reads one column chunk and stores it into rows.
func load[T, P, V any](c *column, rows []T, read readBatch[P], conv func(P) V) error {
	const chunk = 4096
	page := make([]P, chunk)
	var vals []V
	var defs, reps []int16
	dbuf, rbuf := make([]int16, chunk), make([]int16, chunk)
	for {
		n, got, err := read(chunk, page, dbuf, rbuf)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for _, v := range page[:got] {
			vals = append(vals, conv(v))
		}
		defs, reps = append(defs, dbuf[:n]...), append(reps, rbuf[:n]...)
	}
	switch {
	case c.list:
		scatterList(c, rows, vals, defs, reps)
	case c.Nullable && len(defs) != len(rows), !c.Nullable && len(vals) != len(rows):
		return fmt.Errorf("got %d values, want %d", max(len(vals), len(defs)), len(rows))
	default:
		scatter(c, rows, vals, defs)
	}
	return nil
}
