// Package table stores the row types of package trace on disk: a folder run=<id> for each engine run,
// with one file for each table, Parquet (zstd) or Arrow IPC.
//
// A [Writer] writes one table ([Create], [Write]), a [Cursor] reads one in bounded memory ([Open],
// [OpenFile]), [Read] reads all tables of a run into memory, and [EachSlice] a long run in slices of
// steps. [Tables] lists the tables.
//
// The schema is defined once: columns, types, units and meanings come from the struct tags of the row
// types (`col`, `unit`, `doc`). A field of type trace.Opt is a nullable column, a slice is a list
// column, and every other field is required. Units and meanings are written as Arrow field metadata,
// the schema version as file metadata; docs/tables.md is generated from the same tags.
//
// Rows are buffered up to one row group (RowGroupRows), encoded, and written. A file has a temporary
// name until Close renames it, so nothing half-written ever has a final name. Its bytes depend on the
// rows only.
//
// Before the first value a reader compares the file with the schema: names, types, nulls, the order of
// rows, and the version if the file has one. A table that DuckDB, pandas or polars has rewritten is read
// if its values are of the same types, and refused with the name of the column otherwise; for another
// version the error has the command that makes a new table. No file makes a reader panic, loop, or use
// more memory than the bytes of the file account for.
package table

//go:generate go test -run TestTablesDoc . -update
