// Package files opens and writes files whose names and contents are not trusted.
//
//	Open, Read   open regular files only, because a FIFO or a device may block or never end,
//	             and give up on a file system that does not answer
//	DirFS        is a folder under the same rules
//	Unpack       decompresses gzip and zstd with a bound on the expansion
//	Begin        writes a file that gets its name when it is complete; it refuses links, pipes
//	             and devices, as Folder, Append and CheckTree do
//	Sweep        removes files that are not complete
//	Lock         locks a folder for this process
//	Reader       reads the mappings of a YAML document key by key, with the place of errors
//	Codec        packs values for temporary files
//	Line, Word   escape text of recordings for a terminal or a shell
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
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	specialFile trace.Code = "special_file"        // no regular file at a name
	silentMount trace.Code = "silent_file_system"  // no answer within silentAfter
	TooLarge    trace.Code = "file_too_large"      // larger than the caller's bound, or expands to more
	nameTooLong trace.Code = "name_too_long"       // longer than the file system allows
	Packed      trace.Code = "unknown_compression" // one of unreadable
)

const (
	silentAfter  = 5 * time.Second // how long a file system may take to find a file
	specialHint  = "copy it to a file first, or give --allow-special when the pipe is meant"
	outputHint   = "choose another name, or remove what is there"
	maxNameShown = 60 // bytes of a name that is too long in a message
)

// Open opens a regular file, or a pipe or device when special is true. Codes:
// special_file, silent_file_system, name_too_long.
func Open(name string, special bool) (*os.File, error) {
	st, err := stat(name)
	if err != nil {
		return nil, err
	}
	if err := checkRegular(name, st, special); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// CheckInput returns an error for a pipe or a device unless special is true, and for a file system
// that does not answer. It accepts folders and names that do not exist (a glob, "-"), which the
// caller resolves.
func CheckInput(name string, special bool) error {
	st, err := stat(name)
	switch {
	case err == nil && !st.IsDir():
		return checkRegular(name, st, special)
	case errors.As(err, new(*trace.Error)):
		return err
	}
	return nil
}

// checkRegular returns an error for folders and, unless special is true, for pipes and devices.
func checkRegular(name string, st fs.FileInfo, special bool) error {
	switch mode := st.Mode(); {
	case mode.IsDir():
		return trace.Errorf(specialFile, "%s: got a folder, want a file", name).WithHint("name a file in it: ls " + name)
	case !mode.IsRegular() && !special:
		return trace.Errorf(specialFile, "%s: got %s, want a file", name, kindOf(mode)).WithHint(specialHint)
	}
	return nil
}

// kindOf returns what a file is, in words.
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

// stat returns what os.Stat does, or an error if the file system does not answer (statBy).
func stat(name string) (fs.FileInfo, error) { return statBy(os.Stat, name) }

// statBy returns what os.Stat or os.Lstat (how) does, and an error after silentAfter: on a dead
// network mount the call blocks for ever, and its goroutine then leaks.
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
		return a.st, openError(a.err, name)
	case <-late.C:
		return nil, trace.Errorf(silentMount, "%s: the file system did not answer within %s", name, silentAfter)
	}
}

// openError returns an error of stat or of a temporary file as one of opening name, so that users
// see the name that they gave. A name that is too long is shortened.
func openError(err error, name string) error {
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
	return trace.Errorf(nameTooLong, "%s: got a name of %d bytes in a path of %d, the file system allows less",
		shown, len(base), len(at.Path))
}

