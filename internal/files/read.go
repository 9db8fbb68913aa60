// Package files opens and writes files of people who may be careless or hostile.
//
//	Open, Read   regular files only: a FIFO or a device would wait or never end;
//	             a file system that does not answer is given up after a while
//	DirFS        a folder under the same rules
//	Unpack       gzip that does not unfold without end
//	Begin        a file that gets its name when it is complete; never behind a link,
//	             a pipe or a device, as Folder, Append and CheckTree hold too
//	Sweep        away with what has no name yet
//	Lock         a folder for this process alone
package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	specialFile trace.Code = "special_file"
	silentMount trace.Code = "silent_file_system"
	TooLarge    trace.Code = "file_too_large"
	nameTooLong trace.Code = "name_too_long"
	Packed      trace.Code = "unknown_compression"
)

const (
	silentAfter  = 5 * time.Second
	specialHint  = "copy it to a file first, or give --allow-special when the pipe is meant"
	outputHint   = "choose another name, or remove what is there"
	maxNameShown = 60
)

// Open opens a regular file, or a pipe or device when special is true. Codes:
// special_file, silent_file_system, name_too_long.
func Open(name string, special bool) (*os.File, error) {
	st, err := stat(name)
	if err != nil {
		return nil, err
	}
	if err := check(name, st, special); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// CheckInput refuses a name that stands for a pipe or a device unless special is
// true, and one on a file system that does not answer. Folders, and names of
// nothing (a glob, "-"), are somebody else's business.
func CheckInput(name string, special bool) error {
	st, err := stat(name)
	switch {
	case err == nil && !st.IsDir():
		return check(name, st, special)
	case errors.As(err, new(*trace.Error)):
		return err
	}
	return nil
}

func check(name string, st fs.FileInfo, special bool) error {
	switch mode := st.Mode(); {
	case mode.IsDir():
		return trace.Errorf(specialFile, "%s: got a folder, want a file", name).WithHint("name a file in it: ls " + name)
	case !mode.IsRegular() && !special:
		return trace.Errorf(specialFile, "%s: got %s, want a file", name, kindOf(mode)).WithHint(specialHint)
	}
	return nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func stat(name string) (fs.FileInfo, error) { return statBy(os.Stat, name) }

// statBy gives up on a file system that does not answer.
func statBy(how func(string) (fs.FileInfo, error), name string) (fs.FileInfo, error) {
	type answer struct {
		st  fs.FileInfo
		err error
	}
	got := make(chan answer, 1)
	go func() {
		st, err := how(name)
		got <- answer{st, err}
	}()
	late := time.NewTimer(silentAfter)
	defer late.Stop()
	select {
	case a := <-got:
		return a.st, worded(a.err, name)
	case <-late.C:
		return nil, trace.Errorf(silentMount, "%s: the file system did not answer within %s", name, silentAfter)
	}
}

// worded words an error about a name as one of opening it; a name that is too
// long gets words of its own.
func worded(err error, name string) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	if !errors.Is(err, syscall.ENAMETOOLONG) {
		return &fs.PathError{Op: "open", Path: name, Err: at.Err}
	}
	base := filepath.Base(name)
	shown := base
	if len(base) > maxNameShown {
		shown = base[:maxNameShown] + "..."
	}
	return trace.Errorf(nameTooLong, "%s: got a name of %d bytes in a path of %d, the file system allows less", shown, len(base), len(at.Path))
}

// Hash is the size and the SHA-256 of a file.
func Hash(name string) (size int64, sum string, err error) {
	in, err := Open(name, false)
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	h := sha256.New()
	size, err = io.Copy(h, in)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// MaxInput is far above any document, table of kernels or workload, bytes.
const MaxInput = 4 << 30

// ReadAll is Read of a file that nobody meant to be a pipe, of at most MaxInput.
func ReadAll(name string) ([]byte, error) { return Read(name, MaxInput, false) }

// Read reads a regular file of at most the given size. Codes: those of Open,
// file_too_large.
func Read(name string, most int64, special bool) ([]byte, error) {
	f, err := Open(name, special)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadBounded(f, name, most)
}

// ReadBounded reads at most the given number of bytes; more is file_too_large.
func ReadBounded(r io.Reader, name string, most int64) ([]byte, error) {
	var data bytes.Buffer
	if f, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if st, err := f.Stat(); err == nil { // memory that grows is touched several times
			data.Grow(int(min(max(st.Size(), 0), most)) + bytes.MinRead)
		}
	}
	if _, err := data.ReadFrom(io.LimitReader(r, most+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(data.Len()) > most {
		return nil, trace.Errorf(TooLarge, "%s: got more than %d MiB, want less", name, most>>20)
	}
	return data.Bytes(), nil
}

// DirFS is os.DirFS whose files are opened by Open.
func DirFS(dir string) fs.FS { return folder(dir) }

type folder string

// Open opens a file or folder below d.
func (d folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	full := filepath.Join(string(d), filepath.FromSlash(name))
	st, err := stat(full)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return os.Open(full)
	}
	return Open(full, false)
}

// Bounds of what a compressed text may unfold to (spec#cost-limits): of real servers, repeated
// traces at the highest level come to some 100 times.
const (
	MaxExpansion  = 300 // times its size
	FreeExpansion = 1e9 // bytes that any file may unfold to
)

// Unpack returns what r holds: decompressed when it begins like gzip. Reading
// fails with file_too_large when far more comes out than any real text gives.
func Unpack(r io.Reader, name string) (io.Reader, error) { return unpack(r, name, FreeExpansion) }

func unpack(r io.Reader, name string, free int64) (io.Reader, error) {
	packed := &counted{r: r}
	head := bufio.NewReaderSize(packed, 1<<16)
	switch magic, _ := head.Peek(4); {
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")):
		return nil, trace.Errorf(Packed, "%s: got zstd, want text or gzip", name).WithHint("decompress it with zstd -d first")
	case !bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		return head, nil
	}
	z, err := gzip.NewReader(head)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return &unpacked{z: z, packed: packed, name: name, free: free}, nil
}

// UnpackAll is Unpack of a whole file, of which at most so many bytes may come out.
func UnpackAll(data []byte, name string, most int64) ([]byte, error) {
	plain, err := Unpack(bytes.NewReader(data), name)
	if _, packed := plain.(*unpacked); err != nil || !packed {
		return data, err
	}
	return ReadBounded(plain, name, most)
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type unpacked struct {
	z      *gzip.Reader
	packed *counted
	n      int64
	name   string
	free   int64 // bytes that may come out of any file
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if u.n += int64(n); u.n > u.free && u.n > MaxExpansion*u.packed.n {
		return n, trace.Errorf(TooLarge, "%s: got %d bytes from %d, want at most %d times as many", u.name, u.n, u.packed.n, MaxExpansion)
	}
	return n, err
}

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
