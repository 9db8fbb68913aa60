package table_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/google/go-cmp/cmp"
)

// Tables that DuckDB, pandas, polars and pyarrow wrote anew are read right, or
// refused with the column's name.
func TestRewrittenTables(t *testing.T) {
	refused := map[string]string{
		"duckdb-v2/steps":       "column step_id: got the encoding DELTA_BINARY_PACKED",
		"pandas-numpy/requests": "column aborted_ns: got DOUBLE, want int64",
	}
	files, err := filepath.Glob("testdata/rewritten/*/*.parquet")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".parquet")
		writer := filepath.Base(filepath.Dir(f))
		if writer == "extract" {
			continue
		}
		want, err := table.Read("testdata/rewritten/extract", name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := table.Read(filepath.Dir(f), name)
		if says := refused[writer+"/"+name]; says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: got %v, want %q", f, err, says)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		got.ID = want.ID
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: read differently (-want +got):\n%s", f, diff)
		}
	}
}

// swap is a table of which one column was changed.
type swap struct {
	row    any // names the table
	column string
	typ    arrow.DataType // nil leaves the column out
	null   bool           // the last row has none
	far    bool           // an unsigned value above 63 bits
	says   string         // "" for accepted
}

var swaps = []swap{
	{row: trace.Step{}, column: "step_id", typ: arrow.BinaryTypes.String, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Float64, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.FixedWidthTypes.Boolean, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.FixedWidthTypes.Timestamp_ns, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: &arrow.Decimal128Type{Precision: 18}, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.ListOf(arrow.PrimitiveTypes.Int64), says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int32},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int16},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int8},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint64},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint32},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint16},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint8},
	{row: trace.Step{}, column: "blocks", says: ""}, // a column nobody asked for
	{row: trace.Step{}, column: "step_id", says: "not in the file"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int64, null: true, says: "got a null"},
	{row: trace.Step{}, column: "wall_ns", typ: arrow.PrimitiveTypes.Uint64, far: true, says: "want at most 9223372036854775807"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Int64, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Float32, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.BinaryTypes.String, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.FixedWidthTypes.Boolean, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Float64, null: true, says: "got a null"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.PrimitiveTypes.Int64, says: "want string"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.Binary, says: "want string"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.LargeString},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.String, null: true, says: "got a null"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.PrimitiveTypes.Int64, says: "want bool"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.BinaryTypes.String, says: "want bool"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.PrimitiveTypes.Float64, says: "want bool"},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Int64, null: true},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Uint8, null: true},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Float64, null: true, says: "want int64"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.BinaryTypes.String, says: "want list<string>"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.PrimitiveTypes.Int64), says: "want list<string>"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.BinaryTypes.String)},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.BinaryTypes.String), null: true, says: "got a null in a list"},
	{row: trace.ObservedRequest{}, column: "chunk_gaps_us", typ: arrow.PrimitiveTypes.Float64, says: "want list<float64>"},
	{row: trace.ObservedRequest{}, column: "chunk_gaps_us", typ: arrow.ListOf(arrow.BinaryTypes.String), says: "want list<float64>"},
}

// Every swap of a column's type is refused with the column's name before a
// value is stored, unless the values are the same numbers in another width.
func TestColumnTypesAreCompared(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		for _, s := range swaps {
			path := filepath.Join(t.TempDir(), "x."+string(format))
			err := s.write(path, format)
			if err == nil {
				err = s.read(path)
			}
			where := fmt.Sprintf("%s: %T.%s as %v", format, s.row, s.column, s.typ)
			switch {
			case s.says == "" && err != nil:
				t.Errorf("%s: got %v, want it read", where, err)
			case s.says != "" && (err == nil || !strings.Contains(err.Error(), s.says) || !strings.Contains(err.Error(), "column "+s.column)):
				t.Errorf("%s: got %v, want %q", where, err, s.says)
			case s.says != "" && (trace.CodeOf(err) != table.CodeDamaged || trace.HintOf(err) == ""):
				t.Errorf("%s: got %v without code and hint", where, err)
			}
		}
	}
}