// Same reports whether two paths lead to one file or folder, whatever their spelling. It is false if either does not.
func Same(a, b string) bool {
	x, errX := stat(a)
	y, errY := stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// Hash returns a file's size in bytes and its SHA-256 in hex.
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

// MaxInput bounds documents, kernel tables and workloads, in bytes. Real ones are far smaller.
const MaxInput = 4 << 30

// ReadAll reads a regular file of at most MaxInput bytes.
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
		if st, err := f.Stat(); err == nil { // one allocation, without copies as the buffer grows
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

// DirFS is os.DirFS, except that files are opened by Open.
func DirFS(dir string) fs.FS { return folder(dir) }

// folder is the path of a folder, as a file system.
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

// Bounds of the decompressed size (spec#cost-limits). Highly repetitive traces of real servers,
// compressed at the highest level, expand about 100 times.
const (
	MaxExpansion  = 300  // times the compressed size
	FreeExpansion = 64e6 // bytes that any file may expand to
)

// unreadable are the first bytes of files of compressions that are not read.
var unreadable = map[string]string{"xz": "\xfd7zXZ", "bzip2": "BZh", "lz4": "\x04\x22\x4d\x18"}

// The first bytes of files of the compressions that are read.
const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

// maxZstdWindow is the largest window of a zstd file, in bytes, which is about the memory that reading it takes: the
// same as the zstd program's limit.
const maxZstdWindow = 128 << 20

// Unpack returns the text of r, decompressed when it begins with the magic number of gzip or zstd.
// Reading fails with file_too_large when the output exceeds both bounds.
func Unpack(r io.Reader, name string) (io.Reader, error) {
	packed := &counted{r: r}
	head := bufio.NewReaderSize(packed, 1<<16)
	magic, _ := head.Peek(6)
	var z io.Reader
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte(gzipMagic)):
		z, err = gzip.NewReader(head)
	case bytes.HasPrefix(magic, []byte(zstdMagic)):
		z, err = zstd.NewReader(head, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
	default:
		for _, compression := range slices.Sorted(maps.Keys(unreadable)) {
			if bytes.HasPrefix(magic, []byte(unreadable[compression])) {
				return nil, trace.Errorf(Packed, "%s: got %s, want text, gzip or zstd", name, compression).
					WithHint("decompress it first")
			}
		}
		return head, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return &unpacked{z: z, packed: packed, name: name}, nil
}

// UnpackAll returns the text of a file, decompressed if it is gzip or zstd. It may expand to at most so
// many bytes (most).
func UnpackAll(data []byte, name string, most int64) ([]byte, error) {
	plain, err := Unpack(bytes.NewReader(data), name)
	if _, packed := plain.(*unpacked); err != nil || !packed {
		return data, err
	}
	return ReadBounded(plain, name, most)
}

// counted counts the bytes read from r.
type counted struct {
	r io.Reader
	n int64
}

// Read reads from r.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// unpacked is a decompressed stream that fails when it exceeds the bounds.
type unpacked struct {
	z      io.Reader // the decompressor
	packed *counted  // what it reads
	n      int64     // decompressed bytes so far
	name   string    // of the file, for messages
}

// Read reads decompressed bytes.
func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	u.n += int64(n)
	if u.n > FreeExpansion && u.n > MaxExpansion*u.packed.n {
		return n, trace.Errorf(TooLarge, "%s: got %d bytes from %d, want at most %d times as many",
			u.name, u.n, u.packed.n, MaxExpansion)
	}
	return n, err
}

// CheckOutput returns an error, before anything is written, for an output name at which there is a
// folder, a symbolic link (whose target may be anywhere) or, unless special is true, a pipe, a
// socket or a device, where writing may block for ever. Codes: those of Open.
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

// checkOutput returns an error if there is something other than a regular file at the name.
func checkOutput(name string, mode fs.FileMode, special bool) error {
	const waits = fs.ModeNamedPipe | fs.ModeSocket | fs.ModeDevice
	if mode.IsRegular() || special && mode&waits != 0 {
		return nil
	}
	return trace.Errorf(specialFile, "%s: got %s, want a file or nothing there", name, kindOf(mode)).WithHint(outputHint)
}

// CheckTree applies CheckOutput to all files of an output folder, at any depth.
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

// Folder creates an output folder with its parents. It returns an error if there is a link or a
// file in its place.
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

// unfinished are the temporary files and folders of this process.
var unfinished = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// noteUnfinished adds a name to the temporary files.
func noteUnfinished(name string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	unfinished.names[name] = true
}

// forgetUnfinished removes a name from the temporary files.
func forgetUnfinished(name string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	delete(unfinished.names, name)
}

// Sweep removes the temporary files and folders of this process. Call it before the process exits.
func Sweep() {
	unfinished.Lock()
	defer unfinished.Unlock()
	for name := range unfinished.names {
		os.RemoveAll(name)
	}
}

// Temporary creates a folder as os.MkdirTemp does and returns its name. remove deletes it, and so
// does Sweep.
func Temporary(dir, pattern string) (name string, remove func(), err error) {
	if name, err = os.MkdirTemp(dir, pattern); err != nil {
		return "", nil, err
	}
	return name, Staged(name), nil
}

// Staged marks an existing folder as temporary, so that Sweep deletes it. remove deletes it at
// once.
func Staged(name string) (remove func()) {
	noteUnfinished(name)
	return func() {
		os.RemoveAll(name)
		forgetUnfinished(name)
	}
}

// Pending is a file that is written under a temporary name in the folder of its final one.
type Pending struct {
	*os.File
	name string
	kept fs.FileMode // permissions of the file it replaces; 0: there is none
}

// Begin creates a file that Commit renames to name, replacing a file of that name. It keeps the
// permissions of the replaced file; a new file has those of the umask. Codes: those of CheckOutput.
func Begin(name string) (*Pending, error) {
	if err := CheckOutput(name, false); err != nil {
		return nil, err
	}
	p := &Pending{name: name}
	if st, err := os.Lstat(name); err == nil {
		p.kept = st.Mode().Perm()
	}
	for range 100 {
		temporary := fmt.Sprintf("%s.tmp%08x", name, rand.Uint32())
		f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		p.File = f
		if err == nil {
			noteUnfinished(f.Name())
		}
		return p, openError(err, name)
	}
	return nil, fmt.Errorf("%s: no free temporary name in its folder", name)
}

// Commit renames the file to its final name. On an error it removes the file.
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
	forgetUnfinished(p.Name())
	return err
}

// Abort removes the temporary file; after Commit it does nothing.
func (p *Pending) Abort() {
	if p.Close() == nil {
		os.Remove(p.Name())
		forgetUnfinished(p.Name())
	}
}

// Write writes a whole file atomically: name is never a partial file.
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

// WriteSpecial does what Write does, except that it writes into a pipe or device if name is one.
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

// Append opens a file for appending and creates it if there is none. Codes: those of CheckOutput.
func Append(name string) (*os.File, error) {
	if err := CheckOutput(name, false); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
}

// Lock locks a folder for this process until unlock is called. It locks the folder itself, so
// that no lock file remains after a crash. taken reports that another process has the lock; on systems
// where folders cannot be locked it is always false.
func Lock(dir string) (unlock func(), taken bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	if isTaken(f) {
		f.Close()
		return nil, true, nil
	}
	return func() {
		// Closing alone would leave the lock to a child process that was forked and has not yet called exec.
		release(f)
		f.Close()
	}, false, nil
}
