//go:build !unix

package main

import "github.com/blis-train/blis-train/trace"

// ignoreBrokenPipes has nothing to do where no signal tells of them.
func ignoreBrokenPipes() {}

// peakRSS is unknown here.
func peakRSS() trace.Opt[int64] { return trace.Opt[int64]{} }
