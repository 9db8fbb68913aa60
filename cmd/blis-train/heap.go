package main

import (
	"os"
	"runtime/debug"
)

// leanHeapPercent is how much garbage a stage on rows may leave beside what lives.
const leanHeapPercent = 40

// leanHeap has the memory of a stage on rows collected more often than by default:
// the rows of a long recording are a few large arrays without pointers, which cost
// the collector nothing and would leave as much garbage again. GOGC has the last word.
func leanHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(leanHeapPercent)
	}
}
