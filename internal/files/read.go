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
	"os"
	"path/filepath"
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
