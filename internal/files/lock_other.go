//go:build !unix

package files

import "os"

// isTaken returns false, because folders cannot be locked here.
func isTaken(*os.File) bool { return false }

// release does nothing, because nothing was locked.
func release(*os.File) {}
