//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

// isTaken locks an open folder. It reports whether another process has the lock.
func isTaken(f *os.File) bool {
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// release ends the lock of isTaken, in child processes too.
func release(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
