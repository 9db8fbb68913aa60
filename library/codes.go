package library

import "github.com/blis-train/blis-train/trace"

// Codes of loading tables and of looking a deployment up in them.
const (
	noTables     trace.Code = "no_kernel_tables"
	badTable     trace.Code = "bad_kernel_table"
	noRows       trace.Code = "kernel_rows_missing"
	unknownRules trace.Code = "unknown_kernel_rules"
	noFamily     trace.Code = "no_library_family"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: noTables, Kind: "error", Meaning: "the folder holds no kernel tables, or none of the deployment's GPU",
		Action: "name the folder that holds <gpu>.yaml and data/<gpu>, as in the aiconfigurator-core package (aiconfigurator_core/systems), " +
			"or use a GPU the message names"},
	{Code: badTable, Kind: "error", Meaning: "a kernel table is truncated, damaged or empty, lacks a column, holds another operation " +
		"than its place in the folder says, or times that cannot be milliseconds",
		Action: "fetch the file again; a Git LFS pointer in place of the file reads as damaged too"},
	{Code: noRows, Kind: "error", Meaning: "a kernel table has no rows of the deployment's dtype, head size, heads, experts or number of " +
		"GPUs, nor rows they are equivalent to",
		Action: "use a value the message names; weights of 4 bits are in no table of linear layers, and nothing is interpolated between " +
			"shapes of experts"},
	{Code: unknownRules, Kind: "error", Meaning: "there are no rules of this name for putting kernels together",
		Action: "use engine or composed"},
	{Code: noFamily, Kind: "error", Meaning: "measured points or runs are of a GPU or weights whose kernel tables are not in the folder",
		Action: "add the tables of that GPU, or leave the measurements out"},
}
