// Package heap says how much garbage a call may leave between collections. It imports
// the standard library alone, so that it is there before the tables that other packages
// make when the program starts: a start is not collected.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

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
	leanRoomBytes = 48 << 20
	wideRoomBytes = 96 << 20
	taskRoomBytes = 32 << 20
)

// taskPercent is how much garbage a task may leave beside what lives, percent: many of them
// share a machine, and one of a long recording stays below 300 MB.
const taskPercent = 20

var lean sync.Once // a driver collects between passes

// room is what leaveRoom said last.
var room struct {
	sync.Mutex
	percent, bytes int64
}

// Lean has the memory of a stage on rows collected more often than by default:
// the rows of a long recording are a few large arrays without pointers, which cost
// the collector nothing and would leave as much garbage again. GOGC and GOMEMLIMIT
// have the last word.
func Lean() {
	leaveRoom(leanPercent, leanRoomBytes)
	if os.Getenv("GOMEMLIMIT") == "" {
		limit()
		lean.Do(func() { afterCollections(limit) })
	}
}

// Wide has the memory of an experiment collected less often than by default while
// little of it lives. GOGC has the last word.
func Wide() { leaveRoom(100, wideRoomBytes) }

// Task has the memory of a task collected more often still. GOGC has the last word.
func Task() { leaveRoom(taskPercent, taskRoomBytes) }

// A call that says nothing else has its memory collected less often than by default
// while little lives. GOGC has the last word.
func init() {
	leaveRoom(100, leanRoomBytes)
	afterCollections(setRoom)
}

// limit sets the soft limit to what lives and an eighth, at least leanBytes. A
// limit below what lives would have the collector run without end.
func limit() { debug.SetMemoryLimit(max(leanBytes, liveBytes()*9/8)) }

// leaveRoom leaves room for bytes of garbage, or for percent of what lives, after every
// collection; before the first one for half of that.
func leaveRoom(percent, bytes int64) {
	room.Lock()
	room.percent, room.bytes = percent, bytes
	room.Unlock()
	setRoom()
}

func setRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	room.Lock()
	defer room.Unlock()
	debug.SetGCPercent(int(max(room.percent, 100*room.bytes/max(8<<20, liveBytes()))))
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
