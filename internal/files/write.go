package files

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/blis-train/blis-train/trace"
)

// CheckOutput refuses a name where no file of ours may be written, before anything is: a
// folder, a symbolic link, which leads elsewhere, and unless special is true a pipe, a socket
// or a device, where writing may wait for ever. Codes: those of Open.
func CheckOutput(name string, special bool) error {
	st, err := statBy(os.Lstat, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if special && st.Mode()&fs.ModeSymlink != 0 { // /dev/stdout is one
		if to, err := stat(name); err == nil && !to.Mode().IsRegular() {
			st = to
		}
	}
	return checkOutput(name, st.Mode(), special)
}

func checkOutput(name string, mode fs.FileMode, special bool) error {
	const waits = fs.ModeNamedPipe | fs.ModeSocket | fs.ModeDevice
	if mode.IsRegular() || special && mode&waits != 0 {
		return nil
	}
	return trace.Errorf(specialFile, "%s: got %s, want a file or nothing there", name, kindOf(mode)).WithHint(outputHint)
}

// CheckTree is CheckOutput of everything in a folder whose files are all ours, at any depth.
func CheckTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || d.IsDir():
			return err
		}
		return checkOutput(path, d.Type(), false)
	})
}

// Folder makes a folder of ours; a link or a file in its place is refused.
func Folder(name string) error {
	st, err := statBy(os.Lstat, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(name, 0o777)
	case err == nil && !st.IsDir():
		return trace.Errorf(specialFile, "%s: got %s, want a folder", name, kindOf(st.Mode())).WithHint(outputHint)
	}
	return err
}

// unfinished are the files and folders that this process has not given their names yet.
var unfinished = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

func started(name string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	unfinished.names[name] = true
}

func ended(name string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	delete(unfinished.names, name)
}

// Sweep removes what is unfinished, for a process that ends.
func Sweep() {
	unfinished.Lock()
	defer unfinished.Unlock()
	for name := range unfinished.names {
		os.RemoveAll(name)
	}
}

// Temporary is os.MkdirTemp of a folder that remove, or Sweep, takes away again.
func Temporary(dir, pattern string) (name string, remove func(), err error) {
	if name, err = os.MkdirTemp(dir, pattern); err != nil {
		return "", nil, err
	}
	return name, Staged(name), nil
}

// Staged is what takes a folder away again, unless Sweep has.
func Staged(name string) (remove func()) {
	started(name)
	return func() {
		os.RemoveAll(name)
		ended(name)
	}
}

// Pending is a file that is being written beside its final name.
type Pending struct {
	*os.File
	name string
	kept fs.FileMode // permissions of the file it replaces; 0: there is none
}

// Begin begins a file. Until Commit the old one stands under the name; a new
// one has the permissions that the process's umask leaves. Codes: those of CheckOutput.
func Begin(name string) (*Pending, error) {
	if err := CheckOutput(name, false); err != nil {
		return nil, err
	}
	p := &Pending{name: name}
	if st, err := os.Lstat(name); err == nil {
		p.kept = st.Mode().Perm()
	}
	for range 100 {
		f, err := os.OpenFile(fmt.Sprintf("%s.tmp%08x", name, rand.Uint32()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if p.File = f; err == nil {
			started(f.Name())
		}
		return p, worded(err, name)
	}
	return nil, fmt.Errorf("%s: no free temporary name beside it", name)
}

// Commit gives the file its name. Without success nothing is left.
func (p *Pending) Commit() error {
	var err error
	if p.kept != 0 {
		err = p.Chmod(p.kept)
	}
	if err = errors.Join(err, p.Close()); err == nil {
		err = os.Rename(p.Name(), p.name)
	}
	if err != nil {
		os.Remove(p.Name())
	}
	ended(p.Name())
	return err
}

// Abort removes what was written; after Commit it does nothing.
func (p *Pending) Abort() {
	if p.Close() == nil {
		os.Remove(p.Name())
		ended(p.Name())
	}
}

// Write writes a whole file, so that no half one ever stands under its name.
func Write(name string, data []byte) error {
	p, err := Begin(name)
	if err != nil {
		return err
	}
	if _, err := p.Write(data); err != nil {
		p.Abort()
		return err
	}
	return p.Commit()
}

// WriteSpecial is Write, or writes to the pipe or device that stands under the name.
func WriteSpecial(name string, data []byte) error {
	if st, err := stat(name); err != nil || st.Mode().IsRegular() || st.IsDir() {
		return Write(name, data)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Append opens a file for writing at its end, which nobody else replaces. Codes: those of CheckOutput.
func Append(name string) (*os.File, error) {
	if err := CheckOutput(name, false); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
}

// Lock keeps a folder for this process until the result is closed. The lock is on
// the folder itself: nothing is left behind, and a process that dies loses it. taken
// says that another process has it; where folders cannot be locked nobody has.
func Lock(dir string) (lock *os.File, taken bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	if isTaken(f) {
		f.Close()
		return nil, true, nil
	}
	return f, false, nil
}
