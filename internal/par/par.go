// Package par has the parallel loops of this program. Each task writes to its own place, so that a
// result depends neither on the number of workers nor on the order in which tasks end. heap.go has
// the settings of the garbage collector.
package par

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Workers returns n, or the number of processors Go may use when n is not positive.
func Workers(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// Each calls task(worker, i) for every i in [0, n), started in order, on up to Workers(workers)
// goroutines. worker is the number of the goroutine, from 0, by which a task can find scratch space
// that no other running task uses. A panic of a task is raised again in the caller, with the stack
// of the task.
func Each(workers, n int, task func(worker, i int)) {
	_ = each(workers, n, func(worker, i int) error { task(worker, i); return nil })
}

// Try is Each for tasks that may fail. After an error, or when ctx ends, no further task starts. It
// returns the error of the smallest i, whichever task failed first. done, unless nil, is called
// with the number of tasks that have ended.
func Try(ctx context.Context, workers, n int, task func(i int) error, done func(n int)) error {
	var ended atomic.Int64
	err := each(workers, n, func(_, i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := task(i)
		if count := int(ended.Add(1)); done != nil {
			done(count)
		}
		return err
	})
	if stopped := ctx.Err(); stopped != nil {
		return stopped
	}
	return err
}

// Do calls each of some functions, as [Try] calls its tasks.
func Do(ctx context.Context, workers int, tasks ...func() error) error {
	return Try(ctx, workers, len(tasks), func(i int) error { return tasks[i]() }, nil)
}

// each is Each for tasks that may fail: it returns the error of the smallest i that has one. Tasks start in order, so
// every task before it has ended too. After an error no further task starts.
func each(workers, n int, task func(worker, i int) error) error {
	workers = min(Workers(workers), n)
	if workers <= 1 {
		for i := range n {
			if err := task(0, i); err != nil {
				return err
			}
		}
		return nil
	}
	l := loop{n: n, task: task, failedAt: n}
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() { l.work(k) })
	}
	wg.Wait()
	return l.result()
}

// TryPure is [Try] for tasks without side effects: when ctx ends it returns at once, and the
// running tasks end in the background.
func TryPure(ctx context.Context, workers, n int, task func(i int) error, done func(n int)) error {
	// A loop of one task, the whole of Try, keeps its error or panic until it is asked for.
	l := &loop{n: 1, task: func(_, _ int) error { return Try(ctx, workers, n, task, done) }, failedAt: 1}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		l.work(0)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return l.result()
	}
}

// result returns the error of the loop, or raises the panic of a task.
func (l *loop) result() error {
	if l.panicked != nil {
		panic(l.panicked)
	}
	return l.err
}

// loop is one parallel loop in progress.
type loop struct {
	n    int                       // number of tasks
	task func(worker, i int) error // runs task i
	next atomic.Int64              // the task that starts next; n or more: none

	mu       sync.Mutex // guards the fields below
	failedAt int        // smallest i with an error; n: none
	err      error      // of that task
	panicked *Panic     // of the task that panicked first; nil: none
}

// work runs tasks until none is left or one has failed.
func (l *loop) work(worker int) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		p, nested := v.(*Panic)
		if !nested {
			p = &Panic{v, debug.Stack()}
		}
		l.stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.panicked == nil {
			l.panicked = p
		}
	}()
	for {
		i := int(l.next.Add(1)) - 1
		if i >= l.n {
			return
		}
		if err := l.task(worker, i); err != nil {
			l.stop()
			l.mu.Lock()
			if i < l.failedAt {
				l.failedAt, l.err = i, err
			}
			l.mu.Unlock()
		}
	}
}

// stop prevents further tasks from starting.
func (l *loop) stop() { l.next.Store(int64(l.n)) }

// Panic is the value that a task panicked with, and its stack.
type Panic struct {
	Value any
	Stack []byte
}

// Error returns the value and the stack.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }
