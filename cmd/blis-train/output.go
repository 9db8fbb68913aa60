package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// output is stdout with a memory: printing code need not check every write,
// and still no full disk goes unnoticed. After the first failure it swallows
// everything, so that a stage goes on to write its files.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(p)
	}
	return len(p), nil
}

// failure is the first write error; a reader that closed the pipe is none.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("standard output: %w", o.err)
}
