package shard

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeReceiptDamaged trace.Code = "receipt_damaged"
	codeReceiptsDiffer trace.Code = "receipts_differ"
	codeResultDamaged  trace.Code = "result_damaged"
	codeTaskUnknown    trace.Code = "task_unknown"
	codeTaskFailed     trace.Code = "task_failed"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeReceiptDamaged, Kind: "warning",
		Meaning: "a receipt, or a file it names, is not as its task wrote it; it counts for nothing and the task is open again",
		Action:  "do the task again; blis-train gc lists what is left over"},
	{Code: codeResultDamaged, Kind: "error",
		Meaning: "a file that another task wrote has other bytes now; the receipt of that task is gone, so that it is open again",
		Action:  "blis-train collect DIR prints its id: do it again"},
	{Code: codeReceiptsDiffer, Kind: "error",
		Meaning: "one task was done twice with different bytes: another build or machine, changed inputs, or a defect of ours",
		Action:  "compare the two folders that the message names; remove the wrong receipt and its folder"},
	{Code: codeTaskUnknown, Kind: "error", Meaning: "no task of the folder has that id",
		Action: "blis-train collect DIR prints the open ones"},
	{Code: codeTaskFailed, Kind: "error", Meaning: "a task failed more often than it may",
		Action: "the message names the task and its last failure; once the cause is gone, delete the receipts that the message names"},
}
