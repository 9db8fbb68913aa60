//go:build unix

package main

import (
	"errors"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/blis-train/blis-train/trace"
)

// ignoreBrokenPipes lets a stage write its files when the reader of its output
// has left (| head).
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// isBrokenPipe reports whether a write failed because the reader of a pipe has left.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// peakRSS is the most memory this process has held, in bytes.
func peakRSS() trace.Opt[int64] {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return trace.Opt[int64]{}
	}
	unit := int64(1024)
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return trace.Some(int64(u.Maxrss) * unit)
}
