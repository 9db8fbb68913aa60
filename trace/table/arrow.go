package table

import (
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// arrowEncoder writes Arrow IPC files (uncompressed, so that readers can map them).
type arrowEncoder[T any] struct {
	w      *ipc.FileWriter
	schema *arrow.Schema
	cols   []column
}

func newArrowEncoder[T any](name string, out io.Writer, cols []column) (*arrowEncoder[T], error) {
	sc := arrowSchema(name, cols)
	w, err := ipc.NewFileWriter(&countingSeeker{w: out}, ipc.WithSchema(sc))
	return &arrowEncoder[T]{w: w, schema: sc, cols: cols}, err
}

// countingSeeker gives ipc.FileWriter the position it asks for; it never moves.
type countingSeeker struct {
	w io.Writer
	n int64
}

func (s *countingSeeker) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	return n, err
}

func (s *countingSeeker) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, fmt.Errorf("table: cannot seek in a stream")
	}
	return s.n, nil
}

func (e *arrowEncoder[T]) close() error { return e.w.Close() }

func (e *arrowEncoder[T]) group(rows []T) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, e.schema)
	defer b.Release()
	for i := range e.cols {
		appendColumn(&e.cols[i], b.Field(i), rows)
	}
	rec := b.NewRecord()
	defer rec.Release()
	return e.w.Write(rec)
}

func appendColumn[T any](c *column, b array.Builder, rows []T) {
	for i := range rows {
		p := unsafe.Pointer(&rows[i])
		if !c.isKnown(p) {
			b.AppendNull()
			continue
		}
		switch b := b.(type) {
		case *array.Int64Builder:
			b.Append(*at[int64](p, c.offset))
		case *array.Float64Builder:
			b.Append(*at[float64](p, c.offset))
		case *array.BooleanBuilder:
			b.Append(*at[bool](p, c.offset))
		case *array.StringBuilder:
			b.Append(*at[string](p, c.offset))
		case *array.ListBuilder:
			appendList(c, b, p)
		}
	}
}

func appendList(c *column, b *array.ListBuilder, p unsafe.Pointer) {
	b.Append(true)
	if v, ok := b.ValueBuilder().(*array.Float64Builder); ok {
		v.AppendValues(*at[[]float64](p, c.offset), nil)
		return
	}
	v := b.ValueBuilder().(*array.StringBuilder)
	for _, s := range *at[[]string](p, c.offset) {
		v.Append(s)
	}
}

// arrowGroups reads an Arrow IPC file.
type arrowGroups[T any] struct {
	rd   *ipc.FileReader
	cols []column
	at   int // of rec
	rec  arrow.Record
	err  error
}

func openArrow[T any](path string, r ipc.ReadAtSeeker, cols []column) (groups[T], error) {
	rd, err := ipc.NewFileReader(r)
	if err != nil {
		return nil, err
	}
	md := rd.Schema().Metadata()
	if err := checkVersion(path, md.FindKey(metaVersion) >= 0 && md.Values()[md.FindKey(metaVersion)] == SchemaVersion); err != nil {
		rd.Close()
		return nil, err
	}
	return &arrowGroups[T]{rd: rd, cols: cols, at: -1}, nil
}

func (d *arrowGroups[T]) close()     { d.rd.Close() }
func (d *arrowGroups[T]) count() int { return d.rd.NumRecords() }

// record loads a record unless it is the last one loaded.
func (d *arrowGroups[T]) record(g int) (arrow.Record, error) {
	if d.at != g {
		d.at = g
		d.rec, d.err = d.rd.Record(g)
	}
	return d.rec, d.err
}

func (d *arrowGroups[T]) size(g int) int {
	rec, err := d.record(g)
	if err != nil {
		return 0 // read reports it
	}
	return int(rec.NumRows())
}

func (d *arrowGroups[T]) read(g int, rows []T) error {
	rec, err := d.record(g)
	if err != nil {
		return err
	}
	for j := range d.cols {
		if err := loadColumn(&d.cols[j], rec, rows); err != nil {
			return err
		}
	}
	return nil
}

func loadColumn[T any](c *column, rec arrow.Record, rows []T) error {
	idx := rec.Schema().FieldIndices(c.Name)
	if len(idx) != 1 {
		return fmt.Errorf("column %q: got %d of them, want 1", c.Name, len(idx))
	}
	col := rec.Column(idx[0])
	for i := range rows {
		if col.IsNull(i) {
			continue
		}
		p := unsafe.Pointer(&rows[i])
		if c.Nullable {
			*at[bool](p, c.known) = true
		}
		switch a := col.(type) {
		case *array.Int64:
			*at[int64](p, c.offset) = a.Value(i)
		case *array.Float64:
			*at[float64](p, c.offset) = a.Value(i)
		case *array.Boolean:
			*at[bool](p, c.offset) = a.Value(i)
		case *array.String:
			*at[string](p, c.offset) = strings.Clone(a.Value(i))
		case *array.List:
			loadList(c, a, i, p)
		}
	}
	return nil
}

func loadList(c *column, a *array.List, i int, p unsafe.Pointer) {
	start, end := a.ValueOffsets(i)
	for j := int(start); j < int(end); j++ {
		if v, ok := a.ListValues().(*array.Float64); ok {
			list := at[[]float64](p, c.offset)
			*list = append(*list, v.Value(j))
			continue
		}
		list := at[[]string](p, c.offset)
		*list = append(*list, strings.Clone(a.ListValues().(*array.String).Value(j)))
	}
}
