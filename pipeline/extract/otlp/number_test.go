package otlp

import (
	"bytes"
	"math/rand"
	"strconv"
	"strings"
	"testing"
)

// TestDigitsReadsWhatStrconvDoes: the fast reader of digits agrees with
// strconv on every length up to 19 digits, whatever follows.
func TestDigitsReadsWhatStrconvDoes(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, tail := range []string{`"}}`, "/", ":", "\x80", "\xb0\xff", "\x00", "a", " "} {
		for size := range 23 {
			for range 200 {
				text := make([]byte, size)
				for i := range text {
					text[i] = byte('0' + rng.Intn(10))
				}
				want, _ := strconv.ParseUint(string(text), 10, 64)
				wantN := size
				if size > 19 {
					want, wantN = 0, 0
				}
				got, n := leadingDigits(append(append(bytes.Clone(text), tail...), strings.Repeat("9", 32)...))
				if n == 0 {
					got = 0
				}
				if got != want || n != wantN {
					t.Fatalf("%q and %q: got %d of %d digits, want %d of %d", text, tail, got, n, want, wantN)
				}
			}
		}
	}
}
