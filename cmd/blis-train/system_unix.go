//go:build unix

package main

import (
	"errors"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/blis-train/blis-train/trace"
)

// ignoreBrokenPipes makes writes to a closed pipe fail in place of ending the process, so that a
// stage still writes its files if the reader of its output has ended (| head).
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// isBrokenPipe reports whether a write failed because the reader of a pipe has left.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// peakRSS returns the largest resident memory of this process so far, in bytes.
func peakRSS() trace.Opt[int64] {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return trace.Opt[int64]{}
	}
	unit := int64(1024) // getrusage counts kilobytes, on macOS bytes
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return trace.Some(int64(u.Maxrss) * unit)
}
