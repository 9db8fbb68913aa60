package source

import (
	"context"
	"io"
	"sync"
)

// Stream reads the inputs in order on several workers and calls sink with the
// results in input order, whatever the number of workers. Workers take turns
// at the input: who has the turn reads the next range, which ends at a line
// end, into its own buffer, and parses it while the next one reads. So every
// byte is read once, and memory is one buffer per worker.
func Stream[R records](ctx context.Context, in []Input, o Options, fresh func() Decoder[R], sink func(*Parsed[R]) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &turns[R]{r: newReader(in, &o), order: make(chan chan *Parsed[R], o.Workers+1), long: make(chan struct{}, 1), progress: o.Progress}
	if t.progress == nil {
		t.progress = func(int64) {}
	}
	var group sync.WaitGroup
	for range o.Workers {
		group.Go(func() { t.work(ctx, fresh()) })
	}
	err := t.collect(ctx, cancel, !o.unnumbered, sink)
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

// Options is how inputs are read.
type Options struct {
	Workers  int
	Limits   Limits
	Stdin    io.Reader
	AnyText  bool              // what is no OTLP is lines of text, not a foreign file
	Progress func(bytes int64) // so many more of the files were read; nil for nobody

	unnumbered bool // lines count from the start of batches
}

// turns hands the reader from worker to worker.
type turns[R records] struct {
	mu    sync.Mutex // held by the worker whose turn it is
	r     *reader
	order chan chan *Parsed[R] // results to come, in input order
	long  chan struct{}        // holds one while a long batch is read, parsed or waits for its turn
	ended bool
	err   error

	progress func(bytes int64)
}

// bufPool keeps the buffers of workers from file to file, but for the very large.
var bufPool = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 32 << 20

// work takes turns until the input ends.
func (t *turns[R]) work(ctx context.Context, d Decoder[R]) {
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
		done <- parse(b, d)
		if b.isLong {
			*buf = nil
		}
	}
}

// take reads the next batch into buf; nil at the end.
func (t *turns[R]) take(ctx context.Context, buf *[]byte) (*batch, chan *Parsed[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil
	}
	var b *batch
	held := false
	t.r.long = func() {
		if held {
			return
		}
		select {
		case t.long <- struct{}{}:
			held = true
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		b, t.err = t.r.next(buf)
	}
	if b != nil {
		b.isLong = held
	}
	if b == nil {
		t.ended = true
		close(t.order)
		return nil, nil
	}
	done := make(chan *Parsed[R], 1)
	select {
	case t.order <- done:
	case <-ctx.Done(): // nobody collects any more
	}
	return b, done
}

// collect hands results to sink in input order, their lines numbered.
func (t *turns[R]) collect(ctx context.Context, cancel func(), isNumbered bool, sink func(*Parsed[R]) error) (err error) {
	numbers := make([]int64, len(t.r.in)) // lines or messages so far, by file
	last := int64(0)
	for done := range t.order {
		res := <-done
		if err == nil && ctx.Err() == nil {
			at := &numbers[res.Batch.File]
			if *at += res.Batch.skipped; isNumbered {
				res.Number(*at)
			}
			*at += res.numbers
			if res.Batch.read < last {
				last = 0 // another file
			}
			t.progress(res.Batch.read - last)
			last = res.Batch.read
			if err = res.err; err == nil {
				err = sink(res)
			}
			if err != nil {
				cancel()
			}
		}
		if res.Batch.isLong {
			<-t.long
		}
	}
	return err
}
