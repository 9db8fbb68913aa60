package files

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

// This file writes text of recordings where it cannot do harm: a name in it may hold terminal escapes,
// line ends or shell words.
//
//	Line     one line of text: control characters and line ends are escaped
//	Word     one word of a POSIX shell
//	Writer   a stream whose control characters are escaped, tabs and line ends kept
//	Readable a document whose bidirectional control characters are escaped

// Readable is a text with the same values, when it is YAML or JSON, in which the characters that
// reorder what stands behind them (U+202E, U+2066 ...) are escapes; in comments too.
func Readable(text []byte) []byte {
	if bytes.IndexFunc(text, isBidi) < 0 {
		return text
	}
	if head := bytes.TrimSpace(text)[0]; head != '{' && head != '[' { // an escape of YAML stands in quotes
		text = quoted(text)
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

func isBidi(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// quoted is YAML whose scalars with such characters stand in double quotes; other text comes back.
func quoted(text []byte) []byte {
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
		quote(&doc)
		if err = errors.Join(err, enc.Encode(&doc)); err != nil {
			return text
		}
	}
	if enc.Close() != nil {
		return text
	}
	return out.Bytes()
}

func quote(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.IndexFunc(n.Value, isBidi) >= 0 {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quote(c)
	}
}

// Line returns s on one line, every control character as \u001b, every byte
// that is no UTF-8 as \x9b, line ends as \n. Plain text comes back as it is.
func Line(s string) string { return escaped(s, "") }

// Word returns s as a POSIX shell reads it as one word: quoted where needed.
func Word(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	s = Line(s)
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isHarmful reports control characters, line ends that YAML knows, and what
// reorders the text behind it.
func isHarmful(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// escaped escapes every harmful character that keep does not hold.
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

// Writer escapes what passes through it. The escapes are also those of JSON, so
// that a document keeps its meaning. A character cut in two by two writes is
// put together again; Flush writes what is left of one.
type Writer struct {
	W    io.Writer
	rest []byte // the beginning of a character
}

// Write writes p escaped; it reports len(p) unless W fails.
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

// Flush writes the bytes of a character that never ended.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.W, escaped(string(w.rest), ""))
	w.rest = nil
	return err
}
