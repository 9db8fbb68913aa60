package result

// This file reads and writes documents.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Write writes a document as JSON with an indent of two spaces, without HTML escaping, and with a
// final newline. A list of numbers is on one line, because those of a validation are long. A
// document with a [Header] gets its digest.
func Write(w io.Writer, doc any) error {
	b, err := Marshal(doc)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// Marshal returns a document encoded as Write does.
func Marshal(doc any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	text := b.Bytes()
	if _, long := doc.(*Validation); long {
		text = numberListsOnOneLine(text)
	}
	return withDigest(text)
}

// digestLine matches the digest in the output of Marshal. A line indented by two spaces is a key of
// the document itself, because line breaks within values are escaped.
var digestLine = regexp.MustCompile(`\n  "document_digest": "([0-9a-f]*)"`)

// withDigest returns the text of a document with its digest filled in. A text that has no key for
// it is returned unchanged.
func withDigest(text []byte) ([]byte, error) {
	at := digestLine.FindSubmatchIndex(text)
	if at == nil {
		return text, nil
	}
	blank := slices.Concat(text[:at[2]], text[at[3]:]) // with the value, submatch 1, empty
	sum, err := textDigest(blank)
	if err != nil {
		return nil, err
	}
	return slices.Concat(blank[:at[2]], []byte(sum), blank[at[2]:]), nil
}

// textDigest returns the SHA-256 of a JSON text without the space between its tokens.
func textDigest(text []byte) (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// Intact reports whether a document is unchanged since it was written: its digest is that of its
// text. A document without a digest was written by an older version or another program, and counts
// as intact.
func Intact(text []byte) bool {
	var head Header
	if json.Unmarshal(text, &head) != nil || head.Digest == "" {
		return true
	}
	sum, err := textDigest(bytes.Replace(text, []byte(head.Digest), nil, 1))
	return err == nil && sum == head.Digest
}

// Read decodes a document into doc, strictly: another schema version and unknown keys are errors.
func Read(text []byte, doc any) error {
	if err := trace.CheckMemory(text, doc); err != nil {
		return err
	}
	var head struct {
		SchemaVersion string `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	want := SchemaVersion
	if _, isValidation := doc.(*Validation); isValidation {
		want = ValidationVersion
	}
	if head.SchemaVersion != want {
		return fmt.Errorf("schema_version: got %q, want %q", head.SchemaVersion, want)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		return err
	}
	if e := trace.TwiceKey(text); e != nil { // the decoder accepts an object that has a key twice
		return e
	}
	return nil
}

// numberListsOnOneLine returns an indented JSON text with every list of numbers, and lists of such
// lists, on one line. Otherwise most lines of a validation would be points of curves.
func numberListsOnOneLine(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 1
		switch text[i] {
		case '"':
			n = stringEnd(text[i:])
		case '[':
			if end := numbersEnd(text[i:]); end > 0 {
				out = appendOnOneLine(out, text[i:i+end])
				i += end
				continue
			}
		}
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// stringEnd returns the length of the string literal that the text begins with.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// numbersEnd returns the length of the list of numbers that the text begins with. It is 0 for an empty
// list and for a list that contains a string or an object.
func numbersEnd(text []byte) int {
	depth := 0
	hasNumbers := false
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case '"', '{':
			return 0
		case ']':
			depth--
			if depth == 0 && hasNumbers {
				return i + 1
			}
			if depth == 0 {
				return 0
			}
		case ' ', '\n', ',':
		default:
			hasNumbers = true
		}
	}
	return 0
}

// appendOnOneLine appends a list without its line breaks and returns the result.
func appendOnOneLine(to, list []byte) []byte {
	for _, c := range list {
		switch c {
		case ' ', '\n':
		case ',':
			to = append(to, ", "...)
		default:
			to = append(to, c)
		}
	}
	return to
}
