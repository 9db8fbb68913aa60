package source

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// randomLines is text of lines: empty ones, CRLF, NUL bytes, and perhaps no newline at the
// end.
func randomLines(rng *rand.Rand) []byte {
	var b []byte
	for range rng.IntN(12) {
		switch rng.IntN(5) {
		case 0:
		case 1:
			b = append(b, bytes.Repeat([]byte{0}, 1+rng.IntN(20))...)
		case 2:
			b = append(b, bytes.Repeat([]byte("long "), rng.IntN(50))...)
			b = append(b, '\r')
		default:
			b = append(b, bytes.Repeat([]byte("x"), rng.IntN(30))...)
		}
		b = append(b, '\n')
	}
	if len(b) > 0 && rng.IntN(2) == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// cutsOf are borders anywhere, some of them on newlines and beside them.
func cutsOf(rng *rand.Rand, text []byte) []int64 {
	cuts := []int64{0, int64(len(text))}
	for range rng.IntN(6) {
		at := rng.IntN(len(text) + 1)
		if k := bytes.IndexByte(text[at:], '\n'); k >= 0 && rng.IntN(2) == 0 {
			at = min(len(text), max(0, at+k+rng.IntN(3)-1))
		}
		cuts = append(cuts, int64(at))
	}
	slices.Sort(cuts)
	return cuts
}

// partsOf reads every part between cuts; it fails on one that begins inside a line.
func partsOf(t *testing.T, text []byte, cuts []int64, rng *rand.Rand) (all []byte) {
	t.Helper()
	for i := 1; i < len(cuts); i++ {
		part := Part{"lines", cuts[i-1], cuts[i]}
		r := linesIn(t, bytes.NewReader(text), part)
		if rng != nil {
			r = &choppy{r, rng}
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if at := len(all); len(got) > 0 && at > 0 && text[at-1] != '\n' {
			t.Fatalf("part %v of %q begins inside a line, at %d", part, text, at)
		}
		if at := int64(len(all)); len(got) > 0 && (at < part.From || at >= part.To) {
			t.Fatalf("part %v of %q begins at %d", part, text, at)
		}
		all = append(all, got...)
	}
	return all
}

// linesIn reads the lines of a part.
func linesIn(t *testing.T, f io.ReaderAt, part Part) io.Reader {
	t.Helper()
	r := &partReader{f: f, part: part, at: part.From}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	return r
}

// choppy reads a few bytes at a time.
type choppy struct {
	r   io.Reader
	rng *rand.Rand
}

func (c *choppy) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), 1+c.rng.IntN(9))]) }

// TestPartsHoldEveryLineOnce: 10,000 random files, cut anywhere: the parts hold every line
// once, in order, each in the part in which it starts.
func TestPartsHoldEveryLineOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 4))
	for range 10_000 {
		text := randomLines(rng)
		cuts := cutsOf(rng, text)
		if got := partsOf(t, text, cuts, rng); !bytes.Equal(got, text) {
			t.Fatalf("cuts %v: got %q, want %q", cuts, got, text)
		}
	}
}

// TestPartsOfALongLine: a line of 30 MB that many parts cut is in the one where it starts,
// and the others read no more of it than their own bytes.
func TestPartsOfALongLine(t *testing.T) {
	text := append(bytes.Repeat([]byte("y"), 30<<20), "\nshort\n"...)
	text = append([]byte("first\n"), text...)
	var cuts []int64
	for at := int64(0); at < int64(len(text)); at += 3 << 20 {
		cuts = append(cuts, at)
	}
	cuts = append(cuts, int64(len(text)))
	if !bytes.Equal(partsOf(t, text, cuts, nil), text) {
		t.Error("lines differ")
	}
	counted := &countedAt{f: bytes.NewReader(text)}
	if b, err := io.ReadAll(linesIn(t, counted, Part{"lines", 6 << 20, 9 << 20})); len(b) > 0 || err != nil || counted.n > 4<<20 {
		t.Errorf("got %d bytes, %v, from %d read", len(b), err, counted.n)
	}
}

type countedAt struct {
	f io.ReaderAt
	n int64
}

func (c *countedAt) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.f.ReadAt(p, at)
	c.n += int64(n)
	return n, err
}

// TestPartsOfMessages: messages behind their lengths, plain and each compressed alone, are
// cut between messages: every one is in one part, whatever the length of parts.
func TestPartsOfMessages(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(24, 5))
	for n := range 10_000 {
		var text []byte
		starts := []int64{0}
		for range rng.IntN(8) {
			msg := bytes.Repeat([]byte("m"), rng.IntN(60))
			if n%10 == 0 {
				msg = enc.EncodeAll(msg, nil)
			}
			text = append(binary.BigEndian.AppendUint32(text, uint32(len(msg))), msg...)
			starts = append(starts, int64(len(text)))
		}
		if rng.IntN(10) == 0 { // cut short
			text = text[:rng.IntN(len(text)+1)]
		}
		every := 1 + rng.Int64N(100)
		parts, err := cutMessages(bytes.NewReader(text), formProto, int64(len(text)), every)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for i, p := range parts {
			if p.From != at || !slices.Contains(starts, p.From) || i+1 < len(parts) && p.To-p.From < every {
				t.Fatalf("got %v of %d bytes, messages at %v, every %d", parts, len(text), starts, every)
			}
			at = p.To
		}
		if at != int64(len(text)) {
			t.Fatalf("got %v of %d bytes", parts, len(text))
		}
	}
}
