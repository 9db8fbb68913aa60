package source

import (
	"context"
	"io"
)

// interruptible reads from r until the context ends, so that a pipe whose
// writer is silent does not hold up an interrupt.
type interruptible struct {
	ctx   context.Context
	r     io.Reader
	block []byte
	rest  []byte // of block, read and not yet taken
	err   error  // behind rest
}

func UntilDone(ctx context.Context, r io.Reader) io.Reader {
	if r == nil {
		return nil
	}
	return &interruptible{ctx: ctx, r: r, block: make([]byte, 1<<18)}
}

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

// fetch reads the next block. A read under way when the context ends is left
// alone with its block.
func (i *interruptible) fetch() {
	done := make(chan func(), 1)
	go func() {
		n, err := i.r.Read(i.block)
		done <- func() { i.rest, i.err = i.block[:n], err }
	}()
	select {
	case take := <-done:
		take()
	case <-i.ctx.Done():
		i.err = i.ctx.Err()
	}
}
