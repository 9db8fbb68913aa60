//go:build !unix

package main

import "github.com/blis-train/blis-train/trace"

// ignoreBrokenPipes does nothing on systems without SIGPIPE.
func ignoreBrokenPipes() {}

// peakRSS returns unknown.
func peakRSS() trace.Opt[int64] { return trace.Opt[int64]{} }

// isBrokenPipe reports whether a write failed because the reader of a pipe has left; where pipes are
// reported by other errors these are printed.
func isBrokenPipe(error) bool { return false }
