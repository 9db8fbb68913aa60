package export

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes an exclusive lock on a byte far behind the end, so that
// readers of the file are not disturbed, waiting for it.
func lockFile(f *os.File) (unlock func(), err error) {
	h := windows.Handle(f.Fd())
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	err = windows.LockFileEx(h, windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, at)
	return func() { _ = windows.UnlockFileEx(h, 0, 1, 0, at) }, err
}
