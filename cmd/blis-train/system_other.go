//go:build !unix

package main

import (
	"os"

	"github.com/blis-train/blis-train/trace"
)

// ignoreBrokenPipes has nothing to do where no signal tells of them.
func ignoreBrokenPipes() {}

// isTaken is false where folders cannot be locked.
func isTaken(*os.File) bool { return false }

// peakRSS is unknown here.
func peakRSS() trace.Opt[int64] { return trace.Opt[int64]{} }
