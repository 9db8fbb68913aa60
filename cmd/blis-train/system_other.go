//go:build !unix

package main

import (
	"os"

	"github.com/blis-train/blis-train/trace"
)

// isTaken is false where folders cannot be locked.
func isTaken(*os.File) bool { return false }

// peakRSS is unknown here.
func peakRSS() trace.Opt[int64] { return trace.Opt[int64]{} }
