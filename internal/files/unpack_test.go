package files

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestUnpackRefusesABomb: a file may expand to MaxExpansion times its size, beyond 64 MB.
func TestUnpackRefusesABomb(t *testing.T) {
	mixed := make([]byte, 1<<12)
	for i := range mixed {
		mixed[i] = byte(i * i >> 3)
	}
	for text, want := range map[string]trace.Code{"\n": TooLarge, string(mixed): ""} {
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		z.Write(bytes.Repeat([]byte(text), 70_000_000/len(text)))
		z.Close()
		r, err := Unpack(bytes.NewReader(bomb.Bytes()), "log.gz")
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if got := trace.CodeOf(err); got != want {
			t.Errorf("%.9q: %d bytes: got %v, want %q", text, bomb.Len(), err, want)
		}
	}
}
