package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/beam/bucket/buckettest"
	"github.com/blis-train/blis-train/pipeline"
)

// TestObjectsGiveTheSameBytes: recordings in buckets of both services, read in parts that cut
// long lines, give the documents of the same files, and no byte of the dump is sent much more
// than twice: once for its SHA-256, once for its part.
func TestObjectsGiveTheSameBytes(t *testing.T) {
	objects, data, one := map[string][]byte{}, filepath.Join(t.TempDir(), "runs", "smoke"), t.TempDir()
	if err := os.CopyFS(data, os.DirFS(smoke)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(data, "traces.jsonl")
	dump, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for len(dump) < 3*headBytes { // a dump that is longer than what is fetched to tell its form
		dump = append(append(dump, bytes.Repeat([]byte(" "), 50_000)...), '\n')
	}
	if err := os.WriteFile(name, dump, 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if objects["runs/smoke/"+f.Name()], err = os.ReadFile(filepath.Join(data, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pipeline.Run(t.Context(), []string{data}, options(one)); err != nil {
		t.Fatal(err)
	}
	fake := buckettest.Serve(t, objects)
	for _, url := range []string{"gs://data/runs/smoke", "s3://data/runs/smoke/"} {
		t.Setenv("TMPDIR", t.TempDir())
		before := fake.Sent.Load()
		var talk bytes.Buffer
		c := &call{dir: t.TempDir(), part: 1 << 20, inputs: []string{url}, o: options(""), talk: &talk}
		var verdict *gateFailed
		if err := c.work(t.Context()); err != nil && !errors.As(err, &verdict) {
			t.Fatalf("%s: %v\n%s", url, err, talk.String())
		}
		sameAs(t, filepath.Join(c.dir, "out"), one)
		if sent, most := fake.Sent.Load()-before, 3*int64(len(dump)); sent > most {
			t.Errorf("%s: %d bytes were sent, want at most %d", url, sent, most)
		}
		if !bytes.Contains(talk.Bytes(), []byte("  fetched_bytes ")) {
			t.Errorf("%s: no counter of fetched bytes in %q", url, talk.String())
		}
	}
}

// TestObjectsKeepToTheMirror: an object whose name leads out of the mirror is refused before
// anything is written.
func TestObjectsKeepToTheMirror(t *testing.T) {
	buckettest.Serve(t, map[string][]byte{"runs/a/../../../../out": []byte("x")})
	t.Setenv("TMPDIR", t.TempDir())
	_, _, err := newMirror(t.Context(), []string{"gs://data/runs"}, t.TempDir(), 1)
	if err == nil || !strings.Contains(err.Error(), "leaves its bucket") {
		t.Errorf("got %v, want that the name leaves its bucket", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the temporary folder, want nothing", left, err)
	}
}
