package source

import (
	"strings"
	"testing"
)

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
