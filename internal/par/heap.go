package par

// This file sets how much garbage may be left between collections. The package imports only the
// standard library, so that its init runs before other packages build their tables: then no
// collection runs while the program starts.

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Settings of a stage on rows (LeanHeap).
const (
	leanPercent   = 40        // garbage in percent of the live memory
	leanBytes     = 380 << 20 // memory up to which the collector does not run more often; a fit of 1.3 million steps needs less
	leanHeapBytes = 160 << 20 // memory up to which the collector does not run: with little live memory garbage costs nothing
)

// Garbage in bytes that may be left however little memory is live. Most commands are short and spend
// most of their time starting. Simulated clusters have caches of 10 MB a run, which become garbage
// after each of many runs.
const (
	shortGarbageBytes = 48 << 20
	wideGarbageBytes  = 96 << 20
	taskGarbageBytes  = 32 << 20
)

// taskPercent is the garbage that a task of many processes may leave, in percent of the live
// memory: many tasks share a machine, and one of a long recording stays below 300 MB.
const taskPercent = 20

var lean sync.Once // LeanHeap may be called before each of several passes; its hook is set once

// leastLive is the live memory, in bytes, for which the percentage is computed where less is live. Before the first
// collection none is known.
const leastLive = 8 << 20

// garbage is how much may be left between collections: the most of what its fields allow.
var garbage struct {
	sync.Mutex
	percent int64 // of the live memory
	bytes   int64
	heap    int64 // bytes of live memory and garbage together
}

// LeanHeap makes the collector run more often than by default once much memory is live, for a stage on
// rows. The rows of a long recording are a few large arrays without pointers: collecting them costs
// little, and by default they would be accompanied by as much garbage. GOGC and GOMEMLIMIT take precedence.
func LeanHeap() {
	leaveGarbage(leanPercent, 0, leanHeapBytes)
	if os.Getenv("GOMEMLIMIT") == "" {
		limit()
		lean.Do(func() { afterCollections(limit) })
	}
}

// WideHeap makes the collector run less often than by default while little memory is live, for an
// experiment. GOGC takes precedence.
func WideHeap() { leaveGarbage(100, wideGarbageBytes, 0) }

// TaskHeap makes the collector run more often still than LeanHeap, for a task of many processes.
// GOGC takes precedence.
func TaskHeap() { leaveGarbage(taskPercent, taskGarbageBytes, 0) }

// init makes the collector run less often than by default while little memory is live, which is
// right for a short command. GOGC takes precedence.
func init() {
	leaveGarbage(100, shortGarbageBytes, 0)
	afterCollections(setPercent)
}

// limit sets the soft memory limit.
func limit() { debug.SetMemoryLimit(limitFor(liveBytes())) }

// limitFor returns the soft memory limit at an amount of live memory: 9/8 of it, at least leanBytes. With a limit
// below the live memory the collector would run without end.
func limitFor(live int64) int64 { return max(leanBytes, live*9/8) }

// leaveGarbage sets how much garbage may be left between collections. The arguments are the fields of
// garbage.
func leaveGarbage(percent, bytes, heap int64) {
	garbage.Lock()
	garbage.percent = percent
	garbage.bytes = bytes
	garbage.heap = heap
	garbage.Unlock()
	setPercent()
}

// setPercent sets GOGC to what garbage allows in percent of the live memory.
func setPercent() {
	if os.Getenv("GOGC") != "" {
		return
	}
	garbage.Lock()
	defer garbage.Unlock()
	live := max(leastLive, liveBytes())
	bytes := max(garbage.bytes, garbage.heap-live)
	debug.SetGCPercent(int(max(garbage.percent, 100*bytes/live)))
}

// heapMark is an object that nothing refers to, so that every collection finalizes it.
type heapMark struct{ _ [16]byte }

// afterCollections calls f after every collection.
func afterCollections(f func()) {
	runtime.SetFinalizer(&heapMark{}, func(*heapMark) {
		f()
		afterCollections(f)
	})
}

// liveBytes returns the bytes that the last collection found live.
func liveBytes() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}
