package files

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestUnpackRefusesABomb: a file may unfold to the free size, and beyond it to MaxExpansion times its own.
func TestUnpackRefusesABomb(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(bytes.Repeat([]byte("\n"), 4<<20))
	z.Close()
	for free, want := range map[int64]trace.Code{1 << 20: TooLarge, 8 << 20: ""} {
		r, err := unpack(bytes.NewReader(bomb.Bytes()), "log.gz", free)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if got := trace.CodeOf(err); got != want {
			t.Errorf("%d bytes free: got %v, want %q", free, err, want)
		}
	}
}