// read reads the rows and checks the values of the swapped column.
func (s *swap) read(path string) error {
	check := func(n int, ok bool, err error) error {
		if err == nil && (n != 3 || !ok) {
			err = fmt.Errorf("got %d rows, want 3 with their numbers", n)
		}
		return err
	}
	switch s.row.(type) {
	case trace.Step:
		rows, err := table.ReadFile[trace.Step](path)
		return check(len(rows), err != nil || rows[2].ID == 2, err)
	case trace.Snapshot:
		rows, err := table.ReadFile[trace.Snapshot](path)
		return check(len(rows), err != nil || rows[2].StepID == 2 && rows[1].EffectivePromptLen.V == 1, err)
	case trace.KVEvent:
		rows, err := table.ReadFile[trace.KVEvent](path)
		return check(len(rows), err != nil || len(rows[1].Hashes) == 1, err)
	}
	rows, err := table.ReadFile[trace.ObservedRequest](path)
	return check(len(rows), err != nil || len(rows[1].ChunkGapsUs) == 1, err)
}

func (s *swap) columns() []table.Column {
	switch s.row.(type) {
	case trace.Step:
		return table.Columns[trace.Step]()
	case trace.Snapshot:
		return table.Columns[trace.Snapshot]()
	case trace.KVEvent:
		return table.Columns[trace.KVEvent]()
	}
	return table.Columns[trace.ObservedRequest]()
}

// write writes three rows of the table, the column swapped.
func (s *swap) write(path string, format table.Format) error {
	var fields []arrow.Field
	cols := s.columns()
	if s.column == "blocks" {
		cols = append(cols, table.Column{Name: "blocks", Type: "int64"})
	}
	for _, c := range cols {
		typ, null := ownType(c.Type), c.Nullable
		if c.Name == s.column && s.column != "blocks" {
			if s.typ == nil {
				continue
			}
			typ, null = s.typ, true
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: typ, Nullable: null})
	}
	sc := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	for i, f := range fields {
		for row := range 3 {
			changed := f.Name == s.column
			appendAny(b.Field(i), row, changed && s.null && row == 2, changed && s.far)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	if format == table.Arrow {
		w, err := ipc.NewFileWriter(out, ipc.WithSchema(sc))
		if err != nil {
			return err
		}
		return errors.Join(w.Write(rec), w.Close())
	}
	return writeParquet(out, fields, s)
}

// writeParquet writes the same rows as Parquet.
func writeParquet(out io.Writer, fields []arrow.Field, s *swap) error {
	var nodes schema.FieldList
	for _, f := range fields {
		nodes = append(nodes, nodeOf(f))
	}
	root := schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1))
	w := file.NewParquetWriter(out, root)
	rg := w.AppendRowGroup()
	for _, f := range fields {
		changed := f.Name == s.column
		vals, defs, reps := []int{0, 1, 2}, []int16(nil), []int16(nil)
		_, list := f.Type.(*arrow.ListType)
		most := int16(0)
		if f.Nullable {
			most++
		}
		if list {
			most += 2
		}
		if most > 0 {
			defs, reps = []int16{most, most, most}, []int16{0, 0, 0}
		}
		if changed && s.null {
			vals, defs[2] = vals[:2], most-1
		}
		cw, err := rg.NextColumn()
		if err != nil {
			return err
		}
		if err := errors.Join(writeInts(cw, vals, defs, reps, changed && s.far), cw.Close()); err != nil {
			return err
		}
	}
	return errors.Join(rg.Close(), w.Close())
}

// nodeOf is a column in Parquet's terms.
func nodeOf(f arrow.Field) schema.Node {
	rep := parquet.Repetitions.Required
	if f.Nullable {
		rep = parquet.Repetitions.Optional
	}
	if l, ok := f.Type.(*arrow.ListType); ok {
		elem := nodeOf(arrow.Field{Name: "element", Type: l.Elem(), Nullable: true})
		mid := schema.MustGroup(schema.NewGroupNode("list", parquet.Repetitions.Repeated, schema.FieldList{elem}, -1))
		return schema.MustGroup(schema.NewGroupNodeLogical(f.Name, rep, schema.FieldList{mid}, schema.NewListLogicalType(), -1))
	}
	var logical schema.LogicalType = schema.NoLogicalType{}
	var physical parquet.Type
	switch t := f.Type.(type) {
	case *arrow.Int64Type:
		physical = parquet.Types.Int64
	case *arrow.Uint64Type:
		physical, logical = parquet.Types.Int64, schema.NewIntLogicalType(64, false)
	case *arrow.Int32Type, *arrow.Int16Type, *arrow.Int8Type:
		physical, logical = parquet.Types.Int32, schema.NewIntLogicalType(int8(t.(arrow.FixedWidthDataType).BitWidth()), true)
	case *arrow.Uint32Type, *arrow.Uint16Type, *arrow.Uint8Type:
		physical, logical = parquet.Types.Int32, schema.NewIntLogicalType(int8(t.(arrow.FixedWidthDataType).BitWidth()), false)
	case *arrow.Float64Type:
		physical = parquet.Types.Double
	case *arrow.Float32Type:
		physical = parquet.Types.Float
	case *arrow.BooleanType:
		physical = parquet.Types.Boolean
	case *arrow.TimestampType:
		physical, logical = parquet.Types.Int64, schema.NewTimestampLogicalType(true, schema.TimeUnitNanos)
	case *arrow.Decimal128Type:
		physical, logical = parquet.Types.Int64, schema.NewDecimalLogicalType(t.Precision, 0)
	case *arrow.BinaryType:
		physical = parquet.Types.ByteArray
	default:
		physical, logical = parquet.Types.ByteArray, schema.StringLogicalType{}
	}
	return schema.MustPrimitive(schema.NewPrimitiveNodeLogical(f.Name, rep, logical, physical, 0, -1))
}

