//go:build unix

package files

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// A pipe nobody writes to would wait for ever: it is refused before it is opened.
func TestSpecialFilesAreRefusedBeforeOpening(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	sock := filepath.Join(dir, "sock")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{fifo, sock, "/dev/zero"} {
		if _, err := Read(name, 10, false); trace.CodeOf(err) != specialFile {
			t.Errorf("%s: got %v, want %s", name, err, specialFile)
		}
	}
	if _, err := Read(dir, 10, true); trace.CodeOf(err) != specialFile {
		t.Errorf("got %v, want %s", err, specialFile)
	}
	if _, err := fs.ReadFile(DirFS(dir), "fifo"); trace.CodeOf(err) != specialFile {
		t.Errorf("got %v, want %s", err, specialFile)
	}
	go func() { os.WriteFile(fifo, []byte("hello"), 0) }()
	if got, err := Read(fifo, 10, true); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Read("/dev/zero", 1<<20, true); trace.CodeOf(err) != TooLarge {
		t.Errorf("got %v, want %s", err, TooLarge)
	}
}

func TestLongNamesAreNamedInWords(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), strings.Repeat("x", 5000)), 1, false)
	if trace.CodeOf(err) != nameTooLong || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

// New files follow the umask, old ones keep their permissions, and nothing is
// left beside them.
func TestWriteFollowsTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	mode := func() fs.FileMode {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode().Perm()
	}
	if err := Write(name, []byte("1")); err != nil || mode() != 0o640 {
		t.Errorf("got %v, %v, want 640", mode(), err)
	}
	if err := os.Chmod(name, 0o604); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, []byte("22")); err != nil || mode() != 0o604 {
		t.Errorf("got %v, %v, want 604", mode(), err)
	}
	p, err := Begin(name)
	if err != nil {
		t.Fatal(err)
	}
	p.WriteString("333")
	p.Abort()
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v, want one file", entries)
	}
	if data, _ := os.ReadFile(name); string(data) != "22" {
		t.Errorf("got %q", data)
	}
	if err := Write(dir, nil); trace.CodeOf(err) != specialFile {
		t.Errorf("got %v, want %s", err, specialFile)
	}
	if err := Write(os.DevNull, []byte("x")); trace.CodeOf(err) != specialFile {
		t.Errorf("got %v, want %s", err, specialFile)
	}
	if err := WriteSpecial(os.DevNull, []byte("x")); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Error("the null device was replaced")
	}
}
