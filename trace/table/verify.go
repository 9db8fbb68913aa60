package table

import (
	"errors"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	codeSchemaVersion trace.Code = "table_schema_version"
	CodeNoTables      trace.Code = "no_tables"
	codeDamaged       trace.Code = "table_damaged"
	CodeColumn        trace.Code = "table_column"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: codeSchemaVersion, Kind: "error", Meaning: "the tables were written by another version of the schema",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeNoTables, Kind: "error", Meaning: "the folder holds no extracted run",
		Action: "run `blis-train extract RUNDIR... -o OUT` first and pass the same OUT"},
	{Code: codeDamaged, Kind: "error", Meaning: "a table file is broken: cut, overwritten, or no Parquet or Arrow file",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeColumn, Kind: "error", Meaning: "a column of a table is missing, of another type, holds nulls where it may not, or its " +
		"rows are out of order",
		Action: "write the column as docs/tables.md has it, or run `blis-train extract RUNDIR... -o OUT --force` again"},
}

// What may be wrong with a column.
var (
	errMissing    = errors.New("not in the file")
	errRepeated   = errors.New("got several of that name, want one")
	errNull       = errors.New("got a null, want a value in every row")
	errNullInList = errors.New("got a null in a list, want values")
)

func columnError(c *column, err error) error {
	return trace.Errorf(CodeColumn, "column %s: %v", c.Name, err).WithHint(extractHint)
}

func damaged(err error) error {
	return trace.Errorf(codeDamaged, "the table is damaged: %.200v", err).WithHint(extractHint)
}

const extractHint = "blis-train extract RUNDIR... -o OUT --force"

// checkVersion takes a file without a version: other programs leave it out, and
// the columns are compared one by one.
func checkVersion(got string) error {
	if got == "" || got == SchemaVersion {
		return nil
	}
	return trace.Errorf(codeSchemaVersion, "table of another schema version: got %.20q, want %s", got, SchemaVersion).WithHint(extractHint)
}
