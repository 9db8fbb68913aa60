package library

import "github.com/blis-train/blis-train/trace"

// Codes of loading tables and of looking a deployment up in them.
const (
	NoTables       trace.Code = "no_kernel_tables"
	NoGPU          trace.Code = "kernel_gpu_missing"
	badTable       trace.Code = "bad_kernel_table"
	wrongOp        trace.Code = "kernel_table_of_another_op"
	wrongUnit      trace.Code = "kernel_table_unit"
	NoDType        trace.Code = "kernel_dtype_missing"
	NoHeadSize     trace.Code = "kernel_head_size_missing"
	NoHeads        trace.Code = "kernel_heads_missing"
	NoTP           trace.Code = "kernel_tp_missing"
	NoExperts      trace.Code = "kernel_experts_missing"
	NoDistribution trace.Code = "kernel_distribution_missing"
	unknownRules   trace.Code = "unknown_kernel_rules"
	noFamily       trace.Code = "no_library_family"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: NoTables, Kind: "error", Meaning: "the folder holds no kernel tables", Action: "name the folder that holds <gpu>.yaml and " +
		"data/<gpu>, as in the aiconfigurator-core package (aiconfigurator_core/systems)"},
	{Code: NoGPU, Kind: "error", Meaning: "the folder has tables, but not of the deployment's GPU",
		Action: "use a GPU the message names, or add its tables to the folder"},
	{Code: badTable, Kind: "error", Meaning: "a kernel table is truncated, damaged, empty or lacks a column",
		Action: "fetch the file again; a Git LFS pointer in place of the file reads as damaged too"},
	{Code: wrongOp, Kind: "error", Meaning: "a file holds measurements of another operation than its place in the folder says",
		Action: "put the right file in its place"},
	{Code: wrongUnit, Kind: "error", Meaning: "times of a kernel table cannot be milliseconds: they lie below what the GPU can do, or " +
		"hundreds of times above", Action: "convert the latency column to milliseconds"},
	{Code: NoDType, Kind: "error", Meaning: "a kernel table has no row of the deployment's dtype",
		Action: "use a dtype the message names; weights of 4 bits are in no table of linear layers"},
	{Code: NoHeadSize, Kind: "error", Meaning: "an attention table has no row of the model's head size",
		Action: "use a model whose head size the message names"},
	{Code: NoHeads, Kind: "error", Meaning: "an attention table has no rows of the model's heads per GPU, nor of heads they are equivalent to",
		Action: "use a tensor-parallel size that leaves a number of heads the message names"},
	{Code: NoTP, Kind: "error", Meaning: "a table of collectives has no row of the deployment's number of GPUs",
		Action: "use a tensor-parallel size the message names"},
	{Code: NoExperts, Kind: "error", Meaning: "the table of experts has no row of the model's expert shape",
		Action: "the nearest measured shape is named; nothing is interpolated between shapes of experts"},
	{Code: NoDistribution, Kind: "error", Meaning: "the table of experts has the shape, but not this distribution of tokens over experts",
		Action: "use one the message names"},
	{Code: unknownRules, Kind: "error", Meaning: "there are no rules of this name for putting kernels together",
		Action: "use engine or composed"},
	{Code: noFamily, Kind: "error", Meaning: "measured points or runs are of a GPU or weights whose kernel tables are not in the folder",
		Action: "add the tables of that GPU, or leave the measurements out"},
}
