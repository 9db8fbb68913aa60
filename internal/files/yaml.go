package files

// This file reads YAML of users strictly: one document, no duplicate or unknown keys, with time and
// memory linear in the size of the text.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// MaxYAML bounds a YAML document, in bytes, and mostParts the keys and values in it, counted by the punctuation that
// separates them. The YAML library needs some 200 bytes for each, so that a document takes less than 600 MiB. A
// coefficient file of a thousand runs has 3 MiB and some 300,000.
const (
	MaxYAML   = 16 << 20
	mostParts = 1_500_000
)

// maxKeys bounds a mapping, because yaml.v3 compares every key of a mapping with every other when it
// decodes one.
const maxKeys = 10_000

// ParseYAML returns the root of the only document in the text, nil for an empty text. Errors are
// [trace.SyntaxError] without a code: a text that is too large, no YAML, a second document, a key that occurs twice,
// more than 10,000 keys in a mapping, a number that is not finite. With every error but the first two the root is
// returned too, so that a caller can recognise the form of a faulty document by its keys.
func ParseYAML(text []byte, file string) (*yaml.Node, error) {
	if err := checkSize(text, file); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if err != nil && !errors.Is(err, io.EOF) {
		e, _ := trace.YAMLError(file, err)
		return nil, e
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	switch err = dec.Decode(&second); {
	case err == nil:
		return root, atNode(&second, file, "got a second document, want one")
	case !errors.Is(err, io.EOF):
		e, _ := trace.YAMLError(file, err)
		return root, e
	}
	return root, checkNode(root, file, map[*yaml.Node]bool{})
}

// checkSize returns an error for a text that is far larger than any document of a person. It does not parse the text,
// because that is what would take the memory.
func checkSize(text []byte, file string) error {
	if len(text) > MaxYAML {
		return &trace.SyntaxError{File: file, Msg: fmt.Sprintf("got %d MiB of YAML, want at most %d", len(text)>>20, MaxYAML>>20)}
	}
	parts := 0
	for _, c := range text {
		switch c {
		case '\n', ',', ':', '[', '{', '?', '-':
			parts++
		}
	}
	if parts > mostParts {
		return &trace.SyntaxError{File: file, Msg: fmt.Sprintf("got YAML with some %d keys and values, want fewer than %d", parts, mostParts)}
	}
	return nil
}

// checkNode checks a node and all nodes below it for repeated keys, too many keys, numbers that are not
// finite and anchors that contain themselves. above has the nodes on the path from the root to n.
//
// It does not follow aliases: their target is checked once, at its anchor, so that nested aliases do
// not multiply the work.
func checkNode(n *yaml.Node, file string, above map[*yaml.Node]bool) error {
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
	isNumber := n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
	isPlain := n.Style&(yaml.TaggedStyle|yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
	if isNumber && isPlain && !IsDecimal(n.Value) && !isInfinite.MatchString(n.Value) {
		return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf("got %s, want a decimal number", n.Value),
			Hint: "write it without leading zeros, underscores and prefixes, or in quotes if it is a name"}
	}
	if isNumber && n.Tag == "!!float" {
		if v := 0.0; n.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return badNumber(n, file, "a finite number")
		}
	}
	above[n] = true
	defer delete(above, n)
	for _, child := range n.Content {
		if err := checkNode(child, file, above); err != nil {
			return err
		}
	}
	return nil
}

