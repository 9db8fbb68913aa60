//go:build unix

package export

// This file locks a ledger on Unix.

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for an exclusive advisory lock on the file. unlock releases it.
func lockFile(f *os.File) (unlock func(), err error) {
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	return func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }, err
}
