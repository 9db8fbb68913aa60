package source

import (
	"context"
	"io"
	"sync"
)

// This file runs the workers.

// Stream reads the inputs on several workers and calls sink with the results in input order. Workers
// take turns at reading: the worker whose turn it is reads the next batch into its own buffer, and
// parses it while the next worker reads. So every byte is read once, and each worker needs memory for
// one batch.
func Stream[R records](ctx context.Context, in []Input, o Options, fresh func() Decoder[R],
	sink func(*Parsed[R]) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &turns[R]{
		r:        newReader(in, &o),
		order:    make(chan chan *Parsed[R], o.Workers+1),
		long:     make(chan struct{}, 1),
		progress: o.Progress,
	}
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

// Options are the settings of Stream.
type Options struct {
	Workers  int
	Limits   Limits
	Stdin    io.Reader
	AnyText  bool              // read text that is not OTLP as lines instead of refusing it
	Progress func(bytes int64) // called with the number of bytes read since the last call; may be nil

	unnumbered bool // lines count from the start of their batch: Store knows only a part of the file
}

// turns passes the reader from worker to worker.
type turns[R records] struct {
	mu    sync.Mutex // locked by the worker whose turn it is
	r     *reader
	order chan chan *Parsed[R] // results to come, in input order
	long  chan struct{}        // full while a long batch (longBytes) is read, parsed, or waits for the sink
	ended bool                 // no further batch will be read
	err   error                // the error that ended reading

	progress func(bytes int64)
}

// bufPool reuses the buffers of workers for the next file, except for very large ones.
var bufPool = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 32 << 20

// work reads and parses batches in turn with other workers until the input ends.
func (t *turns[R]) work(ctx context.Context, d Decoder[R]) {
	buf := bufPool.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxPooled {
			bufPool.Put(buf)
		}
	}()
	for {
		b, done := t.readBatch(ctx, buf)
		if b == nil {
			return
		}
		b.link.finish()
		done <- parse(b, d)
		if b.isLong {
			*buf = nil
		}
	}
}

// readBatch waits for its turn and reads the next batch into buf. It returns the batch, nil at the
// end, and the channel for its result.
func (t *turns[R]) readBatch(ctx context.Context, buf *[]byte) (*batch, chan *Parsed[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil
	}
	var b *batch
	hasLongPlace := false // this worker has filled t.long
	t.r.awaitLong = func() {
		if hasLongPlace {
			return
		}
		select {
		case t.long <- struct{}{}:
			hasLongPlace = true
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		b, t.err = t.r.next(buf)
	}
	if b != nil {
		b.isLong = hasLongPlace
	}
	if b == nil {
		t.ended = true
		close(t.order)
		return nil, nil
	}
	// The place of the result in the order is taken before the next worker may read.
	done := make(chan *Parsed[R], 1)
	select {
	case t.order <- done:
	case <-ctx.Done(): // collect has stopped
	}
	return b, done
}

// collect passes the results to sink in input order, with line numbers counted in their files if
// isNumbered. After an error it calls cancel and reads on without sink, so that no worker waits for ever.
func (t *turns[R]) collect(ctx context.Context, cancel func(), isNumbered bool,
	sink func(*Parsed[R]) error) (err error) {
	numbers := make([]int64, len(t.r.in)) // number of lines or messages so far of each file
	last := int64(0)                      // bytes of the current file that were reported as progress
	for done := range t.order {
		result := <-done
		if err == nil && ctx.Err() == nil {
			before := &numbers[result.Batch.File]
			*before += result.Batch.skipped
			if isNumbered {
				result.Number(*before)
			}
			*before += result.numbers
			if result.Batch.read < last {
				last = 0 // another file
			}
			t.progress(result.Batch.read - last)
			last = result.Batch.read
			if err = result.err; err == nil {
				err = sink(result)
			}
			if err != nil {
				cancel()
			}
		}
		if result.Batch.isLong {
			<-t.long
		}
	}
	return err
}
