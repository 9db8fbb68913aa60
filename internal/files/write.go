package files

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
)

// Pending is a file that is being written beside its final name.
type Pending struct {
	*os.File
	name   string
	direct bool        // a pipe or device: written to, not replaced
	kept   fs.FileMode // permissions of the file it replaces; 0: there is none
}

// Begin begins a file. Until Commit the old one stands under the name; a new
// one has the permissions that the process's umask leaves. A pipe or a device is
// written to as it is.
func Begin(name string) (*Pending, error) {
	p := &Pending{name: name}
	switch st, err := stat(name); {
	case err == nil && st.IsDir():
		return nil, check(name, st, true)
	case err == nil && !st.Mode().IsRegular():
		p.direct = true
		p.File, err = os.OpenFile(name, os.O_WRONLY, 0)
		return p, err
	case err == nil:
		p.kept = st.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for range 100 {
		f, err := os.OpenFile(fmt.Sprintf("%s.tmp%08x", name, rand.Uint32()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		p.File = f
		return p, worded(err)
	}
	return nil, fmt.Errorf("%s: no free temporary name beside it", name)
}

// Commit gives the file its name. Without success nothing is left.
func (p *Pending) Commit() error {
	var err error
	if p.kept != 0 {
		err = p.Chmod(p.kept)
	}
	if err = errors.Join(err, p.Close()); err == nil && !p.direct {
		err = os.Rename(p.Name(), p.name)
	}
	if err != nil && !p.direct {
		os.Remove(p.Name())
	}
	return err
}

// Abort removes what was written; after Commit it does nothing.
func (p *Pending) Abort() {
	if p.Close() == nil && !p.direct {
		os.Remove(p.Name())
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