// writeInts writes numbers in the column's type.
func writeInts(cw file.ColumnChunkWriter, vals []int, defs, reps []int16, far bool) (err error) {
	switch w := cw.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) int64 {
			if far {
				return -1
			}
			return int64(v)
		}), defs, reps)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) int32 { return int32(v) }), defs, reps)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) float64 { return float64(v) }), defs, reps)
	case *file.Float32ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) float32 { return float32(v) }), defs, reps)
	case *file.BooleanColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) bool { return v == 1 }), defs, reps)
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) parquet.ByteArray { return parquet.ByteArray(fmt.Sprint(v)) }), defs, reps)
	default:
		err = fmt.Errorf("unexpected column writer %T", cw)
	}
	return err
}

func each[V any](vals []int, f func(int) V) []V {
	out := make([]V, len(vals))
	for i, v := range vals {
		out[i] = f(v)
	}
	return out
}

func ownType(name string) arrow.DataType {
	switch name {
	case "int64":
		return arrow.PrimitiveTypes.Int64
	case "float64":
		return arrow.PrimitiveTypes.Float64
	case "bool":
		return arrow.FixedWidthTypes.Boolean
	case "string":
		return arrow.BinaryTypes.String
	case "list<string>":
		return arrow.ListOf(arrow.BinaryTypes.String)
	}
	return arrow.ListOf(arrow.PrimitiveTypes.Float64)
}

// appendAny appends the row's number in the builder's type.
func appendAny(b array.Builder, row int, null, far bool) {
	if l, ok := b.(*array.ListBuilder); ok {
		l.Append(true)
		appendAny(l.ValueBuilder(), row, null, far)
		return
	}
	if null {
		b.AppendNull()
		return
	}
	switch v := b.(type) {
	case *array.Uint64Builder:
		if far {
			v.Append(math.MaxUint64)
			return
		}
	case *array.BooleanBuilder:
		v.Append(row == 1)
		return
	case *array.BinaryBuilder:
		v.Append([]byte{byte(row)})
		return
	}
	b.AppendValueFromString(fmt.Sprint(row)) // a null where the type takes no number
}

// Rows in another order are refused with the column's name.
func TestRowOrderIsChecked(t *testing.T) {
	dir := t.TempDir()
	steps, snaps, reqs := rows[trace.Step](5), rows[trace.Snapshot](9), rows[trace.Request](5)
	steps[1], steps[3] = steps[3], steps[1]
	snaps[0], snaps[8] = snaps[8], snaps[0]
	reqs[2].ArrivedNs = trace.Opt[int64]{}
	for name, err := range map[string]error{
		"step_id: got 2 after 3": table.Write(dir, table.Steps, table.Parquet, steps),
		"step_id: got 0 after 2": table.Write(dir, table.Snapshots, table.Parquet, snaps),
		"arrived_ns: got":        table.Write(dir, table.Requests, table.Parquet, reqs),
	} {
		if err != nil {
			t.Fatal(err)
		}
		if _, err = table.Read(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// A cursor holds a batch of rows, whatever the table's size, and gives them all.
func TestCursorIsTheWholeTable(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		dir := t.TempDir()
		want := rows[trace.KVEvent](10_000)
		if err := table.Write(dir, table.KVEvents, format, want); err != nil {
			t.Fatal(err)
		}
		c, err := table.Open[trace.KVEvent](dir, table.KVEvents)
		if err != nil {
			t.Fatal(err)
		}
		var got []trace.KVEvent
		for c.Next() {
			got = append(got, *c.Row())
		}
		if err := errors.Join(c.Err(), c.Close()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rows differ (-want +got):\n%s", format, diff)
		}
	}
}
