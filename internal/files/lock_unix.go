//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

// isTaken locks an open folder and reports whether another process holds it.
func isTaken(f *os.File) bool {
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
