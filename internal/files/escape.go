package files

// This file escapes text of recordings for output: a name in a recording may contain terminal escapes,
// line ends or shell syntax.
//
//	Line     one line of text: control characters and line ends are escaped
//	Word     one word of a POSIX shell
//	Writer   a stream whose control characters are escaped, tabs and line ends kept
//	Readable a document whose bidirectional control characters are escaped

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Readable returns a YAML or JSON document with escapes for the bidirectional control characters
// (U+202E, U+2066 ...), which make an editor show the text after them in another order. The values
// stay the same; comments are escaped too.
func Readable(text []byte) []byte {
	if bytes.IndexFunc(text, isBidi) < 0 {
		return text
	}
	if head := bytes.TrimSpace(text)[0]; head != '{' && head != '[' {
		// YAML reads escapes in double-quoted scalars only.
		text = quoteBidi(text)
	}
	var out bytes.Buffer
	for _, r := range string(text) {
		if isBidi(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
			continue
		}
		out.WriteRune(r)
	}
	return out.Bytes()
}

// isBidi reports whether a character is a bidirectional control character.
func isBidi(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// quoteBidi returns a YAML document in which scalars with bidirectional control characters are in
// double quotes. A text that is not YAML is returned unchanged.
func quoteBidi(text []byte) []byte {
	var out bytes.Buffer
	dec := yaml.NewDecoder(bytes.NewReader(text))
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		quoteBidiScalars(&doc)
		if err = errors.Join(err, enc.Encode(&doc)); err != nil {
			return text
		}
	}
	if enc.Close() != nil {
		return text
	}
	return out.Bytes()
}

// quoteBidiScalars does so for a node and all nodes below it.
func quoteBidiScalars(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.IndexFunc(n.Value, isBidi) >= 0 {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteBidiScalars(c)
	}
}

// Line returns s on one line, with escapes for control characters (\u001b), bytes that are not UTF-8
// (\x9b) and line ends (\n).
func Line(s string) string { return escaped(s, "") }

// Word returns s as one word of a POSIX shell, quoted where needed.
func Word(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	s = Line(s)
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isHarmful reports whether a character is a control character, a line end of Unicode that YAML
// recognises, or a bidirectional control character.
func isHarmful(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// escaped returns s with escapes for the harmful characters that are not in keep.
func escaped(s, keep string) string {
	isFine := func(r rune) bool { return r != utf8.RuneError && !isHarmful(r) || strings.ContainsRune(keep, r) }
	if strings.IndexFunc(s, func(r rune) bool { return !isFine(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case isFine(r) || r == utf8.RuneError:
			b.WriteString(s[:n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// Writer escapes text as it is written. The escapes are valid JSON, so that a JSON document keeps its
// values. A character that two writes split is joined; Flush writes an incomplete one.
type Writer struct {
	W    io.Writer
	rest []byte // the first bytes of an incomplete character
}

// Write writes p with escapes. It returns len(p) unless w.W fails.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
			break
		}
	}
	_, err := io.WriteString(w.W, escaped(string(text[:end]), "\n\t"))
	w.rest = append([]byte(nil), text[end:]...)
	return len(p), err
}

// Flush writes the bytes of an incomplete character, escaped.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.W, escaped(string(w.rest), ""))
	w.rest = nil
	return err
}
