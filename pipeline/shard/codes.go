package shard

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeReceiptsDiffer trace.Code = "receipts_differ"
	codeResultDamaged  trace.Code = "result_damaged"
	codeTaskFailed     trace.Code = "task_failed"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeResultDamaged, Kind: "error",
		Meaning: "a receipt, or a file it names, is not as its task wrote it; it counts for nothing and the task is open again",
		Action:  "blis-train collect DIR prints its id: do it again; blis-train collect DIR --gc lists what is left over"},
	{Code: codeReceiptsDiffer, Kind: "error",
		Meaning: "one task was done twice with different bytes: another build or machine, changed inputs, or a defect of ours",
		Action:  "compare the two folders that the message names; remove the wrong receipt and its folder"},
	{Code: codeTaskFailed, Kind: "error", Meaning: "a task cannot be done: no task has that id, or it failed more often than it may",
		Action: "blis-train collect DIR prints the open ones; once the cause of a failure is gone, delete the receipts that the message names"},
}
