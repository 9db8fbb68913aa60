package source

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestEveryLineIsInOnePart: however a file is divided and however small the reads are, the parts together have each line
// once, in order, and none ends within a line.
func TestEveryLineIsInOnePart(t *testing.T) {
	for _, text := range []string{"aa\nbbbb\n\nc\n", "aa\nbbbb\n\nc", "\n\n", "aaaaaa", ""} {
		n := int64(len(text))
		for first := int64(0); first <= n; first++ {
			for second := first; second <= n; second++ {
				for _, size := range []int{1, 2, 3, 64} {
					name := fmt.Sprintf("%q at %d and %d by %d", text, first, second, size)
					var all strings.Builder
					for _, p := range []Part{{From: 0, To: first}, {From: first, To: second}, {From: second, To: n}} {
						r := &partReader{f: strings.NewReader(text), part: p}
						if err := r.begin(); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						got := readBy(t, r, size)
						if got != "" && !strings.HasSuffix(got, "\n") && !strings.HasSuffix(text, got) {
							t.Errorf("%s: a part ends within a line: %q", name, got)
						}
						all.WriteString(got)
					}
					if all.String() != text {
						t.Errorf("%s: got %q", name, all.String())
					}
				}
			}
		}
	}
}

// readBy reads all bytes, size at a time.
func readBy(t *testing.T, r io.Reader, size int) string {
	t.Helper()
	var out []byte
	for p := make([]byte, size); len(out) < 1000; {
		n, err := r.Read(p)
		out = append(out, p[:n]...)
		if err == io.EOF {
			return string(out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("it has no end")
	return ""
}

// TestMagicBetweenReads: the last magic number of what was read is found, wherever the reads divide it.
func TestMagicBetweenReads(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"xxxxxM", 5}, {"MxxxxxMyy", 9}, {"xx", 0}, {"xMM", 5}, {"x\x28\xb5Mz", 3}, {"M\x28\xb5\x2f", 0},
	} {
		data := bytes.ReplaceAll([]byte(c.text), []byte("M"), ZstdMagic)
		for size := 1; size <= len(data); size++ {
			f := &frames{}
			for at := 0; at < len(data); at += size {
				f.noteMagic(data[at:min(at+size, len(data))])
			}
			if f.at != c.want || f.pos != int64(len(data)) {
				t.Errorf("%q by %d: got %d of %d bytes, want %d", c.text, size, f.at, f.pos, c.want)
			}
		}
	}
}
