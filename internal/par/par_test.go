package par

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestEachVisitsEveryTaskOnce on any number of workers, each with a number of its own.
func TestEachVisitsEveryTaskOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 8, 200} {
		var visits [100]atomic.Int32
		busy := make([]atomic.Bool, Workers(workers))
		Each(workers, len(visits), func(worker, i int) {
			if !busy[worker].CompareAndSwap(false, true) {
				t.Errorf("%d workers: two tasks share worker %d", workers, worker)
			}
			visits[i].Add(1)
			busy[worker].Store(false)
		})
		for i := range visits {
			if n := visits[i].Load(); n != 1 {
				t.Fatalf("%d workers: task %d ran %d times", workers, i, n)
			}
		}
	}
	Each(4, 0, func(_, i int) { t.Errorf("task %d of none", i) })
}

// TestDo: every function runs, an error of one is returned, of several that of the first, and without functions nothing
// fails.
func TestDo(t *testing.T) {
	for _, workers := range []int{1, 4} {
		var ran [3]atomic.Bool
		task := func(i int, err error) func() error {
			return func() error {
				ran[i].Store(true)
				return err
			}
		}
		if err := Do(context.Background(), workers, task(0, nil), task(1, nil), task(2, nil)); err != nil {
			t.Errorf("%d workers: got %v", workers, err)
		}
		for i := range ran {
			if !ran[i].Load() {
				t.Errorf("%d workers: function %d did not run", workers, i)
			}
		}
		one, two := errors.New("one"), errors.New("two")
		if err := Do(context.Background(), workers, task(0, nil), task(1, one), task(2, two)); err != one {
			t.Errorf("%d workers: got %v, want one", workers, err)
		}
	}
	if err := Do(context.Background(), 4); err != nil {
		t.Errorf("no functions: got %v", err)
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := Do(stopped, 1, func() error { t.Error("a function ran"); return nil }); err != context.Canceled {
		t.Errorf("stopped: got %v", err)
	}
}

// TestTryReturnsTheErrorOfTheSmallestTask, whatever finishes first, and starts no
// further task after it.
func TestTryReturnsTheErrorOfTheSmallestTask(t *testing.T) {
	for range 50 {
		both := make(chan struct{})
		var last atomic.Int64
		err := Try(context.Background(), 4, 1000, func(i int) error {
			last.Store(max(last.Load(), int64(i)))
			switch i {
			case 1:
				<-both // fails after task 2 did
				return errors.New("one")
			case 2:
				defer close(both)
				return errors.New("two")
			}
			time.Sleep(time.Millisecond) // so that a loop which does not stop is seen to run on
			return nil
		}, nil)
		if err == nil || err.Error() != "one" {
			t.Fatalf("got %v, want one", err)
		}
		if n := last.Load(); n > 900 {
			t.Fatalf("task %d started after the error", n)
		}
	}
}

func TestTryStopsWithItsContext(t *testing.T) {
	for _, workers := range []int{1, 3} {
		ctx, cancel := context.WithCancel(context.Background())
		var ran, told atomic.Int64
		err := Try(ctx, workers, 1000, func(i int) error {
			if ran.Add(1) == 10 {
				cancel()
			}
			return nil
		}, func(int) { told.Add(1) })
		if !errors.Is(err, context.Canceled) || ran.Load() > 20 || told.Load() != ran.Load() {
			t.Errorf("%d workers: got %v after %d tasks, %d told", workers, err, ran.Load(), told.Load())
		}
	}
}

// TestTryPureReturnsAtOnce: a task that never ends holds up nobody once the context has; without that it is Try.
func TestTryPureReturnsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	if err := TryPure(ctx, 2, 3, func(i int) error { return fmt.Errorf("%d", i) }, nil); err == nil || err.Error() != "0" {
		t.Errorf("got %v, want the error of the smallest task", err)
	}
	if err := TryPure(ctx, 1, 1, func(int) error { cancel(); select {} }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

// TestTryPureRunsEachTaskOnce, as Try does.
func TestTryPureRunsEachTaskOnce(t *testing.T) {
	var calls [3]atomic.Int64
	var ended atomic.Int64
	err := TryPure(context.Background(), 2, 3, func(i int) error { calls[i].Add(1); return nil }, func(n int) { ended.Add(int64(n)) })
	if err != nil || ended.Load() != 1+2+3 {
		t.Errorf("got %v and %d for the sum of the numbers of ended tasks, want 6", err, ended.Load())
	}
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("task %d: got %d calls, want 1", i, n)
		}
	}
}

// TestPanicsReachTheCaller with the stack of the task, so that one recover at the
// edge of a program is enough.
func TestPanicsReachTheCaller(t *testing.T) {
	defer func() {
		p, ok := recover().(*Panic)
		if !ok || fmt.Sprint(p.Value) != "broken" || !strings.Contains(p.Error(), "brokenTask") {
			t.Errorf("got %v, want broken from brokenTask", p)
		}
	}()
	Each(3, 10, func(_, i int) { // nested: the first stack is the one that counts
		Each(2, 5, func(_, j int) { brokenTask(i * j) })
	})
}

func brokenTask(i int) {
	if i == 4 {
		panic("broken")
	}
}