// decimal is a number as people write it. YAML and Go also read 010 as eight, 0x10 as sixteen and 1_000 as a
// thousand, and who wrote them may have meant something else.
var decimal = regexp.MustCompile(`^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// isInfinite matches the words for numbers that are not finite, which have an error of their own.
var isInfinite = regexp.MustCompile(`^[-+]?\.(inf|Inf|INF|nan|NaN|NAN)$`)

// IsDecimal reports whether a text is a decimal number without leading zeros, underscores or a prefix.
func IsDecimal(text string) bool { return decimal.MatchString(text) }

// badNumber returns the error for a number where the key wants another kind of number.
func badNumber(n *yaml.Node, file, want string) error {
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf("got %s, want %s", n.Value, want),
		Hint: "give " + want + ", or leave the key out"}
}

// atNode returns an error at the place of a node. A document node has no place; its first child
// has.
func atNode(n *yaml.Node, file, format string, args ...any) error {
	for n.Line == 0 && len(n.Content) > 0 {
		n = n.Content[0]
	}
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf(format, args...)}
}

// DecodeYAML decodes the only document in the text into a struct. A key without a field is an error; an
// empty text changes nothing. Errors are [trace.SyntaxError] with the line and, where one value or key is
// wrong, its column; what an UnmarshalYAML method returns stays as it is.
func DecodeYAML(text []byte, file string, into any) error {
	root, err := ParseYAML(text, file)
	if root == nil || err != nil {
		return err
	}
	if n := fraction(root, reflect.TypeOf(into)); n != nil {
		return badNumber(n, file, "a whole number")
	}
	if hasOnlyFields(root, reflect.TypeOf(into)) {
		return placed(root.Decode(into), root, into, file)
	}
	// The library names every unknown key, but only while it parses the text.
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	return placed(dec.Decode(into), root, into, file)
}

// placed returns an error of decoding n into a value as a [trace.SyntaxError] with the place of the first fault, if it
// is one that the library found.
func placed(err error, n *yaml.Node, into any, file string) error {
	if _, ok := errors.AsType[*yaml.TypeError](err); !ok {
		return err
	}
	e, key := trace.YAMLError(file, err)
	at := findFault(n, reflect.TypeOf(into), nil, fault{line: int(e.Line), key: key})
	if at == nil {
		return e // in a value with a method of its own, or merged from elsewhere
	}
	e.Col = int64(at.node.Column)
	if key == "" {
		if len(at.path) > 0 {
			e.Msg = strings.Join(at.path, ".") + ": " + e.Msg
		}
	} else if near := Nearest(key, at.legal); near != "" {
		e.Hint = fmt.Sprintf("did you mean %s?", near)
	}
	return e
}

// fault is what the library tells of an error: its line and, of an unknown key, the key.
type fault struct {
	line int
	key  string // empty for a value of the wrong type
}

// foundFault is where a fault is: the value, or the unknown key.
type foundFault struct {
	node  *yaml.Node
	path  []string // keys that lead to it
	legal []string // keys that could stand there instead of an unknown one
}

// findFault finds a fault in or below n, which is decoded into t; nil if it is not there.
func findFault(n *yaml.Node, t reflect.Type, path []string, f fault) *foundFault {
	if n.Alias != nil {
		n = n.Alias
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		return findFault(n, t.Elem(), path, f)
	}
	isMapping := n.Kind == yaml.MappingNode && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map)
	isList := n.Kind == yaml.SequenceNode && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array)
	if !isMapping && !isList {
		if f.key == "" && n.Line == f.line && n.Decode(reflect.New(t).Interface()) != nil {
			return &foundFault{node: n, path: path}
		}
		return nil
	}
	for i, value := range n.Content {
		below := path
		of := t // the type of the value
		switch {
		case isMapping && i%2 == 0:
			if t.Kind() != reflect.Struct || value.Line != f.line || f.key != value.Value {
				continue
			}
			if _, known := yamlField(t, value.Value); !known {
				return &foundFault{node: value, path: path, legal: fieldNames(t)}
			}
			continue
		case t.Kind() == reflect.Struct:
			field, known := yamlField(t, n.Content[i-1].Value)
			if !known {
				continue
			}
			of = field.Type
			below = append(slices.Clip(path), n.Content[i-1].Value)
		case isMapping:
			of = t.Elem()
			below = append(slices.Clip(path), n.Content[i-1].Value)
		default:
			of = t.Elem()
			below = append(slices.Clip(path), strconv.Itoa(i))
		}
		if found := findFault(value, of, below, f); found != nil {
			return found
		}
	}
	return nil
}

// NodeAt returns the value at a path of keys (string) and positions (int) in a document; nil if there is none.
func NodeAt(n *yaml.Node, path []any) *yaml.Node {
	for _, step := range path {
		if n == nil {
			return nil
		}
		if n.Alias != nil {
			n = n.Alias
		}
		var next *yaml.Node
		switch step := step.(type) {
		case int:
			if n.Kind == yaml.SequenceNode && step < len(n.Content) {
				next = n.Content[step]
			}
		case string:
			for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next = n.Content[i+1]
				}
			}
		}
		n = next
	}
	return n
}

// PlaceOf returns the line and the column of the value at a path, as of [NodeAt], or of the closest value that there is
// around it; 0 and 0 if there is none.
func PlaceOf(root *yaml.Node, path []any) (line, col int64) {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if n := NodeAt(root, path); n != nil {
			return int64(n.Line), int64(n.Column)
		}
	}
	return 0, 0
}

// Embedded returns a function that decodes an embedded document at its first call. It panics on an
// error, which only a fault in the program itself can cause.
func Embedded[T any](text []byte, file string) func() *T {
	return sync.OnceValue(func() *T {
		v := new(T)
		if err := DecodeYAML(text, file, v); err != nil {
			panic(file + ": " + err.Error())
		}
		return v
	})
}

// DecodeYAMLNode is DecodeYAML for a part of a document, into a pointer to a struct, or to a map or
// list of structs. A type with an UnmarshalYAML method needs it, because there the library no longer
// checks that every key has a field. Errors are [trace.SyntaxError] without a file.
func DecodeYAMLNode(n *yaml.Node, into any) error {
	if err := knownKeys(n, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if n := fraction(n, reflect.TypeOf(into)); n != nil {
		return badNumber(n, "", "a whole number")
	}
	return placed(n.Decode(into), n, into, "")
}

// fraction finds the first number with a fraction for an integer field, which yaml.v3 would truncate
// silently; nil for none.
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

// hasOnlyFields reports whether every key of n that is decoded into a struct has a field there. It is
// false for keys that it does not follow, such as those that are merged.
func hasOnlyFields(n *yaml.Node, t reflect.Type) bool {
	if n.Alias != nil {
		n = n.Alias
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return true // its method checks the keys
	}
	switch t.Kind() {
	case reflect.Pointer:
		return hasOnlyFields(n, t.Elem())
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
	default:
		return true
	}
	for i, value := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		switch {
		case isKey && value.Value == "<<":
			return false
		case isKey:
			continue
		case t.Kind() != reflect.Struct:
			if !hasOnlyFields(value, t.Elem()) {
				return false
			}
		case n.Kind == yaml.MappingNode:
			f, ok := yamlField(t, n.Content[i-1].Value)
			if !ok || !hasOnlyFields(value, f.Type) {
				return false
			}
		}
	}
	return true
}

// yamlFields has, by type of a struct, its fields by the keys of their yaml tags.
var yamlFields sync.Map

// yamlField returns the field of a struct whose yaml tag names the key.
func yamlField(t reflect.Type, key string) (reflect.StructField, bool) {
	f, ok := fieldsByKey(t)[key]
	return f, ok
}

// fieldNames returns the keys of a struct, sorted.
func fieldNames(t reflect.Type) []string {
	return slices.Sorted(maps.Keys(fieldsByKey(t)))
}

func fieldsByKey(t reflect.Type) map[string]reflect.StructField {
	known, ok := yamlFields.Load(t)
	if !ok {
		fields := map[string]reflect.StructField{}
		addYAMLFields(fields, t)
		known, _ = yamlFields.LoadOrStore(t, fields)
	}
	return known.(map[string]reflect.StructField)
}

// addYAMLFields adds the fields of a struct by the keys of their yaml tags, those of inlined structs too.
func addYAMLFields(fields map[string]reflect.StructField, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline") && f.Type.Kind() == reflect.Struct:
			addYAMLFields(fields, f.Type)
		case f.IsExported() && key != "" && key != "-":
			fields[key] = f
		}
	}
}

// knownKeys returns an error for the first key in or below n that has no field in t. It does not descend into types
// with an UnmarshalYAML method, which check their own keys.
func knownKeys(n *yaml.Node, t reflect.Type) error {
	if n.Alias != nil {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i, value := range n.Content {
		of := t // the type of the value
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 0:
			if t.Kind() != reflect.Struct {
				continue
			}
			if _, ok := yamlField(t, value.Value); !ok {
				e := &trace.SyntaxError{Line: int64(value.Line), Col: int64(value.Column), Msg: fmt.Sprintf("unknown key %q", value.Value)}
				if near := Nearest(value.Value, fieldNames(t)); near != "" {
					e.Hint = fmt.Sprintf("did you mean %s?", near)
				}
				return e
			}
			continue
		case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
			f, _ := yamlField(t, n.Content[i-1].Value)
			of = f.Type
		case t.Kind() == reflect.Map || t.Kind() == reflect.Slice:
			of = t.Elem()
		default:
			continue
		}
		if reflect.PointerTo(of).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
			continue
		}
		if err := knownKeys(value, of); err != nil {
			return err
		}
	}
	return nil
}
