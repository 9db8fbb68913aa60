// Package table keeps the nouns of package trace on disk: one folder run=<id>
// per engine run, one file per table, Parquet (zstd) or Arrow IPC.
//
// The schema is not written twice: columns, types, units and meanings are read
// from the struct tags of the row types (`col`, `unit`, `doc`). A field of type
// trace.Opt is a nullable column, a slice is a list column, everything else is
// required. Units and meanings travel as Arrow field metadata, the schema
// version as file metadata; docs/tables.md is generated from the same tags.
//
// Writing is streaming: rows are buffered up to one row group (RowGroupRows),
// encoded, and forgotten. A file is written under a temporary name and renamed
// by Close, so that nothing half-written ever has a final name. The bytes
// depend on the rows alone.
//
// Reading compares the file with the schema before the first value: names,
// types, nulls, the order of rows, and the version where the file has one. What
// DuckDB, pandas or polars wrote anew is read when its values are the same, and
// refused with the column's name when they are not; other versions name the
// command that makes a new table. No file makes a reader panic, loop, or take
// memory that its bytes do not account for. A Cursor reads in bounded memory,
// Read a whole run.
package table

//go:generate go test -run TestTablesDoc . -update
