// Package shard lets any number of processes do what pipeline.Run does in one. MakePlan cuts the
// work into tasks, DoTask does one of them, and Collect reports the open tasks and, once there are
// none, writes the documents. The package calls the functions of the stages, which do not know it.
//
//	plan.go     runs and inputs of a plan
//	passes.go   work of the tasks of each pass
//	collect.go  from pass to pass, and the documents
//	job.go      the folder of tasks; do.go, receipt.go, state.go: one task, its receipt, a pass's progress
//
// The work is described by files alone:
//
//	DIR/tasks/ID.json            one task: its pass and the input of the pass's function
//	DIR/passes/PASS.json         the tasks of a pass, in order
//	DIR/data/ID-DIGEST/          the files that a task wrote
//	DIR/receipts/ID.DIGEST.json  receipt of a finished task: names, sizes and SHA-256 of its files
//	DIR/manifests/PASS.json      one receipt for each task of a finished pass
//
// A task is a pure function of its text, and its id is a hash of that text. Tasks of a pass may be
// done in any order, on any machine with the same build, and more than once. Files appear by
// renaming, under names that hold a hash of their content. A killed process therefore leaves garbage
// but no half-written file; a process that repeats a task writes files with the same names; and one
// that computes other bytes leaves a second receipt, which Collect reports as an error. All state is
// in the files: tasks without a receipt are still to be done.
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
