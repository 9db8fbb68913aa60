package files

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/trace"
)

// codeOf returns the code of an error, "" for none.
func codeOf(err error) trace.Code {
	if e, ok := errors.AsType[*trace.Error](err); ok {
		return e.Code
	}
	return ""
}

func put(t *testing.T, text string, parts ...string) string {
	t.Helper()
	name := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestReadIsBounded: a file of the largest size is read, one byte more is an error with its code.
func TestReadIsBounded(t *testing.T) {
	dir := t.TempDir()
	name := put(t, "abc", dir, "f")
	for most, ok := range map[int64]bool{2: false, 3: true, 4: true} {
		data, err := Read(name, most, false)
		if ok != (err == nil) || ok && string(data) != "abc" || !ok && codeOf(err) != TooLarge {
			t.Errorf("at most %d bytes: got %q and %v", most, data, err)
		}
	}
	_, err := ReadBounded(strings.NewReader(strings.Repeat("x", 5<<20+1)), "big", 5<<20)
	if err == nil || err.Error() != "file_too_large: big: got more than 5 MiB, want less" {
		t.Errorf("got %v", err)
	}
	// SHA-256 of "abc" in FIPS 180-2.
	size, sum, err := Hash(name)
	if err != nil || size != 3 || sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("got %d, %s and %v", size, sum, err)
	}
	if _, _, err := Hash(dir); codeOf(err) != specialFile {
		t.Errorf("the hash of a folder: got %v", err)
	}
	if _, err := ReadAll(dir); codeOf(err) != specialFile || !strings.Contains(err.Error(), "got a folder, want a file") {
		t.Errorf("a folder: got %v", err)
	}
	if data, err := ReadAll(name); err != nil || string(data) != "abc" {
		t.Errorf("got %q and %v", data, err)
	}
	for name, ok := range map[string]bool{name: true, dir: true, filepath.Join(dir, "*"): true, "-": true, strings.Repeat("n", 300): false} {
		if err := CheckInput(name, false); ok != (err == nil) {
			t.Errorf("%.20s: got %v", name, err)
		}
	}
	files := DirFS(dir)
	if data, err := fs.ReadFile(files, "f"); err != nil || string(data) != "abc" {
		t.Errorf("got %q and %v", data, err)
	}
	if list, err := fs.ReadDir(files, "."); err != nil || len(list) != 1 {
		t.Errorf("got %v and %v", list, err)
	}
	for _, name := range []string{"../x", "none"} {
		if _, err := files.Open(name); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}

// TestSame: a file is the same by another path, and nothing is the same as what is not there.
func TestSame(t *testing.T) {
	a, b := put(t, "", t.TempDir(), "x"), put(t, "", t.TempDir(), "x")
	for _, c := range []struct {
		other string
		want  bool
	}{{a, true}, {filepath.Dir(a) + "/./x", true}, {b, false}, {a + "none", false}, {filepath.Dir(a), false}} {
		if got := Same(a, c.other); got != c.want || got != Same(c.other, a) {
			t.Errorf("%s, %s: got %v", a, c.other, got)
		}
	}
	if Same("none", "none") {
		t.Error("what is not there has itself")
	}
}

// TestUnpack: text, gzip and zstd are read, other compressions are named, and what is cut is an error.
func TestUnpack(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, "text")
	z.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain": []byte("text"), "gzip": packed.Bytes(), "zstd": enc.EncodeAll([]byte("text"), nil)} {
		if got, err := UnpackAll(data, name, 4); err != nil || string(got) != "text" {
			t.Errorf("%s: got %q and %v", name, got, err)
		}
		if got, err := UnpackAll(data, name, 3); name != "plain" && codeOf(err) != TooLarge {
			t.Errorf("%s, at most 3 bytes: got %q and %v", name, got, err)
		}
	}
	for name, magic := range map[string]string{"xz": "\xfd7zXZ\x00", "bzip2": "BZh91AY", "lz4": "\x04\x22\x4d\x18zz"} {
		if _, err := UnpackAll([]byte(magic), "f", 100); codeOf(err) != Packed || !strings.Contains(err.Error(), "f: got "+name+", want text, gzip or zstd") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := UnpackAll([]byte("\x1f\x8bno gzip"), "f", 100); err == nil || !strings.HasPrefix(err.Error(), "read f: ") {
		t.Errorf("got %v", err)
	}
}

// TestExpansion: beyond 64 MB a text may be 300 times as large as the file, and no larger.
func TestExpansion(t *testing.T) {
	for _, c := range []struct {
		read, packed int64
		ok           bool
	}{{64e6, 1, true}, {64e6 + 1, 1, false}, {90e6, 300_000, true}, {90e6 + 1, 300_000, false}, {90e6 + 1, 300_001, true}} {
		u := &unpacked{z: strings.NewReader("x"), packed: &counted{n: c.packed}, n: c.read - 1, name: "f"}
		n, err := u.Read(make([]byte, 10))
		if n != 1 || c.ok != (err == nil) || !c.ok && codeOf(err) != TooLarge {
			t.Errorf("%d bytes from %d: got %d and %v", c.read, c.packed, n, err)
		}
	}
	in := &counted{r: strings.NewReader("abcde")}
	if _, err := io.ReadAll(in); err != nil || in.n != 5 {
		t.Errorf("got %d bytes and %v", in.n, err)
	}
}

