//go:build !unix

package files

import "os"

// isTaken is false where folders cannot be locked.
func isTaken(*os.File) bool { return false }
