package ridge

import (
	"sync"
	"sync/atomic"
)

// each calls f(worker, i) for i in [0, n) on up to w goroutines. Tasks write to
// their own place only, so the order they run in cannot be seen.
func each(w, n int, f func(worker, i int)) {
	if w > n {
		w = n
	}
	if w <= 1 {
		for i := range n {
			f(0, i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range w {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(k, i)
			}
		}()
	}
	wg.Wait()
}
