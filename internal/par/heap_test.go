package par

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestHeapSettings: with the few megabytes of this test live, taken as 8 MB, a stage may leave 152 MB (1900 %), an
// experiment 96 MB (1200 %) and a task 32 MB (400 %) of garbage. LeanHeap alone sets a limit of memory, 380 MiB. GOGC and
// GOMEMLIMIT of the caller take precedence.
func TestHeapSettings(t *testing.T) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("skipped: GOGC or GOMEMLIMIT is set")
	}
	percent := debug.SetGCPercent(100)
	limit := debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		leaveGarbage(100, 48<<20, 0)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	runtime.GC()
	if live := liveBytes(); live <= 0 || live > 8<<20 {
		t.Skipf("skipped: %d bytes are live, want a small test", live)
	}
	for _, c := range []struct {
		name string
		set  func()
		want int
	}{{"WideHeap", WideHeap, 1200}, {"TaskHeap", TaskHeap, 400}, {"LeanHeap", LeanHeap, 1900}} {
		debug.SetMemoryLimit(1 << 40)
		c.set()
		if got := debug.SetGCPercent(50); got != c.want {
			t.Errorf("%s: got %d %%, want %d %%", c.name, got, c.want)
		}
		wantLimit := int64(1 << 40)
		if c.name == "LeanHeap" {
			wantLimit = 398_458_880
		}
		if got := debug.SetMemoryLimit(-1); got != wantLimit {
			t.Errorf("%s: got a limit of %d bytes, want %d", c.name, got, wantLimit)
		}
	}
	for _, c := range []struct{ percent, bytes, heap, want int64 }{{40, 8 << 20, 0, 100}, {300, 8 << 20, 0, 300}, {40, 16 << 20, 0, 200},
		{40, 0, 24 << 20, 200}, {40, 0, 9 << 20, 40}, {40, 16 << 20, 20 << 20, 200}} {
		leaveGarbage(c.percent, c.bytes, c.heap)
		if got := debug.SetGCPercent(50); int64(got) != c.want {
			t.Errorf("%d %% or %d bytes, or %d together: got %d %%, want %d %%", c.percent, c.bytes, c.heap, got, c.want)
		}
	}
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(1 << 40)
	LeanHeap()
	if got := debug.SetGCPercent(50); got != 50 {
		t.Errorf("with GOGC: got %d %%", got)
	}
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("with GOMEMLIMIT: got a limit of %d bytes", got)
	}
}

// TestMemoryLimit: 380 MiB, and 9/8 of the live memory where that is more.
func TestMemoryLimit(t *testing.T) {
	for live, want := range map[int64]int64{0: 398_458_880, 354_185_671: 398_458_880, 354_185_680: 398_458_890, 8e9: 9e9} {
		if got := limitFor(live); got != want {
			t.Errorf("%d bytes are live: got a limit of %d, want %d", live, got, want)
		}
	}
}

// TestAfterCollections: the function is called after each collection, not once.
func TestAfterCollections(t *testing.T) {
	calls := make(chan bool, 100)
	afterCollections(func() { calls <- true })
	for range 3 {
		runtime.GC()
		<-calls
	}
}
