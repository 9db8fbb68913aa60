//go:build !unix

package main

import "github.com/blis-train/blis-train/trace"

// ignoreBrokenPipes has nothing to do where no signal tells of them.
func ignoreBrokenPipes() {}

// peakRSS is unknown here.
func peakRSS() trace.Opt[int64] { return trace.Opt[int64]{} }

// isBrokenPipe reports whether a write failed because the reader of a pipe has left; where pipes are
// reported by other errors these are printed.
func isBrokenPipe(error) bool { return false }
