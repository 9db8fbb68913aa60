package export

// This file locks a ledger on Windows.

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile waits for an exclusive lock on the file. unlock releases it. It locks a byte far behind
// the end, so that readers of the file are not disturbed.
func lockFile(f *os.File) (unlock func(), err error) {
	h := windows.Handle(f.Fd())
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	err = windows.LockFileEx(h, windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, at)
	return func() { _ = windows.UnlockFileEx(h, 0, 1, 0, at) }, err
}
