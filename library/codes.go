package library

import "github.com/blis-train/blis-train/trace"

// Codes of loading tables and of looking a deployment up in them.
const (
	noTables     trace.Code = "no_kernel_tables"
	badTable     trace.Code = "bad_kernel_table"
	noRows       trace.Code = "kernel_rows_missing"
	unknownRules trace.Code = "unknown_kernel_rules"
)
