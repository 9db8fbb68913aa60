package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// This file reads YAML that people hand us: one document, every key once, no key that the
// reader does not know, in time and memory that grow with the size of the text.

// maxKeys is far above any mapping of ours. The library compares every key of a
// mapping with every other when it decodes one.
const maxKeys = 10_000

// ParseYAML returns the document's root, nil for an empty text. Errors are
// [trace.SyntaxError] without a code: no YAML, a second document, a key that
// stands twice, more than 10,000 keys in a mapping, a number that is not finite.
func ParseYAML(text []byte, file string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		e, _ := trace.YAMLError(file, err)
		return nil, e
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, atNode(&more, file, "got a second document, want one")
	case !errors.Is(err, io.EOF):
		e, _ := trace.YAMLError(file, err)
		return nil, e
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], checkKeys(&doc, file, map[*yaml.Node]bool{})
}

// checkKeys walks the tree as it is written: what an alias stands for is checked
// once, where its anchor is.
func checkKeys(n *yaml.Node, file string, above map[*yaml.Node]bool) error {
	if above[n.Alias] {
		return atNode(n, file, "anchor %q contains itself", n.Value)
	}
	if n.Kind == yaml.MappingNode {
		if len(n.Content) > 2*maxKeys {
			return atNode(n, file, "got a mapping of %d keys, want at most %d", len(n.Content)/2, maxKeys)
		}
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind == yaml.ScalarNode && seen[key.Value] {
				return &trace.SyntaxError{File: file, Line: int64(key.Line), Col: int64(key.Column), Hint: "keep one of the two",
					Msg: fmt.Sprintf("key %q stands twice", key.Value)}
			}
			seen[key.Value] = true
		}
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!float" {
		if v := 0.0; n.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return badNumber(n, file, "a finite number")
		}
	}
	above[n] = true
	defer delete(above, n)
	for _, child := range n.Content {
		if err := checkKeys(child, file, above); err != nil {
			return err
		}
	}
	return nil
}

func badNumber(n *yaml.Node, file, want string) error {
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf("got %s, want %s", n.Value, want),
		Hint: "give " + want + ", or leave the key out"}
}

func atNode(n *yaml.Node, file, format string, args ...any) error {
	for n.Line == 0 && len(n.Content) > 0 {
		n = n.Content[0]
	}
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf(format, args...)}
}

// DecodeYAML reads the document into a struct; a key that has no field is an error,
// an empty text leaves it as it is. The errors of the library itself come back
// as they are, for [trace.YAMLError].
func DecodeYAML(text []byte, file string, into any) error {
	root, err := ParseYAML(text, file)
	if root == nil || err != nil {
		return err
	}
	if n := fraction(root, reflect.TypeOf(into)); n != nil {
		return badNumber(n, file, "a whole number")
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	return dec.Decode(into)
}

// Embedded reads a document that is part of the program once, when it is first asked for.
func Embedded[T any](text []byte, file string) func() *T {
	return sync.OnceValue(func() *T {
		v := new(T)
		if err := DecodeYAML(text, file, v); err != nil {
			panic(file + ": " + err.Error())
		}
		return v
	})
}

// DecodeYAMLNode is DecodeYAML for a part of a document, into a pointer to a struct or to a map of structs: a decoder of
// the library forgets that keys must be known where a type decodes itself. Errors are [trace.SyntaxError] without a file.
func DecodeYAMLNode(n *yaml.Node, into any) error {
	if err := knownKeys(n, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if n := fraction(n, reflect.TypeOf(into)); n != nil {
		return badNumber(n, "", "a whole number")
	}
	return n.Decode(into)
}

// fraction is the first fraction where an integer goes, which the library cuts without a word; nil for none.
func fraction(n *yaml.Node, t reflect.Type) (found *yaml.Node) {
	if n.Alias != nil {
		n = n.Alias
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return fraction(n, t.Elem())
	case reflect.Int, reflect.Int64:
		if v := 0.0; n.Tag == "!!float" && n.Decode(&v) == nil && v != math.Trunc(v) {
			return n
		}
		return nil
	}
	for i, value := range n.Content {
		of := t
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 0:
			continue
		case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
			f, ok := yamlField(t, n.Content[i-1].Value)
			if !ok {
				continue
			}
			of = f.Type
		case t.Kind() == reflect.Map || t.Kind() == reflect.Slice:
			of = t.Elem()
		default:
			continue
		}
		if found = fraction(value, of); found != nil {
			return found
		}
	}
	return nil
}

// yamlField is the field of a key.
func yamlField(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func knownKeys(n *yaml.Node, t reflect.Type) error {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch t.Kind() {
		case reflect.Map:
			if err := knownKeys(n.Content[i+1], t.Elem()); err != nil {
				return err
			}
		case reflect.Struct:
			if _, ok := yamlField(t, key.Value); !ok {
				return atNode(key, "", "unknown key %q", key.Value)
			}
		}
	}
	return nil
}

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

// This file writes foreign text where it cannot do harm: names from a
// recording may hold terminal escapes, line ends or shell words of their own.
//
//	Line    one line of text: control characters are escaped, line ends too
//	Word    one word of a POSIX shell
//	Writer  a stream whose control characters are escaped, tabs and line ends kept

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
