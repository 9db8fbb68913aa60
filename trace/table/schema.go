package table

// This file derives the columns of a table from the fields of its row type.

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/blis-train/blis-train/trace"
)

// SchemaVersion is stored in every file. A reader returns an error for other versions.
const SchemaVersion = "1"

// Metadata keys of a table file.
const (
	metaVersion = "blis_train.schema_version"
	metaTable   = "blis_train.table"
	metaArrow   = "ARROW:schema"
)

// kind is the element type of a column.
type kind uint8

const (
	kindInt64 kind = iota
	kindFloat64
	kindBool
	kindString
)

// String returns the name of the Arrow type.
func (k kind) String() string {
	return [...]string{"int64", "float64", "bool", "string"}[k]
}

// column is one column of a table, with the offset of its field in the row struct.
type column struct {
	Name     string
	Type     string // int64, float64, bool, string, list<float64>, list<string>
	Unit     string // empty for none
	Doc      string
	Nullable bool
	mayMiss  bool // a Parquet file may lack the column; its values are null then
	kind     kind
	list     bool
	offset   uintptr // of the field, or of Opt.V
	known    uintptr // of Opt.OK, when Nullable
	// inFourBytes: the field is an int32, the column on disk an int64.
	inFourBytes bool
}

// Tables lists the tables of a run folder in the order of the documentation.
var Tables = []struct {
	Name  string
	Doc   string                           // what a row is, and the order of rows
	row   reflect.Type                     // the struct of a row
	count func(path string) (int64, error) // returns the number of rows of a file
}{
	{Name: Requests, Doc: "one row per core span, per API span without a core span, and per stock span",
		row: reflect.TypeFor[trace.Request](), count: countFile[trace.Request]},
	{Name: JourneyEvents, Doc: "journey.* events of core spans in emission order",
		row: reflect.TypeFor[trace.JourneyEvent](), count: countFile[trace.JourneyEvent]},
	{Name: Steps, Doc: "step.BATCH_SUMMARY events by step id",
		row: reflect.TypeFor[trace.Step](), count: countFile[trace.Step]},
	{Name: Snapshots, Doc: "step.REQUEST_SNAPSHOT events by step id, then file order",
		row: reflect.TypeFor[trace.Snapshot](), count: countFile[trace.Snapshot]},
	{Name: KVEvents, Doc: "KV cache events in file order, copies of TP workers merged",
		row: reflect.TypeFor[trace.KVEvent](), count: countFile[trace.KVEvent]},
	{Name: ObservedRequests, Doc: "requests as their clients saw them",
		row: reflect.TypeFor[trace.ObservedRequest](), count: countFile[trace.ObservedRequest]},
	{Name: Iterations, Doc: "passes as unmodified vLLM logs them (--enable-logging-iteration-details) or Dynamo's " +
		"forward-pass trace has them, in the engine's order",
		row: reflect.TypeFor[trace.Iteration](), count: countFile[trace.Iteration]},
	{Name: Points, Doc: "load levels as benchmarks print them, by file and line",
		row: reflect.TypeFor[trace.LoadPoint](), count: countFile[trace.LoadPoint]},
}

// Names of the tables of a run folder.
const (
	Requests         = "requests"
	JourneyEvents    = "journey_events"
	Steps            = "steps"
	Snapshots        = "snapshots"
	KVEvents         = "kv_events"
	ObservedRequests = "observed_requests"
	Iterations       = "iterations"
	Points           = "points"
)

// IsFile reports whether a file of the name would be read as a table.
func IsFile(name string) bool {
	for _, t := range Tables {
		if name == t.Name+"."+string(Parquet) || name == t.Name+"."+string(Arrow) {
			return true
		}
	}
	return false
}

// columnCache has the result of columnsOf by the type of the row (reflect.Type -> []column).
var columnCache sync.Map

// columnsOf returns the columns of a row struct, derived from its tags. A field without a `col` tag
// is not stored, a column with the tag `place` is the last one wherever its field is, and a Parquet file may lack a
// column with the tag `missing`. It panics at an unsupported field type, because that is a bug of this program.
func columnsOf(t reflect.Type) []column {
	if c, ok := columnCache.Load(t); ok {
		return c.([]column)
	}
	var cols, last []column
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous { // its columns are columns of the row
			for _, c := range columnsOf(f.Type) {
				c.offset += f.Offset
				c.known += f.Offset
				cols = append(cols, c)
			}
		}
		name, ok := f.Tag.Lookup("col")
		if !ok {
			continue
		}
		c := column{Name: name, Unit: f.Tag.Get("unit"), Doc: f.Tag.Get("doc"), offset: f.Offset,
			mayMiss: f.Tag.Get("missing") != ""}
		c.resolve(f.Type)
		if f.Tag.Get("place") == "last" {
			last = append(last, c)
			continue
		}
		cols = append(cols, c)
	}
	cols = append(cols, last...)
	columnCache.Store(t, cols)
	return cols
}

