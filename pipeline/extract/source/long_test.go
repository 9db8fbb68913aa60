package source

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

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
