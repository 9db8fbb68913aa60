package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/blis-train/blis-train/internal/files"
)

// output is a stream with a memory: printing code need not check every write,
// and still no full disk goes unnoticed. After the first failure it swallows
// everything, so that a stage goes on to write its files. Control characters
// are escaped: names come from recordings.
type output struct {
	raw  io.Writer
	mu   sync.Mutex
	text files.Writer
	err  error
	used bool
}

func newOutput(w io.Writer) *output { return &output{raw: w, text: files.Writer{W: w}} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = true
	if o.err == nil {
		_, o.err = o.text.Write(p)
	}
	return len(p), nil
}

// control writes what moves a terminal's cursor.
func (o *output) control(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = io.WriteString(o.raw, s)
	}
}

// isUsed reports whether anything was written.
func (o *output) isUsed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used
}

// failure is the first write error; a reader that closed the pipe is none.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = o.text.Flush()
	}
	if o.err == nil || errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("standard output: %w", o.err)
}
