package table

import (
	"errors"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	CodeNoTables trace.Code = "no_tables"
	CodeDamaged  trace.Code = "table_damaged"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeNoTables, Kind: "error", Meaning: "the folder holds no extracted run",
		Action: "run `blis-train extract RUNDIR... -o OUT` first and pass the same OUT"},
	{Code: CodeDamaged, Kind: "error", Meaning: "a table is not what its run needs: missing, cut, of another schema version, with a column " +
		"or rows that do not fit; as a warning: another program wrote it anew",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again, or write the column as docs/tables.md has it"},
}

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
