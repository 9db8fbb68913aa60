package source

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// Two workers read in turn: a batch stays what it is while the other worker asks for
// more, also the one behind a line that began in the file before.
func TestBatchesKeepToTheirBuffers(t *testing.T) {
	dir := t.TempDir()
	in := []Input{{Name: "a", Joins: true}, {Name: "b"}, {Name: "c"}}
	for i, text := range []string{"one\ntw", "o\nthree\n", "another text\n"} {
		in[i].Path = filepath.Join(dir, in[i].Name)
		repo.Write(t, text, in[i].Path)
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
		b.link.finish()
	}
}

// lengths is a decoder that keeps the length of each line, and how much memory
// is in use when it gets one.
type lengths struct {
	total int
	peak  *uint64
}

func (l *lengths) Mark()        {}
func (l *lengths) Undo()        {}
func (l *lengths) Keep(int64)   {}
func (l *lengths) Number(int64) {}

type lengthDecoder struct{ peak *uint64 }

func (d lengthDecoder) Records() *lengths { return &lengths{peak: d.peak} }

func (d lengthDecoder) Line(text []byte, l *lengths) *Error {
	l.total += len(text)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapInuse > *d.peak { // a race between workers only makes it smaller
		*d.peak = m.HeapInuse
	}
	return nil
}

func (d lengthDecoder) Message([]byte, *lengths) *Error { return nil }

// TestLongLinesAreSharedByWorkers: however many workers there are, one line near
// --max-line is in memory at a time.
func TestLongLinesAreSharedByWorkers(t *testing.T) {
	const line, n = 24 << 20, 8
	path := filepath.Join(t.TempDir(), "f")
	text := append(bytes.Repeat([]byte(" "), line-1), '\n')
	text[0], text[1] = '{', '}'
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := f.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	text = nil
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak uint64
	total := 0
	in := []Input{{Path: path, Name: "f"}}
	err = Stream(context.Background(), in, Options{Workers: 8, Limits: Limits{MaxLine: 1 << 25, MaxExpansion: 100}},
		func() Decoder[*lengths] { return lengthDecoder{&peak} },
		func(p *Parsed[*lengths]) error { total += p.Records.total; runtime.GC(); return nil })
	if err != nil || total != n*(line-1) {
		t.Fatalf("got %d bytes, %v", total, err)
	}
	if got := int64(peak) - int64(before.HeapInuse); got > 5*line {
		t.Errorf("got %d MB in use for %d lines of %d MB on 8 workers, want at most %d MB", got>>20, n, line>>20, 5*line>>20)
	}
}

// TestPlainTextStopsAtEveryEnd: quotes end a string body, escapes and control
// characters send it to the general reader, at any offset.
func TestPlainTextStopsAtEveryEnd(t *testing.T) {
	for n := range 40 {
		body := strings.Repeat("é\x7fx", 20)[:n]
		for end, want := range map[string]int{`"`: n, `\"`: -1, "\n": -1, "\x1f\"": -1, "": -1} {
			if got := PlainText([]byte(body + end)); got != want {
				t.Errorf("%q: got %d, want %d", body+end, got, want)
			}
			if got := PlainText([]byte(body + end + `tail of the text"`)); end != "" && got != want {
				t.Errorf("%q: got %d, want %d", body+end, got, want)
			}
		}
	}
}
