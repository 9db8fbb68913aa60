package par

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// This file says how much garbage a call may leave between collections. The package imports
// the standard library alone, so that it is there before the tables that other packages
// make when the program starts: a start is not collected.

// A stage on rows may leave this much garbage beside what lives, percent, and have
// this much memory before the collector works for less, bytes: a fit of 1.7 million
// steps keeps below it.
const (
	leanPercent = 40
	leanBytes   = 560 << 20
)

// How much garbage may lie between collections however little lives, bytes: most
// calls are small, their start most of them, and simulated clusters have
// caches of engines, 10 MB a run, that come and go with each of many runs.
const (
	leanGarbageBytes = 48 << 20
	wideGarbageBytes = 96 << 20
	taskGarbageBytes = 32 << 20
)

// taskPercent is how much garbage a task may leave beside what lives, percent: many of them
// share a machine, and one of a long recording stays below 300 MB.
const taskPercent = 20

var lean sync.Once // a driver collects between passes

// garbage is what leaveGarbage said last.
var garbage struct {
	sync.Mutex
	percent, bytes int64
}

// LeanHeap has the memory of a stage on rows collected more often than by default:
// the rows of a long recording are a few large arrays without pointers, which cost
// the collector nothing and would leave as much garbage again. GOGC and GOMEMLIMIT
// have the last word.
func LeanHeap() {
	leaveGarbage(leanPercent, leanGarbageBytes)
	if os.Getenv("GOMEMLIMIT") == "" {
		limit()
		lean.Do(func() { afterCollections(limit) })
	}
}

// WideHeap has the memory of an experiment collected less often than by default while
// little of it lives. GOGC has the last word.
func WideHeap() { leaveGarbage(100, wideGarbageBytes) }

// TaskHeap has the memory of a task collected more often still. GOGC has the last word.
func TaskHeap() { leaveGarbage(taskPercent, taskGarbageBytes) }

// A call that says nothing else has its memory collected less often than by default
// while little lives. GOGC has the last word.
func init() {
	leaveGarbage(100, leanGarbageBytes)
	afterCollections(setPercent)
}

// limit sets the soft limit to what lives and an eighth, at least leanBytes. A
// limit below what lives would have the collector run without end.
func limit() { debug.SetMemoryLimit(max(leanBytes, liveBytes()*9/8)) }

// leaveGarbage lets bytes of garbage lie, or for percent of what lives, after every
// collection; before the first one for half of that.
func leaveGarbage(percent, bytes int64) {
	garbage.Lock()
	garbage.percent, garbage.bytes = percent, bytes
	garbage.Unlock()
	setPercent()
}

func setPercent() {
	if os.Getenv("GOGC") != "" {
		return
	}
	garbage.Lock()
	defer garbage.Unlock()
	debug.SetGCPercent(int(max(garbage.percent, 100*garbage.bytes/max(8<<20, liveBytes()))))
}

// heapMark dies in every collection.
type heapMark struct{ _ [16]byte }

// afterCollections calls f after every collection.
func afterCollections(f func()) {
	runtime.SetFinalizer(&heapMark{}, func(*heapMark) {
		f()
		afterCollections(f)
	})
}

// liveBytes is what the last collection found alive, bytes.
func liveBytes() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}
