// Package result holds the documents other programs read from us, as structs: extract.json,
// fit.json, validation.json, inspect.json (spec#documents). Keys are a promise: add freely, never
// rename or change a unit without a new schema version. Unknown is null (a nil pointer or an
// unknown trace.Opt), never 0 or -1.
package result

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// SchemaVersion is the version of every document this package writes.
const SchemaVersion = "1"

// Header starts every document.
type Header struct {
	SchemaVersion string  `json:"schema_version"`
	ToolVersion   string  `json:"tool_version"`
	Platform      string  `json:"platform"` // of the build that computed it, see Platform, or AnyPlatform; "" in older documents
	Command       string  `json:"command"`  // stage and the options that can change the result, sorted
	Inputs        []Input `json:"inputs"`
	Config        *Config `json:"config,omitempty"` // the pipeline.yaml that set options; absent without one
	// Digest binds the document: SHA-256 of its text with this value empty and
	// no space between tokens. Write fills it in; "" in older documents.
	Digest string `json:"document_digest"`
}

// Config is a pipeline.yaml and the flags it set, as they would stand on the
// command line.
type Config struct {
	File Input    `json:"file"`
	Set  []string `json:"set"`
}

// AnyPlatform is the platform of documents whose numbers have the same bits on every one.
const AnyPlatform = "any"

// NewHeader starts a document of this build.
func NewHeader(toolVersion, command string) Header {
	return Header{SchemaVersion: SchemaVersion, ToolVersion: toolVersion, Platform: Platform(), Command: command, Inputs: []Input{}}
}

// Platform names what the last digits of a result depend on beside its inputs:
// operating system, architecture and its level, such as "linux/amd64/v1".
// Compilers may fuse a multiplication with an addition on one and not on another.
func Platform() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GO"+strings.ToUpper(runtime.GOARCH) {
				name += "/" + s.Value
			}
		}
	}
	return name
}

// Write encodes a document: two-space indent, no HTML escaping, final newline; lists
// of numbers of a validation, which are long, on one line. A document with a [Header]
// gets its digest.
func Write(w io.Writer, doc any) error {
	b, err := Marshal(doc)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// Marshal is Write into memory.
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
		text = onLines(text)
	}
	return sealed(text)
}

// digestLine is where the digest stands in what Marshal encodes. Text of two
// spaces' indentation is the document's own: line breaks within values are escaped.
var digestLine = regexp.MustCompile(`\n  "document_digest": "([0-9a-f]*)"`)

// sealed is the text with its digest; a text without a place for it stays.
func sealed(text []byte) ([]byte, error) {
	at := digestLine.FindSubmatchIndex(text)
	if at == nil {
		return text, nil
	}
	blank := slices.Concat(text[:at[2]], text[at[3]:])
	sum, err := digest(blank)
	if err != nil {
		return nil, err
	}
	return slices.Concat(blank[:at[2]], []byte(sum), blank[at[2]:]), nil
}

// digest is the SHA-256 of a JSON text without the space between its tokens.
func digest(text []byte) (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// Intact reports whether the values of a document are those it was written with:
// the digest in it is that of the text around it. A document without a digest is
// of an older version or another program, and counts as intact.
func Intact(text []byte) bool {
	var head Header
	if json.Unmarshal(text, &head) != nil || head.Digest == "" {
		return true
	}
	sum, err := digest(bytes.Replace(text, []byte(head.Digest), nil, 1))
	return err == nil && sum == head.Digest
}

// Read decodes a document strictly: another schema version and unknown keys are errors.
func Read(text []byte, doc any) error {
	var head struct {
		SchemaVersion string `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	if head.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schema_version: got %q, want %q", head.SchemaVersion, SchemaVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		return err
	}
	return trace.UnmarshalJSON(text, &head)
}

// OrNull is a number of a document: nil, which is written as null, for what is
// unknown (NaN) or infinite.
func OrNull(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Share is part of whole, nil for nothing of nothing.
func Share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	return new(float64(part) / float64(whole))
}

// TextOrNull is a text that may not be.
func TextOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// onLines is an indented JSON text with every list of numbers, and of lists of
// numbers, on one line: the curves of a validation are most of it otherwise.
func onLines(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 0
		switch text[i] {
		case '"':
			n = stringEnd(text[i:])
		case '[':
			if n = numbersEnd(text[i:]); n > 0 {
				out = appendLine(out, text[i:i+n])
				i += n
				continue
			}
		}
		n = max(1, n)
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// stringEnd is the length of the string that the text begins with.
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

// numbersEnd is the length of the list that the text begins with, 0 for one that
// holds a string or an object, or nothing.
func numbersEnd(text []byte) int {
	depth, numbers := 0, false
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case '"', '{':
			return 0
		case ']':
			if depth--; depth == 0 {
				if !numbers {
					return 0
				}
				return i + 1
			}
		case ' ', '\n', ',':
		default:
			numbers = true
		}
	}
	return 0
}

// appendLine appends a list without its line breaks.
func appendLine(to, list []byte) []byte {
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
