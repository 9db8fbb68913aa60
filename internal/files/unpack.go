package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/trace"
)

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
