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

// How much garbage may lie between collections however little lives, bytes: most fits
// are small, and simulated clusters have caches of engines, 10 MB a run, that come and
// go with each of many runs.
const (
	leanRoomBytes = 48 << 20
	wideRoomBytes = 96 << 20
	taskRoomBytes = 32 << 20
)

// taskHeapPercent is how much garbage a task may leave beside what lives, percent: many of them
// share a machine, and one of a long recording stays below 300 MB.
const taskHeapPercent = 20

// leanHeap has the memory of a stage on rows collected more often than by default:
// the rows of a long recording are a few large arrays without pointers, which cost
// the collector nothing and would leave as much garbage again. GOGC and GOMEMLIMIT
// have the last word.
func leanHeap() {
	leaveRoom(leanHeapPercent, leanRoomBytes)
	if os.Getenv("GOMEMLIMIT") == "" {
		limitHeap(nil)
	}
}

// wideHeap has the memory of an experiment collected less often than by default while
// little of it lives. GOGC has the last word.
func wideHeap() { leaveRoom(100, wideRoomBytes) }

// taskHeap has the memory of a task collected more often still. GOGC has the last word.
func taskHeap() { leaveRoom(taskHeapPercent, taskRoomBytes) }

// heapMark dies in every collection.
type heapMark struct{ _ [16]byte }

// limitHeap sets the soft limit after every collection: what lives and an eighth, at
// least leanHeapBytes. A limit below what lives would have the collector run without
// end.
func limitHeap(*heapMark) {
	debug.SetMemoryLimit(max(leanHeapBytes, liveHeap()*9/8))
	runtime.SetFinalizer(&heapMark{}, limitHeap)
}

// leaveRoom leaves room for bytes of garbage, or for percent of what lives, after every
// collection; before the first one for half of that.
func leaveRoom(percent, bytes int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	var widen func(*heapMark)
	widen = func(*heapMark) {
		debug.SetGCPercent(int(max(percent, 100*bytes/max(8<<20, liveHeap()))))
		runtime.SetFinalizer(&heapMark{}, widen)
	}
	widen(nil)
}

// liveHeap is what the last collection found alive, bytes.
func liveHeap() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}
