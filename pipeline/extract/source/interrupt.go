package source

// This file lets an interrupt end a read from a pipe whose writer is silent.

import (
	"context"
	"io"
)

// interruptible is a reader that returns an error when a context ends.
type interruptible struct {
	ctx   context.Context
	r     io.Reader
	block []byte // what was read from r last; nil before the first read, because most extractions read no pipe
	rest  []byte // part of block that Read has not returned yet
	err   error  // Read returns it after rest
}

// UntilDone reads from r until the context ends. So a pipe whose writer is silent does not delay an
// interrupt. It returns nil for a nil reader.
func UntilDone(ctx context.Context, r io.Reader) io.Reader {
	if r == nil {
		return nil
	}
	return &interruptible{ctx: ctx, r: r}
}

// Read returns the bytes that a background goroutine has read, or the context's error when it ends.
func (i *interruptible) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		if i.err == nil {
			i.err = i.ctx.Err()
		}
		if i.err != nil {
			return 0, i.err
		}
		i.fetch()
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// fetch reads the next block. If the context ends first, the goroutine that reads is abandoned with
// its block, which is not used again.
func (i *interruptible) fetch() {
	type result struct {
		n   int
		err error
	}
	if i.block == nil {
		i.block = make([]byte, 1<<18)
	}
	done := make(chan result, 1)
	go func() {
		n, err := i.r.Read(i.block)
		done <- result{n, err}
	}()
	select {
	case read := <-done:
		i.rest = i.block[:read.n]
		i.err = read.err
	case <-i.ctx.Done():
		i.err = i.ctx.Err()
	}
}