// TestOutputs: what is written replaces a file whole; a folder and a link in its place are refused, and the temporary
// files of the process are swept.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := WriteJSON(name, map[string]int{"a": 3}); err != nil {
		t.Fatal(err)
	}
	var back map[string]int
	if err := ReadJSON(name, &back); err != nil || back["a"] != 3 {
		t.Errorf("got %v and %v", back, err)
	}
	if err := ReadJSON(name, new([]int)); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
		t.Errorf("got %v", err)
	}
	if err := WriteJSON(name, func() {}); err == nil || ReadJSON(filepath.Join(dir, "none"), &back) == nil {
		t.Error("a function was written, or a missing file read")
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteSpecial(name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(name)
	if data, _ := os.ReadFile(name); err != nil || string(data) != "new" || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("got %q, %v and %v", data, st.Mode(), err)
	}
	f, err := Append(name)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("+")
	f.Close()
	if data, _ := os.ReadFile(name); string(data) != "new+" {
		t.Errorf("got %q", data)
	}
	p, err := Begin(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Name(), name+".tmp") || len(p.Name()) != len(name)+12 || !unfinished.names[p.Name()] {
		t.Errorf("got the temporary name %s", p.Name())
	}
	p.Abort()
	p.Abort()
	if _, err := os.Stat(p.Name()); err == nil || unfinished.names[p.Name()] {
		t.Error("an aborted file is left")
	}
	if p, err = Begin(name); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(); err != nil || unfinished.names[p.Name()] {
		t.Errorf("got %v", err)
	}
	if err := Write(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("a file was written into a folder that does not exist")
	}

	for _, open := range []func(string) error{func(n string) error { return Write(n, nil) }, func(n string) error { _, err := Append(n); return err },
		func(n string) error { return WriteSpecial(n, nil) }} {
		if err := open(dir); codeOf(err) != specialFile || !strings.Contains(err.Error(), "got a folder, want a file or nothing there") {
			t.Errorf("over a folder: got %v", err)
		}
	}
	if err := Folder(name); codeOf(err) != specialFile || !strings.Contains(err.Error(), "got a file, want a folder") {
		t.Errorf("a folder over a file: got %v", err)
	}
	if err := errors.Join(Folder(filepath.Join(dir, "a", "b")), Folder(dir)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(CheckTree(dir), CheckTree(filepath.Join(dir, "none")), CheckOutput(filepath.Join(dir, "none"), false)); err != nil {
		t.Error(err)
	}
	link := filepath.Join(dir, "a", "b", "link")
	if err := os.Symlink(name, link); err != nil {
		t.Skip("no links: ", err)
	}
	for _, err := range []error{CheckTree(dir), CheckOutput(link, false), CheckOutput(link, true)} {
		if codeOf(err) != specialFile || !strings.Contains(err.Error(), "got a symbolic link") {
			t.Errorf("a link: got %v", err)
		}
	}

	temporary, remove, err := Temporary(dir, "t*")
	if err != nil {
		t.Fatal(err)
	}
	remove()
	if _, err := os.Stat(temporary); err == nil {
		t.Error("a removed folder is left")
	}
	if temporary, _, err = Temporary(dir, "t*"); err != nil {
		t.Fatal(err)
	}
	Sweep()
	if _, err := os.Stat(temporary); err == nil {
		t.Error("a temporary folder is left after Sweep")
	}
	if name, remove, err := Temporary(name, "t*"); err == nil || name != "" || remove != nil {
		t.Error("a folder below a file was made")
	}
}

// TestLock: a folder is locked once, until it is unlocked.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, taken, err := Lock(dir)
	if err != nil || taken {
		t.Fatal(taken, err)
	}
	if again, taken, err := Lock(dir); err != nil || runtime.GOOS != "windows" && (!taken || again != nil) {
		t.Errorf("locked twice: got %t and %v", taken, err)
	}
	unlock()
	if unlock, taken, err = Lock(dir); err != nil || taken {
		t.Errorf("after it was unlocked: got %t and %v", taken, err)
	}
	unlock()
	if _, _, err := Lock(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing folder was locked")
	}
}

// TestKinds: the words for what a file is.
func TestKinds(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{0: "a file", fs.ModeDir: "a folder", fs.ModeSymlink: "a symbolic link", fs.ModeNamedPipe: "a pipe",
		fs.ModeSocket: "a socket", fs.ModeDevice: "a device", fs.ModeIrregular: "a special file"} {
		if got := kindOf(mode); got != want {
			t.Errorf("%v: got %s, want %s", mode, got, want)
		}
		waits := mode == fs.ModeNamedPipe || mode == fs.ModeSocket || mode == fs.ModeDevice
		if err := checkOutput("f", mode, false); (err == nil) != (mode == 0) {
			t.Errorf("%v: got %v", mode, err)
		}
		if err := checkOutput("f", mode, true); (err == nil) != (mode == 0 || waits) {
			t.Errorf("%v, special: got %v", mode, err)
		}
	}
}
