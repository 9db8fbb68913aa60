package source

import (
	"os"
	"path/filepath"
	"testing"
)

// Two workers read in turn: a batch stays what it is while the other worker asks for
// more, also the one behind a line that began in the file before.
func TestBatchesKeepToTheirBuffers(t *testing.T) {
	dir := t.TempDir()
	in := []Input{{Name: "a", Joins: true}, {Name: "b"}, {Name: "c"}}
	for i, text := range []string{"one\ntw", "o\nthree\n", "another text\n"} {
		in[i].Path = filepath.Join(dir, in[i].Name)
		if err := os.WriteFile(in[i].Path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r := newReader(in, &Options{AnyText: true, Limits: Limits{MaxLine: 1 << 20, MaxExpansion: 100}})
	defer r.close()
	var bufs [2][]byte
	var before []byte
	for i, want := range []string{"one\n", "two\n", "three\n", "another text\n"} {
		b, err := r.next(&bufs[i%2])
		if err != nil {
			t.Fatal(err)
		}
		if string(b.data) != want {
			t.Errorf("batch %d: got %q, want %q", i, b.data, want)
		}
		if i == 3 && string(before) != "three\n" {
			t.Errorf("the batch before the last: got %q once the other worker has asked, want %q", before, "three\n")
		}
		before = b.data
		b.hash()
	}
}
