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
// Reading refuses a file of another schema version and names the command that
// makes a new one. Rows come back exactly as they were written, in order.
package table

//go:generate go test -run TestTablesDoc . -update
