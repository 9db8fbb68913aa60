package shard

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeReceiptsDiffer trace.Code = "receipts_differ"
	codeResultDamaged  trace.Code = "result_damaged"
	codeTaskFailed     trace.Code = "task_failed"
)
