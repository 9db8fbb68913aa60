// Package shard has any number of processes do what pipeline.Run does in one: MakePlan cuts
// the work into tasks, DoTask does one, Collect says what is left and writes the documents in the
// end. It calls the functions of the stages and owns all its files; no stage knows it.
//
//	plan.go     which runs and inputs there are
//	passes.go   what the tasks of each pass do
//	collect.go  from pass to pass, and the documents
//
// Work is files: tasks, done once or more often, in any order, and receipts that say what
// they wrote.
//
//	DIR/tasks/ID.json            one task: a pass and what its function reads
//	DIR/passes/PASS.json         the tasks of a pass, in order
//	DIR/data/ID-DIGEST/          what a task wrote
//	DIR/receipts/ID.DIGEST.json  that it did: names, sizes and SHA-256 of its files
//	DIR/manifests/PASS.json      one receipt for each task of a pass
//
// A task is a pure function of its text, and its id is a hash of that text. Files appear
// under names that hold a hash of what is in them, and by renaming: a process that is
// killed leaves garbage and no half file, one that repeats another's work writes the same
// name, and one that wrote other bytes leaves a second receipt, which is an alarm. State
// is in the files alone: who lists receipts knows what is left to do.
package shard

import (
	"github.com/blis-train/blis-train/trace"
)

// Codes this package emits.
const (
	codeReceiptsDiffer trace.Code = "receipts_differ"
	codeResultDamaged  trace.Code = "result_damaged"
	codeTaskFailed     trace.Code = "task_failed"
)
