package coeff

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/blis-train/blis-train/trace"
)

// digestKey begins the last line of a coefficient file: the SHA-256 of the lines
// before it. A file without the line is of an older version or written by hand.
const digestKey = "digest: "

// withDigest is the text with its digest line.
func withDigest(text []byte) []byte {
	return fmt.Appendf(bytes.Clone(text), "%s\"%x\"\n", digestKey, sha256.Sum256(text))
}

// Body is a coefficient file up to its digest, and whether it has one.
func Body(text []byte) (body []byte, bound bool) {
	if at := bytes.LastIndex(text, []byte("\n"+digestKey)); at >= 0 {
		return text[:at+1], true
	}
	return text, false
}

// intact reports whether the last line is the digest of those before it, however
// lines end.
func intact(text []byte) bool {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	body, bound := Body(text)
	return bound && bytes.Equal(withDigest(body), text)
}

// Doubts are what a user of the set must hear of its file: that it was changed after
// it was written. They stand among the set's warnings too.
func (s *Set) Doubts() []trace.Finding {
	if !s.Changed {
		return nil
	}
	return []trace.Finding{trace.Findingf(fileChanged,
		"the coefficient file was changed after it was written; its values are used as they stand")}
}
