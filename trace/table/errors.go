package table

// This file has the errors of damaged tables.

import (
	"errors"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	CodeNoTables trace.Code = "no_tables"
	CodeDamaged  trace.Code = "table_damaged"
)

// Faults of a column.
var (
	errMissing    = errors.New("not in the file")
	errRepeated   = errors.New("got several of that name, want one")
	errNull       = errors.New("got a null, want a value in every row")
	errNullInList = errors.New("got a null in a list, want values")
)

// columnError returns the error of a damaged table with the name of the column, and the hint to
// extract again.
func columnError(c *column, err error) error {
	return trace.Errorf(CodeDamaged, "column %s: %v", c.Name, err).WithHint(extractHint)
}

// damaged returns err as the error of a damaged table, with the hint to extract again.
func damaged(err error) error {
	return trace.Errorf(CodeDamaged, "the table is damaged: %.200v", err).WithHint(extractHint)
}

// extractHint is the command that writes the tables anew.
const extractHint = "blis-train extract RUNDIR... -o OUT --force"

// checkVersion returns an error if a file has another schema version than this program. It accepts
// a file without a version, because other programs do not copy it and the columns are compared one
// by one anyway.
func checkVersion(got string) error {
	if got == "" || got == SchemaVersion {
		return nil
	}
	return trace.Errorf(CodeDamaged, "table of another schema version: got %.20q, want %s", got,
		SchemaVersion).WithHint(extractHint)
}
