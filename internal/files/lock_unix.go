//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

// isTaken locks an open folder, or reports that another process has locked it.
func isTaken(f *os.File) bool {
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
