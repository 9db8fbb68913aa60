package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A stage on rows may leave this much garbage beside what lives, percent, and have
// this much memory before the collector works for less, bytes: a fit of 1.7 million
// steps keeps below it.
const (
	leanHeapPercent = 40
	leanHeapBytes   = 560 << 20
)

// leanHeap has the memory of a stage on rows collected more often than by default:
// the rows of a long recording are a few large arrays without pointers, which cost
// the collector nothing and would leave as much garbage again. GOGC and GOMEMLIMIT
// have the last word.
func leanHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(leanHeapPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limitHeap(&heapMark{})
	}
}

// heapMark dies in every collection.
type heapMark struct{ _ [16]byte }

// limitHeap sets the soft limit after every collection: what lives and an eighth, at
// least leanHeapBytes. A limit below what lives would have the collector run without
// end.
func limitHeap(*heapMark) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(max(leanHeapBytes, int64(live[0].Value.Uint64())*9/8))
	runtime.SetFinalizer(&heapMark{}, limitHeap)
}
