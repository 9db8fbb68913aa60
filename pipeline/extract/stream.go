package extract

import (
	"context"
	"io"
	"sync"
)

// stream reads the inputs in order on several workers and calls sink with the
// results in input order, whatever the number of workers. Workers take turns
// at the input: who has the turn reads the next range, which ends at a line
// end, into its own buffer, and parses it while the next one reads. So every
// byte is read once, and memory is one buffer per worker.
func stream(ctx context.Context, in []input, p parser, workers int, limits Limits, stdin io.Reader, sink func(*parsed) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &turns{r: newReader(in, limits, stdin), order: make(chan chan *parsed, workers+1)}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { t.work(ctx, p) })
	}
	err := t.collect(ctx, cancel, sink)
	group.Wait()
	t.r.close()
	switch {
	case err != nil:
		return err
	case t.err != nil:
		return t.err
	}
	return ctx.Err()
}

// turns hands the reader from worker to worker.
type turns struct {
	mu    sync.Mutex // held by the worker whose turn it is
	r     *reader
	order chan chan *parsed // results to come, in input order
	ended bool
	err   error
}

// bufPool keeps the buffers of workers from file to file, but for the very large.
var bufPool = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 32 << 20

// work takes turns until the input ends.
func (t *turns) work(ctx context.Context, p parser) {
	bld := newBuilder()
	buf := bufPool.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxPooled {
			bufPool.Put(buf)
		}
	}()
	for {
		b, done := t.take(ctx, buf)
		if b == nil {
			return
		}
		b.hash()
		done <- parse(b, p, bld)
	}
}

// take reads the next batch into buf; nil at the end.
func (t *turns) take(ctx context.Context, buf *[]byte) (*batch, chan *parsed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil
	}
	var b *batch
	if ctx.Err() == nil {
		b, t.err = t.r.next(buf)
	}
	if b == nil {
		t.ended = true
		close(t.order)
		return nil, nil
	}
	done := make(chan *parsed, 1)
	select {
	case t.order <- done:
	case <-ctx.Done(): // nobody collects any more
	}
	return b, done
}

// collect hands results to sink in input order, their lines numbered.
func (t *turns) collect(ctx context.Context, cancel func(), sink func(*parsed) error) (err error) {
	numbers := make([]int64, len(t.r.in)) // lines or messages so far, by file
	for done := range t.order {
		res := <-done
		if err != nil || ctx.Err() != nil {
			continue
		}
		at := &numbers[res.batch.file]
		*at += res.batch.skipped
		res.number(*at)
		*at += res.numbers
		if err = sink(res); err != nil {
			cancel()
		}
	}
	return err
}