// resolve sets the kind of the column, whether it is a list and whether it is nullable, from the Go
// type of the field.
func (c *column) resolve(t reflect.Type) {
	elem := t
	switch {
	case t.Kind() == reflect.Slice:
		c.list = true
		elem = t.Elem()
	case t.Kind() == reflect.Struct && t.NumField() == 2 && t.Field(1).Name == "OK":
		c.Nullable = true
		elem = t.Field(0).Type
		c.known = c.offset + t.Field(1).Offset
	}
	switch elem.Kind() {
	case reflect.Int64:
		c.kind = kindInt64
	case reflect.Int32: // smaller in memory alone
		c.kind = kindInt64
		c.inFourBytes = true
	case reflect.Float64:
		c.kind = kindFloat64
	case reflect.Bool:
		c.kind = kindBool
	case reflect.String:
		c.kind = kindString
	default:
		panic(fmt.Sprintf("table: column %s has unsupported type %s", c.Name, t))
	}
	if c.inFourBytes && (c.list || c.Nullable) {
		panic(fmt.Sprintf("table: column %s has unsupported type %s", c.Name, t))
	}
	if c.list && c.kind != kindString && c.kind != kindFloat64 {
		panic(fmt.Sprintf("table: column %s: lists hold strings or floats, not %s", c.Name, t))
	}
	c.Type = c.kind.String()
	if c.list {
		c.Type = "list<" + c.Type + ">"
	}
}

// arrowType returns the Arrow type of the column.
func (c *column) arrowType() arrow.DataType {
	elem := [...]arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Boolean,
		arrow.BinaryTypes.String}[c.kind]
	if c.list {
		return arrow.ListOfField(arrow.Field{Name: "element", Type: elem})
	}
	return elem
}

// arrowSchema returns the Arrow schema of the table name, with units and meanings as metadata of
// the fields.
func arrowSchema(name string, cols []column) *arrow.Schema {
	fields := make([]arrow.Field, len(cols))
	for i, c := range cols {
		keys, vals := []string{"doc"}, []string{c.Doc}
		if c.Unit != "" {
			keys = append(keys, "unit")
			vals = append(vals, c.Unit)
		}
		fields[i] = arrow.Field{Name: c.Name, Type: c.arrowType(), Nullable: c.Nullable,
			Metadata: arrow.NewMetadata(keys, vals)}
	}
	return arrow.NewSchema(fields,
		new(arrow.NewMetadata([]string{metaTable, metaVersion}, []string{name, SchemaVersion})))
}

// parquetSchema returns the Parquet schema of a table with the columns cols.
func parquetSchema(cols []column) *schema.GroupNode {
	fields := make(schema.FieldList, len(cols))
	for i, c := range cols {
		if !c.list {
			fields[i] = primitive(c.Name, repetition(c.Nullable), c.kind)
			continue
		}
		elem := primitive("element", parquet.Repetitions.Required, c.kind)
		list := schema.MustGroup(schema.NewGroupNode("list", parquet.Repetitions.Repeated, schema.FieldList{elem}, -1))
		fields[i] = schema.MustGroup(schema.NewGroupNodeLogical(c.Name, parquet.Repetitions.Required,
			schema.FieldList{list},
			schema.NewListLogicalType(), -1))
	}
	return schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1))
}

// repetition returns Parquet's repetition type of a column: optional if it is nullable, else
// required.
func repetition(nullable bool) parquet.Repetition {
	if nullable {
		return parquet.Repetitions.Optional
	}
	return parquet.Repetitions.Required
}

// primitive returns the Parquet schema of a column of single values of kind k.
func primitive(name string, rep parquet.Repetition, k kind) schema.Node {
	switch k {
	case kindInt64:
		return schema.NewInt64Node(name, rep, -1)
	case kindFloat64:
		return schema.NewFloat64Node(name, rep, -1)
	case kindBool:
		return schema.NewBooleanNode(name, rep, -1)
	}
	return schema.MustPrimitive(schema.NewPrimitiveNodeLogical(name, rep, schema.StringLogicalType{},
		parquet.Types.ByteArray, 0, -1))
}
